//! One call as plain state: its attempts, how long each may take, and what follows each.
//!
//! Every driver asks here, so that attempts are counted in one place: a request that was sent again for
//! whatever reason was another attempt. No I/O.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderValue};

use ginnel_api::{Call, Verb, mask};
use ginnel_http1::coding;
use ginnel_http1::reuse::IdleState;
use ginnel_http1::{self as http1, Response};

use super::connection::MAX_BODY_BYTES;
use super::pool::ReuseRequirements;
use super::rate::RateLimitSlot;
use super::time_limit::{TimeLimit, TimeLimitKind};
use super::{
    ApiResponse, CallEvent, CallEventKind, Cause, ClientSettings, Error, EventFilter,
    RecordedResponse, request, retry,
};

/// A call under way.
pub(super) struct Attempts {
    settings: Arc<ClientSettings>,
    call: Call,
    request: Vec<u8>,
    started: Instant,
    /// When the attempt began.
    attempt_started: Instant,
    attempt: u32,
    /// The slot of the rate limit that waits for its time.
    rate_limit_slot: Option<RateLimitSlot>,
    /// Whether the client was closed.
    is_closed: Arc<AtomicBool>,
    /// Whether the server may have acted on an attempt before this one.
    may_have_acted: bool,
    /// Whether the attempt uses a connection that carried another request.
    is_reusing: bool,
    /// Whether the attempt before this one was lost with its connection.
    needs_new_connection: bool,
}

/// What follows an attempt.
pub(super) enum RetryDecision {
    /// Another one, after a pause.
    Retry(Duration),
    /// Nothing: this is the outcome.
    Done(Result<ApiResponse, Error>),
}

impl Attempts {
    /// A call of which nothing was sent.
    ///
    /// # Errors
    /// When no request can be made of it.
    pub fn new(
        settings: Arc<ClientSettings>,
        call: Call,
        is_closed: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let request = request::encode_request(&settings, &call).map_err(Error::Malformed)?;
        let started = Instant::now();
        Ok(Self {
            settings,
            call,
            request,
            started,
            attempt_started: started,
            attempt: 0,
            rate_limit_slot: None,
            is_closed,
            may_have_acted: false,
            is_reusing: false,
            needs_new_connection: false,
        })
    }

    /// What the call was made with.
    pub fn settings(&self) -> &Arc<ClientSettings> {
        &self.settings
    }

    /// What is sent.
    pub fn request_bytes(&self) -> &[u8] {
        &self.request
    }

