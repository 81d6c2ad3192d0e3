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
    /// What agents learn of the rule, once it has matched.
    pub notes: OnceLock<RuleNotePair>,
}

impl HeadChange {
    /// The names of all fields that are changed.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.added.iter().map(|(name, _)| name).chain(&self.removed)
    }
}

/// What is said of a rule, as JSON in base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleNotePair {
    /// To those who may not read the policy: expressions may name what is secret.
    pub others: HeaderValue,
    /// To the agent whose own policy it is.
    pub owner: HeaderValue,
}

impl RuleNotePair {
    /// What is said to an agent.
    pub fn for_agent(&self, is_owner: bool) -> &HeaderValue {
        if is_owner { &self.owner } else { &self.others }
    }
}
