//! One call as plain state: its attempts, how long each may take, and what follows each.
//!
//! Every driver asks here, so that attempts are counted in one place: a request that was sent again for
//! whatever reason was another attempt. No I/O.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderValue};

use super::pool::Needs;
use super::rate::Slot;
use super::{Answer, Cause, Error, Event, EventFilter, Recorded, Settings, What, request, retry};
use crate::api::{Call, Verb, mask};
use crate::coding;
use crate::http1::Response;
use crate::reuse::IdleState;

/// The largest body that a client takes, as it came and with its coding undone, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;

/// A call under way.
pub(super) struct Attempts {
    settings: Arc<Settings>,
    call: Call,
    request: Vec<u8>,
    started: Instant,
    /// When the attempt began.
    begun: Instant,
    attempt: u32,
    /// The slot of the rate limit that waits for its time.
    slot: Option<Slot>,
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
pub(super) enum Next {
    /// Another one, after a pause.
    Again(Duration),
    /// Nothing: this is the outcome.
    Done(Result<Answer, Error>),
}

/// When a wait is over, and what that means then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub at: Instant,
    kind: LimitKind,
    lasts: Duration,
}

#[derive(Debug, Clone, Copy)]
enum LimitKind {
    Attempt,
    Call,
}

impl Limit {
    /// What went wrong when it is over; nothing was sent when there is no connection yet.
    pub fn cause(&self, is_connected: bool) -> Cause {
        match self.kind {
            LimitKind::Call => Cause::Deadline(self.lasts),
            LimitKind::Attempt if is_connected => Cause::Timeout(self.lasts),
            LimitKind::Attempt => Cause::ConnectTimeout(self.lasts),
        }
    }

    /// How much time is left.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

impl Attempts {
    /// A call of which nothing was sent.
    ///
    /// # Errors
    /// When no request can be made of it.
    pub fn new(
        settings: Arc<Settings>,
        call: Call,
        is_closed: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let request = request::encode(&settings, &call).map_err(Error::Malformed)?;
        let started = Instant::now();
        Ok(Self {
            settings,
            call,
            request,
            started,
            begun: started,
            attempt: 0,
            slot: None,
            is_closed,
            may_have_acted: false,
            is_reusing: false,
            needs_new_connection: false,
        })
    }

    /// What the call was made with.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// What is sent.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// What the attempt needs of a connection that was used before.
    pub fn needs(&self) -> Needs<'_> {
        Needs {
            ban: &self.settings.reuse_ban,
            may_reuse: !self.needs_new_connection,
            must_be_fresh: self.call.method == Verb::POST,
        }
    }

    /// Notes whether the attempt uses a connection that carried another request.
    pub fn reuse(&mut self, is_reusing: bool) {
        self.is_reusing = is_reusing;
    }

    /// Whether a connection may carry another request after an answer; surplus bans that for a while.
    pub fn permits_reuse(&self, has_surplus: bool) -> bool {
        let state = if has_surplus { IdleState::Surplus } else { IdleState::Quiet };
        self.settings.reuse_ban.permits(state)
    }

    /// Takes the next slot of the client's rate limit; gives how long it is until then.
    ///
    /// # Errors
    /// When that is longer than the call may take.
    pub fn reserve(&mut self) -> Result<Option<Duration>, Cause> {
        let Some(limit) = &self.settings.rate_limit else { return Ok(None) };
        let (now, deadline) = (Instant::now(), self.settings.deadline);
        let latest = deadline.and_then(|deadline| self.started.checked_add(deadline));
        let lasts = deadline.unwrap_or_default();
        let slot = limit.reserve(now, latest);
        let slot = slot.map_err(|pause| Cause::RateLimit { pause, deadline: lasts })?;
        let pause = slot.at.saturating_duration_since(now);
        self.slot = Some(slot);
        Ok(Some(pause).filter(|pause| !pause.is_zero()))
    }

    /// Begins the next attempt.
    ///
    /// # Errors
    /// When the client was closed meanwhile.
    pub fn begin(&mut self) -> Result<Event, Error> {
        if self.is_closed.load(Acquire) {
            return Err(Error::Closed);
        }
        let slot = self.slot.take();
        if self.attempt > 0 || slot.is_some() {
            self.begun = Instant::now();
        }
        if let Some(slot) = slot {
            slot.spend();
        }
        self.attempt += 1;
        Ok(self.event(What::Sent))
    }

    /// Until when the attempt may take, if there is a limit.
    pub fn limit(&self) -> Option<Limit> {
        let limit = |from: Instant, lasts: Duration, kind| {
            Some(Limit { at: from.checked_add(lasts)?, kind, lasts })
        };
        let attempt =
            self.settings.timeout.and_then(|lasts| limit(self.begun, lasts, LimitKind::Attempt));
        let call =
            self.settings.deadline.and_then(|lasts| limit(self.started, lasts, LimitKind::Call));
        match (attempt, call) {
            (Some(attempt), Some(call)) => Some(if attempt.at <= call.at { attempt } else { call }),
            (attempt, call) => attempt.or(call),
        }
    }

