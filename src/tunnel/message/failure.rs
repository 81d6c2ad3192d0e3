//! The text form of errors in answers.

use std::fmt;

/// What codes begin with, on a line of their own.
const PREFIX: &str = "ERR_NGROK_";

/// An error as answers carry it: lines for people, and a code for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// What went wrong, one or more lines.
    pub message: String,
    /// The code, such as `ERR_NGROK_107`.
    pub code: Option<String>,
}

impl Failure {
    /// Takes the text of an `Error` member apart: empty lines go, the line with the code becomes
    /// the code.
    pub fn parse(text: &str) -> Self {
        let mut code = None;
        let mut lines = Vec::new();
        for line in text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()) {
            match line.trim().strip_prefix(PREFIX) {
                Some(_) if code.is_none() => code = Some(line.trim().to_owned()),
                _ => lines.push(line),
            }
        }
        Self { message: lines.join("\n"), code }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.code {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

/// Writes the text of an `Error` member; `code` is whole, such as `ERR_NGROK_107`.
pub fn error_text(lines: &str, code: Option<&str>) -> String {
    match code {
        Some(code) => format!("{lines}\n\n{code}"),
        None => lines.to_owned(),
    }
}

/// The error of an answer, if its `Error` member holds one.
pub(super) fn failure(error: Option<&str>) -> Option<Failure> {
    error.filter(|text| !text.trim().is_empty()).map(Failure::parse)
}
