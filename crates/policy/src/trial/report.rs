//! What a trial tells.

use bytes::Bytes;
use http::{HeaderMap, response};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use ginnel_base::logging::or_debug;

use super::Traffic;
use crate::body_replacer::BodyReplacement;
use crate::compression::ResponseCompression;
use crate::exchange::{Content, Exchange, Request, TakenMessage};
use crate::expression::value::value_to_json;
use crate::facts;
use crate::record::RuleTrace;
use crate::verdict::Verdict;

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What the rules decided.
    pub outcome: Outcome,
    /// The action that decided; none where everything goes on.
    pub decision: Option<Decided>,
    /// Every rule that was looked at, and what its actions did.
    pub rules: Vec<RuleTrace>,
    /// The request as the upstream sees it.
    pub request: Option<Sent>,
    /// The response as the visitor sees it.
    pub response: Option<Answered>,
    /// Where `forward-internal` sends it.
    pub forwarded_to: Option<String>,
    /// What `log` actions said.
    pub logs: Vec<Json>,
    /// The variables of the phase that ran last.
    pub vars: Map<String, Json>,
    /// What expressions find under `actions.ngrok`.
    pub actions: Map<String, Json>,
    /// How many expressions were neither true nor false.
    pub failed_expressions: u64,
}

/// What rules decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The upstream gets it.
    Continue,
    /// The visitor gets an answer of the rules.
    Respond,
    /// The connection is closed.
    Close,
    /// Another endpoint gets it.
    Forward,
}

/// The action that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// The phase, as documents call it.
    pub phase: &'static str,
    /// The number of the rule in its phase, from 0.
    pub rule: usize,
    /// The name of the rule; may be empty.
    pub name: String,
    /// The type of the action.
    pub action: &'static str,
}

/// A request as the upstream sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sent {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// Names and values, in no particular order of names.
    pub headers: Vec<(String, String)>,
    /// The body; bytes that are no UTF-8 are replaced.
    pub body: String,
}

/// A response as the visitor sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The number of the error, where the service speaks for itself.
    pub code: Option<u16>,
    /// Names and values, in no particular order of names.
    pub headers: Vec<(String, String)>,
    /// The body before it is compressed.
    pub body: String,
    /// How the body is compressed.
    pub compression: Option<&'static str>,
}

impl Report {
    pub(super) fn from_exchange(
        verdict: Verdict,
        sent: Option<Sent>,
        mut exchange: Exchange,
        traffic: &Traffic,
    ) -> Self {
        let code = exchange.answer_code();
        let compression = exchange.take_compression();
        let response = exchange.take_response();
        let response = response.map(|taken| Answered::new(taken, compression, code, traffic));
        let record = exchange.record;
        let decision = record.decision.as_ref().map(|it| Decided {
            phase: it.phase.name(),
            rule: it.rule,
            name: it.rule_name.clone(),
            action: it.action,
        });
        let vars = record
            .vars
            .iter()
            .map(|(name, value)| (name.clone(), value_to_json(value).unwrap_or(Json::Null)));
        let vars: Map<_, _> = vars.collect();
        Self {
            outcome: verdict_outcome(&verdict),
            decision,
            rules: record.trace.unwrap_or_default(),
            request: sent,
            response,
            forwarded_to: match verdict {
                Verdict::Forward { url } => Some(url),
                _ => None,
            },
            logs: record.logs,
            vars,
            actions: record.results.to_json(),
            failed_expressions: record.failed_expressions,
        }
    }
}

impl Answered {
    fn new(
        taken: TakenMessage<response::Parts>,
        compression: Option<ResponseCompression>,
        code: Option<u16>,
        traffic: &Traffic,
    ) -> Self {
        let TakenMessage { mut head, body, replacements } = taken;
        let body = body_bytes(body, traffic.response_body(), &replacements);
        let coded = compression.and_then(|it| {
            let made = it.compress_whole(&mut head, &body);
            or_debug!(made, "cannot compress a response").flatten()
        });
        Self {
            status: head.status.as_u16(),
            code,
            headers: header_pairs(&head.headers),
            body: String::from_utf8_lossy(&body).into_owned(),
            compression: coded.map(|it| it.coding.name()),
        }
    }
}

impl Sent {
    pub(super) fn from_request(request: &Request, traffic: &Traffic) -> Self {
        let body = body_bytes(request.body.clone(), traffic.request_body(), &request.replacements);
        Self {
            method: request.head.method.to_string(),
            url: facts::full_url(request),
            headers: header_pairs(&request.head.headers),
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}

fn verdict_outcome(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Continue => Outcome::Continue,
        Verdict::Respond(_) => Outcome::Respond,
        Verdict::Close => Outcome::Close,
        Verdict::Forward { .. } => Outcome::Forward,
    }
}

fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// Returns the bytes of a body after the replacements on its way. The body is `original`, unless a rule has made another
/// one. A body that cannot be searched is empty.
fn body_bytes(body: Content, original: Bytes, replacements: &[BodyReplacement]) -> Bytes {
    let body = match body {
        Content::Full(body) => body,
        Content::Passing | Content::TooLong(_) => original,
    };
    replacements.iter().fold(body, |body, replacement| {
        let replaced = replacement.clone().replace_whole(&body);
        or_debug!(replaced, "cannot replace in a body").unwrap_or_default()
    })
}
