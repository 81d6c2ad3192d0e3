//! What rules change about the head of a request without a look at it.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_http1::is_cgi_twin;

/// What rules change about a head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadChange {
    /// Fields that are added behind those that are there; other spellings of them are removed.
    pub added: Vec<(HeaderName, HeaderValue)>,
    /// Fields that are removed, however often they are there.
    pub removed: Vec<HeaderName>,
    /// What agents learn of the rule, once it has matched.
    pub notes: OnceLock<RuleNotePair>,
}

impl HeadChange {
    /// Returns true if a field of a request is removed. A removed field goes in each spelling that CGI and WSGI
    /// cannot tell apart, and an added field replaces all spellings but its own.
    pub fn removes_field(&self, name: &[u8]) -> bool {
        let mut added = self.added.iter();
        self.removed.iter().any(|known| is_removed_with(name, known))
            || added.any(|(known, _)| is_replaced_by(name, known))
    }

    /// The names of all fields that are changed.
    pub fn changed_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.added.iter().map(|(name, _)| name).chain(&self.removed)
    }
}

/// Returns true if a field of a request is removed together with one of this name. Otherwise a visitor could
/// send `X_User` to an application that trusts `x-user`, because CGI and WSGI take both for the same.
pub fn is_removed_with(name: &[u8], removed: &HeaderName) -> bool {
    name.eq_ignore_ascii_case(removed.as_str().as_bytes()) || is_replaced_by(name, removed)
}

/// Returns true if a field of a request is another spelling of one that is added.
pub fn is_replaced_by(name: &[u8], added: &HeaderName) -> bool {
    is_cgi_twin(name, added.as_str().as_bytes())
}

/// Removes the fields of a request that [`is_removed_with`] one of this name; true if there were any.
pub fn remove_spellings(headers: &mut HeaderMap, removed: &HeaderName) -> bool {
    retain_names(headers, |name| !is_removed_with(name, removed))
}

/// Removes the fields of a request that are other spellings of one that is added.
pub fn remove_twins(headers: &mut HeaderMap, added: &HeaderName) {
    retain_names(headers, |name| !is_replaced_by(name, added));
}

fn retain_names(headers: &mut HeaderMap, keeps: impl Fn(&[u8]) -> bool) -> bool {
    let is_removed = |name: &&HeaderName| !keeps(name.as_str().as_bytes());
    let names: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    for name in &names {
        headers.remove(name);
    }
    !names.is_empty()
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
