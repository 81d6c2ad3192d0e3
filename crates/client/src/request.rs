//! The bytes of a request.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};

use ginnel_api::{Call, Malformed, Verb};
use ginnel_http1::HeadWriter;

use super::ClientSettings;

/// The request for a call, head and body in one.
///
/// # Errors
/// When the target holds what no request line may.
pub(super) fn encode_request(settings: &ClientSettings, call: &Call) -> Result<Vec<u8>, Malformed> {
    if let Some(at) = call.target.bytes().position(|byte| !(0x21..0x7f).contains(&byte)) {
        let problem = format!("must be percent-encoded, and is not at byte {at}");
        return Err(Malformed::new("path", problem));
    }
    let body = call.body.as_deref().unwrap_or_default();
    let (method, prefix) = (call.method.as_str(), settings.target_prefix());
    let head = settings.header_lines();
    let capacity = method.len() + prefix.len() + call.target.len() + head.len() + body.len() + 96;
    let mut request = Vec::with_capacity(capacity);
    let mut writer = HeadWriter::begin_request(method, &[prefix, &call.target], &mut request);
    writer.lines(head);
    if call.body.is_some() {
        writer.field(CONTENT_TYPE, "application/json");
    }
    if matches!(call.method, Verb::POST | Verb::PUT | Verb::PATCH) || !body.is_empty() {
        writer.display_field(CONTENT_LENGTH, body.len());
    }
    writer.end();
    request.extend_from_slice(body);
    Ok(request)
}
