//! Copies of a captured request: to be pasted into a shell, a script or a file.

use std::sync::Arc;

use ginnel_api::mask::{self, CallSide};
use ginnel_content::OutgoingRequest;
use ginnel_content::snippet::{
    SnippetRequest, curl_command, httpie_command, python_script, python_string,
};
use ginnel_http1::CDN_LOOP;
use http::HeaderValue;

use super::view::{call_mask, public_url};
use crate::capture::{CaptureRecord, CapturedMessage};
use crate::inner::AgentInner;
use crate::masked_body::MaskedBody;
use crate::outgoing::replay_connection;

/// The form of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnippetFormat {
    Curl,
    Requests,
    Httpie,
    Ginnel,
    Raw,
    Url,
}

impl SnippetFormat {
    /// The names of all forms.
    pub const NAMES: [(&str, Self); 6] = [
        ("curl", Self::Curl),
        ("requests", Self::Requests),
        ("httpie", Self::Httpie),
        ("ginnel", Self::Ginnel),
        ("raw", Self::Raw),
        ("url", Self::Url),
    ];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
    }

    /// Returns a captured request in this form. `agent` is the address of the agent API.
    pub fn render_request(
        self,
        shared: &AgentInner,
        record: &Arc<CaptureRecord>,
        reveal: bool,
        agent: &str,
    ) -> Snippet {
        let (copy, is_masked) = copy_request(shared, record, reveal);
        let content = match self {
            Self::Curl => curl_command(&copy).into_bytes(),
            Self::Requests => python_script(&copy).into_bytes(),
            Self::Httpie => httpie_command(&copy).into_bytes(),
            Self::Ginnel => ginnel_script(&record.id, agent).into_bytes(),
            Self::Raw => copy.request.to_bytes(replay_connection(&record.source)),
            Self::Url => copy.url().into_bytes(),
        };
        Snippet { content, is_masked: is_masked && self != Self::Ginnel }
    }
}

/// A captured request in another form.
#[derive(Debug)]
pub(super) struct Snippet {
    pub content: Vec<u8>,
    /// If true, secrets are masked in it.
    pub is_masked: bool,
}

/// Returns the request of a record for a copy, with its secrets masked unless they are shown.
///
/// The second value is true if there are masked secrets.
fn copy_request(
    shared: &AgentInner,
    record: &Arc<CaptureRecord>,
    reveal: bool,
) -> (SnippetRequest, bool) {
    let message = record.lock_exchange().request.clone();
    let origin = origin_of(shared, record, &message);
    let mut copy = SnippetRequest {
        origin,
        request: message.to_outgoing(&record.source),
        remarks: Vec::new(),
    };
    // The service that the copy is sent to writes it anew.
    copy.request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(CDN_LOOP.as_str()));
    let masking = if reveal { Vec::new() } else { mask_request(&mut copy.request, &message) };
    let is_masked = !masking.is_empty();
    copy.remarks = masking;
    if message.is_truncated() {
        let (kept, all) = (message.body.len(), message.body_length.max(message.body.len() as u64));
        let remark =
            format!("The body is not whole: {kept} of at least {all} bytes were captured.");
        copy.remarks.push(remark);
    }
    (copy, is_masked)
}

/// Returns scheme and authority of the address that a copy is sent to: the public one, or the one that the request names.
fn origin_of(shared: &AgentInner, record: &CaptureRecord, message: &CapturedMessage) -> String {
    let host = message.find_header("host").unwrap_or_else(|| "localhost".to_owned());
    match public_url(shared, record, "") {
        // The address of a wildcard endpoint is a pattern.
        Some(url) if url.contains('*') => {
            let scheme = url.split_once("://").map_or("http", |(scheme, _)| scheme);
            format!("{scheme}://{host}")
        }
        Some(url) => url,
        None => format!("http://{host}"),
    }
}

/// Masks the secrets of a request. Returns remarks if there are some.
fn mask_request(request: &mut OutgoingRequest, message: &CapturedMessage) -> Vec<String> {
    let target = String::from_utf8_lossy(&request.start_line[1]).into_owned();
    let masked_target = mask::target(&target);
    let mut is_masked = masked_target != target;
    if is_masked {
        request.start_line[1] = masked_target.into_owned().into_bytes();
    }
    for (name, value) in &mut request.headers {
        if let Some(masked) = masked_value(name, value) {
            (*value, is_masked) = (masked, true);
        }
    }
    for (name, value) in &mut request.trailers {
        let masked = masked_value(name.as_str(), value.as_bytes());
        if let Some(masked) = masked.and_then(|masked| HeaderValue::from_bytes(&masked).ok()) {
            (*value, is_masked) = (masked, true);
        }
    }
    let body = message.read_body();
    let shown = MaskedBody::new(&body, &call_mask(message), CallSide::Request, false);
    if let Some(replacement) = shown.replacement {
        // The masked body has no content coding.
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
        (request.body, is_masked) = (replacement, true);
    }
    let mut remarks = Vec::new();
    if shown.is_hidden {
        remarks.push("The body may have secrets and cannot be read: it is left out.".to_owned());
    }
    if is_masked {
        let remark = "Secrets are masked: fill them in, or show secrets and copy again.";
        remarks.push(remark.to_owned());
    }
    remarks
}

/// Returns the masked value of a field, if it has a secret.
fn masked_value(name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(value);
    let masked = mask::header(name, &text);
    (masked != text).then(|| masked.into_owned().into_bytes())
}

/// For Python with ginnel: the agent sends the request again, with its secrets.
fn ginnel_script(id: &str, agent: &str) -> String {
    format!(
        "from ginnel import AgentClient\n\nwith AgentClient({}) as agent:\n    \
         agent.requests.replay({})\n    \
         print(agent.requests.list(limit=1).first())\n",
        python_string(agent),
        python_string(id)
    )
}
