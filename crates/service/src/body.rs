//! Reading the body of a request within its limits.

use std::time::Duration;

use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::live::ApiLimits;
use super::{Refusal, Result, code};

use ginnel_base::logging::or_debug;

/// What is read of a body that is too large, so that its sender comes to read the answer.
const DRAINED: usize = 16 * 1024 * 1024;

/// The body of a POST, PUT or PATCH.
pub(super) async fn read_json(
    headers: &HeaderMap,
    body: &mut Incoming,
    limits: &ApiLimits,
) -> Result<Vec<u8>> {
    check_type(headers)?;
    collect_body(headers, body, limits).await
}

/// The body of a POST, PUT or PATCH that has nothing to say in one: none, or an empty object.
pub(super) async fn read_optional(
    headers: &HeaderMap,
    body: &mut Incoming,
    limits: &ApiLimits,
) -> Result<Vec<u8>> {
    if headers.contains_key(header::CONTENT_TYPE) {
        return read_json(headers, body, limits).await;
    }
    let collected = collect_body(headers, body, limits).await?;
    if collected.is_empty() { Ok(collected) } else { check_type(headers).map(|()| collected) }
}

/// Makes sure that a GET or DELETE has no body but perhaps `{}`.
pub(super) async fn expect_empty(
    headers: &HeaderMap,
    body: &mut Incoming,
    limits: &ApiLimits,
) -> Result<()> {
    match collect_body(headers, body, limits).await {
        Ok(body) if matches!(body.trim_ascii(), b"" | b"{}") => Ok(()),
        Err(refusal) if refusal != too_large(limits) => Err(refusal),
        _ => {
            let message = "this operation takes no body";
            Err(Refusal::new(code::UNEXPECTED_BODY, message))
        }
    }
}

/// Reads on what was not needed: a sender who is cut off may never read the answer.
pub(super) async fn drain_body(headers: &HeaderMap, body: &mut Incoming) {
    // Who waits for permission to send has sent nothing.
    if !headers.contains_key(header::EXPECT) {
        let mut left = DRAINED;
        let rest = async {
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, bytes::Bytes::len));
                if left == 0 {
                    return;
                }
            }
        };
        let drained = tokio::time::timeout(Duration::from_secs(2), rest).await;
        or_debug!(drained, "the rest of a request's body did not arrive in time");
    }
}

async fn collect_body(
    headers: &HeaderMap,
    body: &mut Incoming,
    limits: &ApiLimits,
) -> Result<Vec<u8>> {
    if body.is_end_stream() {
        return Ok(Vec::new());
    }
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > limits.max_body.0 as u64) {
        return Err(too_large(limits));
    }
    match tokio::time::timeout(limits.body, collect_frames(body, limits)).await {
        Ok(collected) => collected,
        Err(_) => {
            let message = format!("the body took more than {} seconds", limits.body.as_secs_f64());
            Err(Refusal::new(code::BODY_CUT_SHORT, message))
        }
    }
}

async fn collect_frames(body: &mut Incoming, limits: &ApiLimits) -> Result<Vec<u8>> {
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Refusal::new(code::BODY_CUT_SHORT, "the body ended before its announced length")
        })?;
        let Some(data) = frame.data_ref() else { continue };
        if collected.len() + data.len() > limits.max_body.0 {
            return Err(too_large(limits));
        }
        collected.extend_from_slice(data);
    }
    Ok(collected)
}

fn too_large(limits: &ApiLimits) -> Refusal {
    let message = format!("the body is over its limit of {} bytes", limits.max_body.0);
    Refusal::new(code::BODY_TOO_LARGE, message)
}

/// `application/json`, perhaps with `charset=utf-8`.
fn check_type(headers: &HeaderMap) -> Result<()> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let Some(value) = values.next() else {
        let message = "no Content-Type: send application/json";
        return Err(Refusal::new(code::NO_CONTENT_TYPE, message));
    };
    let is_json = value.to_str().is_ok_and(is_json) && values.next().is_none();
    if is_json {
        return Ok(());
    }
    let message = format!("Content-Type {value:?} is not application/json in UTF-8");
    Err(Refusal::new(code::OTHER_CONTENT_TYPE, message))
}

fn is_json(value: &str) -> bool {
    let mut parts = value.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    media_type.eq_ignore_ascii_case("application/json")
        && parts.filter(|part| !part.is_empty()).all(|part| {
            part.split_once('=').is_some_and(|(name, value)| {
                name.trim().eq_ignore_ascii_case("charset")
                    && value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            })
        })
}
