//! What was found.

use std::fmt;

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Ok,
    Warning,
    Problem,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub severity: Severity,
    /// What was looked at.
    pub check: &'static str,
    /// What was seen.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, check, message: message.into(), remedy: None }
    }

    pub(super) fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::ok(check, message) }
    }

    pub(super) fn problem(check: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, ..Self::ok(check, message) }
    }

    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        };
        write!(formatter, "{severity:7}  {}: {}", self.check, self.message)?;
        match &self.remedy {
            Some(remedy) => write!(formatter, "; {remedy}"),
            None => Ok(()),
        }
    }
}
