//! Host names and wildcards.

use std::fmt;

use super::{AddressError, HostName};

/// A host name, or `*.` and a host name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPattern {
    /// If true, the pattern covers all names below the name.
    pub is_wildcard: bool,
    /// The name.
    pub name: HostName,
}

impl HostPattern {
    /// Parses a name or a wildcard.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let below = text.strip_prefix("*.");
        let name = HostName::parse(below.unwrap_or(text))?;
        Ok(Self { is_wildcard: below.is_some(), name })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)
    }
}
