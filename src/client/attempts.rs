//! One call: attempts until an answer is worth returning.

use std::io::Read;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;

use super::pool::Pool;
use super::{Answer, Cause, Error, Event, Observer, Settings, What, retry};
use crate::api::{Call, Verb};

/// The largest body that compression may unfold to.
const MAX_UNFOLDED: u64 = 64 << 20;

/// Sends a call, again where that may help, until the deadline.
pub(super) async fn run(
    settings: &Settings,
    pool: &Pool,
    call: Call,
    observer: Option<&Observer<'_>>,
) -> Result<Answer, Error> {
    let started = Instant::now();
    let request = request(settings, &call)?;
    let failed = |cause, attempts| {
        let (method, url) = (call.method.as_str(), settings.origin.url_of(&call.target));
        let url = settings.credentials.mask_text(&url);
        Error::Transport { cause, method, url, attempts }
    };
    let mut attempts = 0;
    loop {
        attempts += 1;
        let left = settings.deadline.map(|deadline| deadline.saturating_sub(started.elapsed()));
        let sent = observer.map(|observer| {
            observer(Event { attempt: attempts, what: What::Sent });
            Instant::now()
        });
        let outcome = attempt(settings, pool, &request, call.method, left).await;
        if let (Some(observer), Some(sent)) = (observer, sent) {
            observer(Event { attempt: attempts, what: ended(&outcome, sent.elapsed()) });
        }
        let repeats = retry::may_repeat(settings.api, call.method);
        let pause = if !repeats || attempts > settings.max_retries {
            None
        } else {
            pause(call.method, &outcome, attempts + 1)
        };
        if let Some(pause) = pause.filter(|pause| fits(*pause, settings.deadline, started)) {
            if let Some(observer) = observer {
                let status = outcome.as_ref().ok().map(|answer| answer.status().as_u16());
                observer(Event { attempt: attempts, what: What::Repeats { status, pause } });
            }
            tokio::time::sleep(pause).await;
            continue;
        }
        return outcome
            .and_then(|response| answer(settings, &call, response, attempts))
            .map_err(|cause| failed(cause, attempts));
    }
}

/// A response as the answer to a call.
fn answer(
    settings: &Settings,
    call: &Call,
    response: Response<Bytes>,
    attempts: u32,
) -> Result<Answer, Cause> {
    let (mut head, body) = response.into_parts();
    // The attempt before this one did it, and its answer was lost.
    if attempts > 1 && call.method == Verb::DELETE && head.status == StatusCode::NOT_FOUND {
        head.status = StatusCode::NO_CONTENT;
    }
    let body = unfold(&head.headers, body).map_err(Cause::Body)?;
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
        attempts,
        method: call.method.as_str(),
        url: settings.origin.url_of(&call.target),
        credentials: settings.credentials.clone(),
    })
}

/// How an attempt ended, for those who want to know.
fn ended(outcome: &Result<Response<Bytes>, Cause>, took: Duration) -> What {
    match outcome {
        Ok(answer) => What::Answered { status: answer.status().as_u16(), took },
        Err(cause) => What::Failed { problem: cause.to_string(), took },
    }
}

/// One attempt, within the limit of an attempt and what is left of the deadline.
async fn attempt(
    settings: &Settings,
    pool: &Pool,
    request: &Request<Full<Bytes>>,
    method: Verb,
    left: Option<Duration>,
) -> Result<Response<Bytes>, Cause> {
    let exchange = pool.exchange(settings, request.clone(), method != Verb::POST);
    let (limit, late) = match (settings.timeout, settings.deadline, left) {
        (None, None, _) | (None, _, None) => return exchange.await,
        (Some(timeout), Some(_), Some(left)) if timeout <= left => {
            (timeout, Cause::Timeout(timeout))
        }
        (_, Some(deadline), Some(left)) => (left, Cause::Deadline(deadline)),
        (Some(timeout), ..) => (timeout, Cause::Timeout(timeout)),
    };
    match tokio::time::timeout(limit, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Err(late),
    }
}

/// How long to wait before attempt `next`; none when there shall be none.
fn pause(method: Verb, outcome: &Result<Response<Bytes>, Cause>, next: u32) -> Option<Duration> {
    match outcome {
        Ok(answer) if retry::may_repeat_status(method, answer.status()) => {
            retry::pause(next, retry::retry_after(answer.headers()))
        }
        Err(cause) if retry::may_repeat_failure(method, cause) => retry::pause(next, None),
        _ => None,
    }
}

fn fits(pause: Duration, deadline: Option<Duration>, started: Instant) -> bool {
    deadline.is_none_or(|deadline| started.elapsed() + pause < deadline)
}

fn request(settings: &Settings, call: &Call) -> Result<Request<Full<Bytes>>, Error> {
    let mut request = Request::new(Full::new(call.body.clone().unwrap_or_default()));
    *request.method_mut() = match call.method {
        Verb::GET => Method::GET,
        Verb::POST => Method::POST,
        Verb::PUT => Method::PUT,
        Verb::PATCH => Method::PATCH,
        Verb::DELETE => Method::DELETE,
    };
    let path = settings.origin.path_of(&call.target);
    *request.uri_mut() = Uri::try_from(path)
        .map_err(|error| crate::api::Malformed::new("path", error.to_string()))
        .map_err(Error::Malformed)?;
    *request.headers_mut() = settings.headers.clone();
    if call.body.is_some() {
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
    }
    Ok(request)
}

/// Undoes the one compression that requests offer to take.
fn unfold(headers: &HeaderMap, body: Bytes) -> Result<Bytes, String> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else { return Ok(body) };
    match encoding.as_bytes() {
        b"identity" => Ok(body),
        b"gzip" | b"x-gzip" => {
            let mut unfolded = Vec::with_capacity(body.len() * 4);
            let read = flate2::read::GzDecoder::new(&body[..])
                .take(MAX_UNFOLDED + 1)
                .read_to_end(&mut unfolded)
                .map_err(|error| format!("its compression is damaged: {error}"))?;
            if read as u64 > MAX_UNFOLDED {
                return Err(format!("it unfolds to more than {} MiB", MAX_UNFOLDED >> 20));
            }
            Ok(unfolded.into())
        }
        other => Err(format!("its encoding {} was not asked for", String::from_utf8_lossy(other))),
    }
}