    /// Ends the attempt; what happened is put behind `events`, as far as it is of filter.
    pub fn end(
        &mut self,
        outcome: Result<Response, Cause>,
        filter: Option<EventFilter>,
        events: &mut Vec<Event>,
    ) -> Next {
        let pause = self.pause(&outcome);
        if filter == Some(EventFilter::All) {
            events.push(self.event(self.ended(&outcome)));
        }
        if let Some(pause) = pause.filter(|_| filter.is_some()) {
            let status = outcome.as_ref().ok().map(|response| response.status);
            events.push(self.event(What::Repeats { status, pause }));
        }
        let Some(pause) = pause else { return Next::Done(self.done(outcome)) };
        self.may_have_acted |= match &outcome {
            Ok(response) => response.status != 429,
            Err(cause) => !cause.is_unsent(),
        };
        self.needs_new_connection = outcome.as_ref().is_err_and(Cause::is_broken);
        Next::Again(pause)
    }

    /// Whether the client was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// The outcome of a call whose next attempt cannot begin.
    pub fn give_up(&mut self, cause: Cause) -> Result<Answer, Error> {
        self.done(Err(cause))
    }

    /// The answer that was recorded, as that to one attempt that was not made.
    pub fn replay(
        mut self,
        recorded: Recorded,
        mut tell: impl FnMut(Event),
    ) -> Result<Answer, Error> {
        tell(self.begin()?);
        let outcome = Ok(Response::new(recorded.status, &recorded.headers, recorded.body));
        tell(self.event(self.ended(&outcome)));
        self.done(outcome)
    }

    fn event(&self, what: What) -> Event {
        Event { attempt: self.attempt, what }
    }

    /// How the attempt ended, for those who want to know.
    fn ended(&self, outcome: &Result<Response, Cause>) -> What {
        let took = self.begun.elapsed();
        match outcome {
            Ok(response) => {
                let mut headers = response.headers();
                self.settings.credentials.mask_headers(&mut headers);
                mask_secrets(&mut headers);
                What::Answered { status: response.status, took, headers }
            }
            Err(cause) => {
                let problem = self.settings.credentials.mask_text(&cause.to_string());
                What::Failed { problem, took }
            }
        }
    }

    /// How long to wait before the next attempt; none when there shall be none.
    fn pause(&self, outcome: &Result<Response, Cause>) -> Option<Duration> {
        let method = self.call.method;
        let repeats = retry::may_repeat(self.settings.api, method);
        if !repeats || self.attempt > self.settings.max_retries {
            return None;
        }
        let pause = match outcome {
            Ok(response) if retry::may_repeat_status(method, response.status) => retry::pause(
                self.attempt + 1,
                retry::retry_after(response.values("retry-after").next()),
            ),
            // The server may have closed it while it was idle: that says nothing of the server.
            Err(cause) if retry::may_repeat_failure(method, cause) => match self.is_reusing {
                true if cause.is_broken() => Some(Duration::ZERO),
                _ => retry::pause(self.attempt + 1, None),
            },
            _ => None,
        };
        pause.filter(|pause| {
            let deadline = self.settings.deadline;
            deadline.is_none_or(|deadline| self.started.elapsed() + *pause < deadline)
        })
    }

    fn done(&mut self, outcome: Result<Response, Cause>) -> Result<Answer, Error> {
        outcome.and_then(|response| self.answer(response)).map_err(|cause| Error::Transport {
            cause: match cause {
                // It may repeat what the server wrote.
                Cause::Body(problem) => Cause::Body(self.settings.redacted(&problem)),
                cause => cause,
            },
            method: self.call.method.as_str(),
            url: self.settings.redacted(&self.settings.origin.url_of(&self.call.target)),
            attempts: self.attempt,
        })
    }

    fn answer(&mut self, mut response: Response) -> Result<Answer, Cause> {
        // An attempt before this one did it, and its answer was lost.
        if self.may_have_acted && self.call.method == Verb::DELETE && response.status == 404 {
            response.status = 204;
        }
        let bodyless = matches!(response.status, 204 | 304);
        if response.is_coded && !bodyless && !response.body().is_empty() {
            decode(&mut response)?;
        }
        Ok(Answer {
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
fn mask_secrets(headers: &mut HeaderMap) {
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
fn decode(response: &mut Response) -> Result<(), Cause> {
    let codings = response.values("content-encoding");
    let decoded = match coding::decode(codings, response.body(), MAX_BODY_BYTES) {
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
