//! Text that must not reach a log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A token or cookie: travels as plain text, and shows nothing of it when printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hidden(String);

impl Hidden {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// True when there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<String>> From<T> for Hidden {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "\"\"" } else { "(hidden)" })
    }
}
