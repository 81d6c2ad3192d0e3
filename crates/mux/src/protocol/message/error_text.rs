//! The text form of errors in answers.

use std::fmt;

/// What codes begin with by default, on a line of their own.
const PREFIX: &str = "ERR_NGROK_";

/// An error as answers carry it: lines for people, and a code for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RemoteError {
    /// Recent errors, one or more lines.
    pub message: String,
    /// The code, such as `ERR_NGROK_107`.
    pub code: Option<String>,
}

impl RemoteError {
    /// Takes the text of an `Error` member apart: empty lines go, the line with the code becomes
    /// the code. A service may have another prefix for its codes, so what looks like a code after
    /// an empty line at the end is one as well.
    pub fn parse(text: &str) -> Self {
        let text = text.trim_end();
        let last = text.rsplit_once("\n").filter(|(above, last)| {
            above.ends_with('\n')
                && parse_code_number(last).is_some()
                && !last.contains(char::is_whitespace)
        });
        let mut code = None;
        let mut lines = Vec::new();
        for line in text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()) {
            match line.trim().strip_prefix(PREFIX) {
                Some(_) if code.is_none() => code = Some(line.trim().to_owned()),
                _ => lines.push(line),
            }
        }
        if let (None, Some((_, last))) = (&code, last) {
            lines.pop();
            code = Some(last.to_owned());
        }
        Self { message: lines.join("\n"), code }
    }

    /// The number of the code, without what stands before it.
    pub fn code_number(&self) -> Option<u16> {
        parse_code_number(self.code.as_deref()?)
    }
}

/// The number at the end of a code.
fn parse_code_number(code: &str) -> Option<u16> {
    let start = code.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    code.get(start..)?.parse().ok()
}

impl fmt::Display for RemoteError {
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
pub fn parse_failure(error: Option<&str>) -> Option<RemoteError> {
    error.filter(|text| !text.trim().is_empty()).map(RemoteError::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_numbers_whatever_stands_before_them() {
        for (text, number) in [
            ("no\n\nERR_NGROK_107", Some(107)),
            ("no\nERR_NGROK_107\nmore", Some(107)),
            (&error_text("no", Some("SHOP-722")), Some(722)),
            (&error_text("no", Some("722")), Some(722)),
            ("no room in 107", None),
            ("107", None),
            ("no\n\nmore of 107", None),
            ("no\n107", None),
            ("", None),
        ] {
            assert_eq!(RemoteError::parse(text).code_number(), number, "{text:?}");
        }
    }
}