    /// What the attempt needs of a connection that was used before.
    pub fn reuse_requirements(&self) -> ReuseRequirements<'_> {
        ReuseRequirements {
            ban: &self.settings.reuse_ban,
            may_reuse: !self.needs_new_connection,
            must_be_recent: self.call.method == Verb::POST,
        }
    }

    /// Notes whether the attempt uses a connection that carried another request.
    pub fn record_reuse(&mut self, is_reusing: bool) {
        self.is_reusing = is_reusing;
    }

    /// Whether a connection may carry another request after an answer; surplus bans that for a while.
    pub fn permits_reuse(&self, has_surplus: bool) -> bool {
        let state = if has_surplus { IdleState::Surplus } else { IdleState::Quiet };
        self.settings.reuse_ban.permits_reuse(state)
    }

    /// Takes the next slot of the client's rate limit; gives how long it is until then.
    ///
    /// # Errors
    /// When that is longer than the call may take.
    pub fn reserve_slot(&mut self) -> Result<Option<Duration>, Cause> {
        let Some(limit) = &self.settings.rate_limit else { return Ok(None) };
        let (now, deadline) = (Instant::now(), self.settings.deadline);
        let latest = deadline.and_then(|deadline| self.started.checked_add(deadline));
        let duration = deadline.unwrap_or_default();
        let rate_limit_slot = limit.reserve_slot(now, latest);
        let rate_limit_slot =
            rate_limit_slot.map_err(|pause| Cause::RateLimit { pause, deadline: duration })?;
        let pause = rate_limit_slot.time.saturating_duration_since(now);
        self.rate_limit_slot = Some(rate_limit_slot);
        Ok(Some(pause).filter(|pause| !pause.is_zero()))
    }

    /// Begins the next attempt.
    ///
    /// # Errors
    /// When the client was closed meanwhile.
    pub fn begin_attempt(&mut self) -> Result<CallEvent, Error> {
        if self.is_closed.load(Acquire) {
            return Err(Error::Closed);
        }
        let rate_limit_slot = self.rate_limit_slot.take();
        if self.attempt > 0 || rate_limit_slot.is_some() {
            self.attempt_started = Instant::now();
        }
        if let Some(rate_limit_slot) = rate_limit_slot {
            rate_limit_slot.consume();
        }
        self.attempt += 1;
        Ok(self.call_event(CallEventKind::Sent))
    }

    /// Until when the attempt may take, if there is a limit.
    pub fn time_limit(&self) -> Option<TimeLimit> {
        self.limit_from(self.attempt_started)
    }

    /// The same for an attempt that has made progress at that time.
    pub fn limit_from(&self, start: Instant) -> Option<TimeLimit> {
        let attempt = self
            .settings
            .timeout
            .and_then(|duration| TimeLimit::new(start, duration, TimeLimitKind::Attempt));
        let call = self
            .settings
            .deadline
            .and_then(|duration| TimeLimit::new(self.started, duration, TimeLimitKind::Call));
        match (attempt, call) {
            (Some(attempt), Some(call)) => {
                Some(if attempt.time <= call.time { attempt } else { call })
            }
            (attempt, call) => attempt.or(call),
        }
    }

    /// Ends the attempt; what happened is put behind `events`, as far as it is of filter.
    pub fn end_attempt(
        &mut self,
        outcome: Result<Response, Cause>,
        filter: Option<EventFilter>,
        events: &mut Vec<CallEvent>,
    ) -> RetryDecision {
        let pause = self.retry_pause(&outcome);
        if filter == Some(EventFilter::All) {
            events.push(self.call_event(self.end_event(&outcome)));
        }
        if let Some(pause) = pause.filter(|_| filter.is_some()) {
            let status = outcome.as_ref().ok().map(|response| response.status);
            events.push(self.call_event(CallEventKind::Repeats { status, pause }));
        }
        let Some(pause) = pause else { return RetryDecision::Done(self.finish_call(outcome)) };
        self.may_have_acted |= match &outcome {
            Ok(response) => response.status != 429,
            Err(cause) => !cause.is_unsent(),
        };
        self.needs_new_connection = outcome.as_ref().is_err_and(Cause::is_broken);
        RetryDecision::Retry(pause)
    }

    /// Whether the client was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// The outcome of a call whose next attempt cannot begin.
    pub fn fail_call(&mut self, cause: Cause) -> Result<ApiResponse, Error> {
        self.finish_call(Err(cause))
    }

    /// The answer that was recorded, as that to one attempt that was not made.
    pub fn replay_response(
        mut self,
        recorded: RecordedResponse,
        mut notify: impl FnMut(CallEvent),
    ) -> Result<ApiResponse, Error> {
        notify(self.begin_attempt()?);
        let outcome = Ok(Response::new(recorded.status, &recorded.headers, recorded.body));
        notify(self.call_event(self.end_event(&outcome)));
        self.finish_call(outcome)
    }

    fn call_event(&self, kind: CallEventKind) -> CallEvent {
        CallEvent { attempt: self.attempt, kind }
    }

    /// How the attempt ended, for those who want to know.
    fn end_event(&self, outcome: &Result<Response, Cause>) -> CallEventKind {
        let elapsed = self.attempt_started.elapsed();
        match outcome {
            Ok(response) => {
                let mut headers = response.to_header_map();
                self.settings.credentials.mask_headers(&mut headers);
                mask_secret_headers(&mut headers);
                CallEventKind::Answered { status: response.status, elapsed, headers }
            }
            Err(cause) => {
                let problem = self.settings.credentials.mask_text(&cause.to_string());
                CallEventKind::Failed { problem, elapsed }
            }
        }
    }

    /// How long to wait before the next attempt; none when there shall be none.
    fn retry_pause(&self, outcome: &Result<Response, Cause>) -> Option<Duration> {
        let method = self.call.method;
        let repeats = retry::may_repeat(self.settings.api, method);
        if !repeats || self.attempt > self.settings.max_retries {
            return None;
        }
        let pause = match outcome {
            Ok(response) if retry::may_repeat_status(method, response.status) => {
                retry::backoff_pause(
                    self.attempt + 1,
                    http1::retry_after(response.field_values("retry-after").next()),
                )
            }
            // The server may have closed it while it was idle: that says nothing of the server.
            Err(cause) if retry::may_repeat_failure(method, cause) => match self.is_reusing {
                true if cause.is_broken() => Some(Duration::ZERO),
                _ => retry::backoff_pause(self.attempt + 1, None),
            },
            _ => None,
        };
        pause.filter(|pause| {
            let deadline = self.settings.deadline;
            deadline.is_none_or(|deadline| self.started.elapsed() + *pause < deadline)
        })
    }

    fn finish_call(&mut self, outcome: Result<Response, Cause>) -> Result<ApiResponse, Error> {
        outcome.and_then(|response| self.build_response(response)).map_err(|cause| {
            Error::Transport {
                cause: match cause {
                    // It may repeat what the server wrote.
                    Cause::Body(problem) => Cause::Body(self.settings.redact_text(&problem)),
                    cause => cause,
                },
                method: self.call.method.as_str(),
                url: self.settings.redact_text(&self.settings.origin.url_of(&self.call.target)),
                attempts: self.attempt,
            }
        })
    }

    fn build_response(&mut self, mut response: Response) -> Result<ApiResponse, Cause> {
        // An attempt before this one did it, and its answer was lost.
        if self.may_have_acted && self.call.method == Verb::DELETE && response.status == 404 {
            response.status = 204;
        }
        let bodyless = matches!(response.status, 204 | 304);
        if response.is_coded && !bodyless && !response.body().is_empty() {
            decode_body(&mut response)?;
        }
        Ok(ApiResponse {
            response,
            attempts: self.attempt,
            elapsed: self.started.elapsed(),
            method: self.call.method.as_str(),
            target: std::mem::take(&mut self.call.target),
            settings: Arc::clone(&self.settings),
        })
    }
}

/// Masks what is secret by its name, such as a cookie.
fn mask_secret_headers(headers: &mut HeaderMap) {
    for (name, value) in headers.iter_mut() {
        let shown = String::from_utf8_lossy(value.as_bytes());
        if let Cow::Owned(masked) = mask::header(name.as_str(), &shown)
            && let Ok(masked) = HeaderValue::from_str(&masked)
        {
            *value = masked;
        }
    }
}

/// Undoes the coding of a body. An error whose coding nobody knows is still that error.
fn decode_body(response: &mut Response) -> Result<(), Cause> {
    let codings = response.field_values("content-encoding");
    let decoded = match coding::decode_body(codings, response.body(), MAX_BODY_BYTES) {
        Ok(Cow::Borrowed(_)) => return Ok(()),
        Ok(Cow::Owned(body)) => Ok(body),
        Err(problem) => Err(problem),
    };
    match decoded {
        Ok(body) => response.replace_body(body),
        Err(problem) if problem.is_unsupported() && response.status >= 400 => {
            response.replace_body(Vec::new());
        }
        Err(problem) => return Err(Cause::Body(problem.to_string())),
    }
    Ok(())
}
