//! What rules change about the head of a request without a look at it.

use std::sync::OnceLock;

use http::{HeaderName, HeaderValue};

/// What rules change about a head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadChange {
    /// Fields that are added behind those that are there.
    pub added: Vec<(HeaderName, HeaderValue)>,
    /// Fields that are removed, however often they are there.
    pub removed: Vec<HeaderName>,
    /// What agents are told of the rule, once it has matched.
    pub note: OnceLock<HeaderValue>,
}

impl HeadChange {
    /// The names of all fields that are changed.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.added.iter().map(|(name, _)| name).chain(&self.removed)
    }
}
