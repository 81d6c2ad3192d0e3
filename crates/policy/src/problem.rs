//! What is wrong with a document, and where.

use serde::Serialize;

/// The numbers of the problems, as the service reports them.
///
/// Traffic policy sheet, section 9.
pub mod code {
    /// A user name is empty.
    pub const USER_NAME: u16 = 359;
    /// A password is too short or too long.
    pub const PASSWORD: u16 = 360;
    /// A user agent expression is invalid.
    pub const USER_AGENT: u16 = 2090;
    /// An expression does not compile, or names something that is not there.
    pub const EXPRESSION: u16 = 2200;
    /// The action type does not exist, or is not built.
    pub const ACTION_TYPE: u16 = 2201;
    /// The action cannot run in this phase.
    pub const ACTION_PHASE: u16 = 2202;
    /// The configuration has the wrong shape, or a key nobody knows.
    pub const CONFIG: u16 = 2203;
    /// A value is not one of those that make sense.
    pub const VALUE: u16 = 2204;
    /// The action cannot run on this protocol.
    pub const PROTOCOL: u16 = 2205;
    /// The rule has no actions.
    pub const NO_ACTIONS: u16 = 2206;
    /// Nothing can reach the rule or action.
    pub const UNREACHABLE: u16 = 2207;
    /// A header name is too long.
    pub const HEADER_NAME_LENGTH: u16 = 2208;
    /// A header value is too long.
    pub const HEADER_VALUE_LENGTH: u16 = 2209;
    /// A header name holds a character that names may not hold.
    pub const HEADER_NAME: u16 = 2210;
    /// A header value holds a character that values may not hold.
    pub const HEADER_VALUE: u16 = 2211;
    /// There are too few or too many headers.
    pub const HEADER_COUNT: u16 = 2212;
    /// A template has an unclosed or empty `${}`.
    pub const TEMPLATE: u16 = 2213;
    /// The algorithm is unknown.
    pub const ALGORITHM: u16 = 2214;
    /// A number or a duration is out of range.
    pub const RANGE: u16 = 2215;
    /// The identifier is not one of an IP policy.
    pub const IP_POLICY: u16 = 2216;
    /// The text is no CIDR and no address.
    pub const CIDR: u16 = 2217;
    /// A list has too many entries.
    pub const ENTRIES: u16 = 2218;
    /// The header is not for policies to change.
    pub const NOT_CONFIGURABLE: u16 = 2219;
    /// A text is too long.
    pub const LENGTH: u16 = 2221;
    /// A text is not one of a fixed set.
    pub const CHOICE: u16 = 2222;
    /// A value is missing or empty.
    pub const EMPTY: u16 = 2223;
    /// The expression inside a `${}` is wrong.
    pub const TEMPLATE_EXPRESSION: u16 = 2224;
    /// A text is no duration.
    pub const DURATION: u16 = 2225;
    /// A text is no URL that the action can use.
    pub const URL: u16 = 2226;
    /// The phase does not exist here.
    pub const PHASE: u16 = 2230;
    /// A value is there twice.
    pub const DUPLICATE: u16 = 2231;
    /// Nothing in the document does anything with the traffic, and nothing else does.
    pub const UNHANDLED: u16 = 2235;
    /// The document cannot be read.
    pub const DOCUMENT: u16 = 2236;
    /// A rule has more than one action that authenticates.
    pub const AUTHENTICATION: u16 = 2239;
    /// Edges have no phase for TCP connections.
    pub const EDGE_PHASE: u16 = 2248;
    /// A variable is nested too deeply.
    pub const VARIABLE_DEPTH: u16 = 2250;
    /// A variable is not a map with one entry.
    pub const VARIABLE_SHAPE: u16 = 2252;
    /// There are too many variables.
    pub const VARIABLE_COUNT: u16 = 2255;
    /// A regular expression is invalid.
    pub const REGEX: u16 = 2261;
    /// A phase has too many rules.
    pub const RULE_COUNT: u16 = 2264;
    /// A rule has too many expressions or actions.
    pub const RULE_SIZE: u16 = 2265;
}

/// One thing that is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Problem {
    /// The number of the problem, one of [`code`].
    pub code: u16,
    /// Where it is, such as `inbound[0].actions[1].config.status_code`.
    pub place: String,
    /// What is wrong, with the limit if there is one.
    pub message: String,
}

/// A path into a document, grown one step at a time.
#[derive(Debug, Clone)]
pub(super) struct DocumentPath(String);

impl DocumentPath {
    /// The place of a field of the document itself.
    pub(super) fn top_level(name: &str) -> Self {
        Self(one_line(name))
    }

    /// The place of a field of what is here.
    pub(super) fn field(&self, name: &str) -> Self {
        Self(format!("{}.{}", self.0, one_line(name)))
    }

    /// The place of an entry of the list that is here.
    pub(super) fn entry(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// A problem with what is here.
    pub(super) fn problem(&self, code: u16, message: impl Into<String>) -> Problem {
        Problem { code, place: self.0.clone(), message: one_line(&message.into()) }
    }
}

/// A text from a document without line breaks, which could forge a line of a log.
fn one_line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}
