//! Logins of visitors: what an action asks is answered here, with the help of the issuer.
//!
//! A session is in the cookies of its visitor, sealed (`seal`) with a key that all nodes of a database
//! share: so a reload, a restart and another node change nothing about it. That there is one is stored
//! where all nodes find it (`records`), and it ends when that is removed; `live_sessions` keeps what was
//! looked up there. What a node remembers itself is in `memory`, bounded: which logins have ended here, and
//! what issuers have said lately of sessions. `issuer` talks to issuers, `tokens` reads what they say,
//! `steps` takes visitors through a login, and `renewal` asks again while a session lasts.
//!
//! Own code, because `openidconnect` 4.1 could replace only `issuer`, `tokens` and the check of ID tokens, about 530 of
//! 2,200 lines, and adds 74 packages to 347. Among them are a second implementation of elliptic curves and two versions
//! of `jiff`. Sessions, cookies, renewals, limits of calls to an issuer and providers without OpenID Connect remain.

mod attempts;
mod failures;
mod github;
mod issuer;
mod live_sessions;
mod memory;
mod metrics;
pub mod records;
mod renewal;
mod seal;
mod session;
mod steps;
mod tokens;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arc_swap::ArcSwap;

use chrono::{DateTime, Utc};
use http::header::{CACHE_CONTROL, VARY, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use serde_json::json;

use ginnel_http1::{RequestHead, is_identity};
use ginnel_net::Reach;
use ginnel_policy::login::{self as cookies, Admission, LoginOutcome, LoginRequest, VisitKind};

use crate::login::attempts::AttemptLookups;
use crate::login::failures::{
    LastFailure, RECORD_TIMEOUT, create_with_timeout, with_record_timeout,
};
use crate::login::issuer::{Issuer, Issuers, LoginError, LoginResult};
use crate::login::live_sessions::LiveSessions;
use crate::login::memory::Memory;
use crate::login::metrics::LoginCounts;
use crate::login::records::{
    LoginActivity, LoginRecords, LoginRecordsError, NewLoginSession, RecordFuture,
};
use crate::login::renewal::Renewal;
use crate::login::seal::Seal;
use crate::login::session::{LoginSession, LoginSessionEnd, whole_seconds};
use crate::message::BoxFuture;
use crate::message::request_services::{LoginPlace, VisitorLogins};
use crate::published::Fetcher;
use crate::published::KeySets;

const NEEDS_TLS: (StatusCode, u16, &str) = (
    StatusCode::FORBIDDEN,
    3443,
    "Logins need HTTPS: the cookie of a session would be open to everybody on the way.",
);
const OTHER_DOMAIN: (StatusCode, u16, &str) = (
    StatusCode::INTERNAL_SERVER_ERROR,
    3444,
    "The auth_cookie_domain of the policy is no domain of this host.",
);

/// What all logins of a gateway share.
pub struct Logins {
    seal: Seal,
    issuers: Issuers,
    memory: Memory,
    attempts: AttemptLookups,
    sessions: LiveSessions,
    counts: LoginCounts,
    /// When something could not be stored last.
    unstored: LastFailure,
    /// None where nobody stores sessions: nobody can log in there.
    records: ArcSwap<Option<Arc<dyn LoginRecords>>>,
    /// Tells logins from each other.
    hasher: RandomState,
}

impl VisitorLogins for Arc<Logins> {
    fn answer_login<'a>(
        &'a self,
        request: LoginRequest,
        reach: Reach,
        place: &'a (dyn Fn() -> LoginPlace + Send + Sync),
    ) -> BoxFuture<'a, LoginOutcome> {
        Box::pin(self.authenticate_request(request, reach, place))
    }
}

impl Logins {
    /// Logins whose cookies are sealed with a key.
    pub fn new(key: ring::hkdf::Prk, fetcher: Arc<Fetcher>, key_sets: Arc<KeySets>) -> Arc<Self> {
        Arc::new(Self {
            seal: Seal(key),
            issuers: Issuers::new(fetcher, key_sets),
            memory: Memory::default(),
            attempts: AttemptLookups::default(),
            sessions: LiveSessions::default(),
            counts: LoginCounts::default(),
            unstored: LastFailure::default(),
            records: ArcSwap::from_pointee(None),
            hasher: RandomState::new(),
        })
    }

    /// The issuer of a login; where a provider is that is called by its name, the operator has said.
    fn issuer_for_request(&self, request: &LoginRequest, reach: Reach) -> Arc<Issuer> {
        let config = &request.config;
        match config.named {
            Some(_) => self.issuers.for_provider(&config.provider, Reach::Any, None),
            None => self.issuers.for_provider(&config.provider, reach, Some(&request.owner)),
        }
    }

    /// Says where sessions are stored.
    pub fn set_records(&self, records: Arc<dyn LoginRecords>) {
        self.records.store(Arc::new(Some(records)));
    }

    /// Forgets what is known of sessions that have changed; of all where nobody knows which.
    pub fn forget_changed(&self, session_ids: Option<&[String]>) {
        self.sessions.forget_changed(session_ids);
    }

    /// The requests of sessions that are to be stored; `all` with those that could still wait.
    pub fn due_activity(&self, all: bool) -> Vec<LoginActivity> {
        self.sessions.due_activity(Utc::now().timestamp(), all)
    }

    /// Notes that these requests are stored.
    pub fn activity_stored(&self, activity: &[LoginActivity]) {
        self.sessions.activity_stored(activity);
    }

    /// Removes the sessions that have ended here, and could not be removed then.
    pub async fn remove_ended(&self) -> Result<(), LoginRecordsError> {
        for session_id in self.sessions.ended_here() {
            self.remove_session(&session_id).await?;
        }
        Ok(())
    }

    async fn authenticate_request(
        self: &Arc<Self>,
        request: LoginRequest,
        reach: Reach,
        place: &(dyn Fn() -> LoginPlace + Send + Sync),
    ) -> LoginOutcome {
        let issuer = self.issuer_for_request(&request, reach);
        let visit = &request.visit;
        if !visit.may_have_cookies() {
            return refused_outcome(NEEDS_TLS);
        }
        if let Some(domain) = &request.config.cookie_domain
            && !is_within(&visit.host, domain)
        {
            return refused_outcome(OTHER_DOMAIN);
        }
        let answered = match visit.kind {
            VisitKind::Login => self.begin_login(&request, &issuer, ("/", true), None).await,
            VisitKind::Logout => self.log_out(&request).await,
            VisitKind::Callback => {
                let finished = self.finish_login(&request, &issuer, place()).await;
                self.counts.count_outcome(&finished);
                finished
            }
            VisitKind::Navigation | VisitKind::Call => self.check_session(&request, &issuer).await,
        };
        answered.unwrap_or_else(|error| failed_outcome(&request, &error))
    }

    /// Lets somebody with a session in, and sends others to log in.
    async fn check_session(
        self: &Arc<Self>,
        request: &LoginRequest,
        issuer: &Arc<Issuer>,
    ) -> LoginResult<LoginOutcome> {
        let now = Utc::now();
        let end = match self.load_session(request, now) {
            Ok(session) if self.is_live(request, &session.id).await? => {
                match self.renew_if_due(request, issuer, session.clone(), now).await {
                    Ok(Some((renewed, is_refreshed))) => {
                        // It may have ended while the issuer was asked.
                        if !is_refreshed || self.is_live(request, &renewed.id).await? {
                            return self.admit_visitor(request, renewed, is_refreshed, now);
                        }
                        None
                    }
                    Ok(None) => None,
                    Err(error) => return Ok(self.failed_renewal(request, &session, &error)),
                }
            }
            Ok(_) => None,
            Err(end) => end,
        };
        match request.visit.kind {
            VisitKind::Navigation => {
                self.begin_login(request, issuer, (&request.visit.target, false), end).await
            }
            _ => Ok(unauthorized_outcome(request, end)),
        }
    }

    /// The session of a request, as it is known best; else how it has ended, if there was one.
    fn load_session(
        &self,
        request: &LoginRequest,
        now: DateTime<Utc>,
    ) -> Result<LoginSession, Option<LoginSessionEnd>> {
        let session = LoginSession::from_cookies(&self.seal, request).ok_or(None)?;
        // A tab that has been open for long may have older cookies.
        let session = self.memory.renewals.newer_session(&session).unwrap_or(session);
        match session.end_reason(&request.config, now) {
            Some(end) => Err(Some(end)),
            None => Ok(session),
        }
    }

    /// The session after its issuer was asked again, where that is due; none when it has ended by that.
    async fn renew_if_due(
        self: &Arc<Self>,
        request: &LoginRequest,
        issuer: &Arc<Issuer>,
        session: LoginSession,
        now: DateTime<Utc>,
    ) -> LoginResult<Option<(LoginSession, bool)>> {
        if !session.is_due(&request.config, now) {
            return Ok(Some((session, false)));
        }
        match Renewal::for_request(request, (issuer.clone(), self.login_hash(request)))
            .renew_session(self, session)
            .await
        {
            Ok(session) => Ok(Some((session, true))),
            Err(LoginError::Ended) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a session is stored, and so has not ended.
    async fn is_live(&self, request: &LoginRequest, session_id: &str) -> LoginResult<bool> {
        let (login, records) = (self.login_hash(request), self.session_records()?);
        Ok(self.sessions.is_live((login, session_id), records.as_ref()).await?)
    }

    /// Ends a session of a login on all nodes; on this one also if it cannot be removed at the moment.
    async fn end_session(&self, (login, session_id): (u32, &str)) -> Result<(), LoginRecordsError> {
        self.sessions.mark_ended_here(login, session_id);
        self.memory.renewals.forget_session(session_id);
        self.remove_session(session_id).await
    }

    async fn remove_session(&self, session_id: &str) -> Result<(), LoginRecordsError> {
        let records = self.session_records()?;
        self.await_store(records.remove_session(session_id)).await?;
        self.sessions.mark_removed(session_id);
        Ok(())
    }

    fn session_records(&self) -> Result<Arc<dyn LoginRecords>, LoginRecordsError> {
        let records = self.records.load();
        let missing = || LoginRecordsError("nobody stores sessions here".to_owned());
        records.as_ref().clone().ok_or_else(missing)
    }

    /// Stores a session; its identifier, or none where its login has made one before.
    async fn create_session(
        &self,
        records: Arc<dyn LoginRecords>,
        new: NewLoginSession,
    ) -> Result<Option<String>, LoginRecordsError> {
        let created = create_with_timeout(records, new, RECORD_TIMEOUT).await;
        created.inspect_err(|error| self.unstored.record_failure("stored", error))
    }

    /// What comes of storing something, unless it takes too long. Where that fails, sessions may still be looked
    /// up: other visitors do not wait for those who log in.
    async fn await_store<T>(&self, stored: RecordFuture<'_, T>) -> Result<T, LoginRecordsError> {
        let result = with_record_timeout(stored).await;
        result.inspect_err(|error| self.unstored.record_failure("stored", error))
    }

    /// Whose a session is among those who share the memory of a node: the login's of an owner. A visitor may have
    /// a say in the client's name.
    fn login_hash(&self, request: &LoginRequest) -> u32 {
        self.hasher.hash_one((&request.config.document_hash, &request.owner)) as u32
    }

    /// Says why nobody is let in, with what the issuer has given before it failed: an older refresh token
    /// may be good no more.
    fn failed_renewal(
        &self,
        request: &LoginRequest,
        session: &LoginSession,
        error: &LoginError,
    ) -> LoginOutcome {
        let mut outcome = failed_outcome(request, error);
        if let LoginOutcome::Answered { response, .. } = &mut outcome
            && let Some(newer) = self.memory.renewals.newer_session(session)
            && let Err(error) = newer.write_cookies(&self.seal, request, &mut response.headers)
        {
            tracing::warn!(err = %error, "what an issuer has given is not kept");
        }
        outcome
    }

    fn admit_visitor(
        &self,
        request: &LoginRequest,
        mut session: LoginSession,
        is_refreshed: bool,
        now: DateTime<Utc>,
    ) -> LoginResult<LoginOutcome> {
        let is_stale =
            session.is_stale || is_refreshed || session.is_record_due(&request.config, now);
        let mut headers = HeaderMap::new();
        if is_stale {
            session.record_request(now.timestamp_millis());
            session.write_cookies(&self.seal, request, &mut headers)?;
        }
        let config = &request.config;
        let [left, idle] = [session.time_left(config, now), config.idle_timeout].map(whole_seconds);
        self.sessions.record_request(&session.id, (now.timestamp(), left, idle));
        let expires_at = session.expires_at(config, now);
        Ok(LoginOutcome::Admitted(Box::new(Admission {
            identity: session.identity,
            session_id: session.id,
            id_token: session.id_token,
            access_token: session.access_token,
            refresh_token: session.refresh_token,
            expires_at,
            is_refreshed,
            headers,
        })))
    }
}

/// Says to a visitor why they are not let in, and to the operator what they can do something about: anybody
/// may bring a login that has not begun.
fn failed_outcome(request: &LoginRequest, error: &LoginError) -> LoginOutcome {
    let (client_id, host) = (&request.client_id, &request.visit.host);
    match error {
        // That nothing can be stored is logged once for all.
        LoginError::UnknownLogin | LoginError::Ended | LoginError::Records(_) => {
            tracing::debug!(client_id, host, err = %error, "a login failed");
        }
        _ => tracing::warn!(client_id, host, err = %error, "a login failed"),
    }
    refused_outcome(error.response_parts())
}

fn is_within(host: &str, domain: &str) -> bool {
    host == domain || host.strip_suffix(domain).is_some_and(|name| name.ends_with('.'))
}

fn refused_outcome((status, code, sentence): (StatusCode, u16, &'static str)) -> LoginOutcome {
    let mut outcome = LoginOutcome::refused(status, code, sentence);
    if let LoginOutcome::Answered { response, .. } = &mut outcome
        && status == StatusCode::SERVICE_UNAVAILABLE
    {
        response.headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    outcome
}

/// Says to a program that it must log in, which only a browser can.
fn unauthorized_outcome(request: &LoginRequest, end: Option<LoginSessionEnd>) -> LoginOutcome {
    let sentence = "You must log in: open this address in a browser.";
    let mut outcome = LoginOutcome::refused(StatusCode::UNAUTHORIZED, 3445, sentence);
    if let LoginOutcome::Answered { response, result } = &mut outcome {
        let challenge = format!(
            "Cookie realm=\"{}\", form-action=\"{}\"",
            request.visit.host.replace(['"', '\\'], ""),
            request.config.login_path()
        );
        if let Ok(challenge) = HeaderValue::try_from(challenge) {
            response.headers.insert(WWW_AUTHENTICATE, challenge);
        }
        response.headers.insert(VARY, HeaderValue::from_static("Cookie"));
        result["session_timed_out"] = json!(end == Some(LoginSessionEnd::Idle));
        result["session_max_duration_reached"] = json!(end == Some(LoginSessionEnd::MaxDuration));
    }
    outcome
}

/// Takes the cookies of logins out of a request: those who check them find them, and no upstream does.
pub fn withhold_cookies<B>(request: &mut Request<B>) {
    if let Some(cookies) = cookies::withhold_cookies(request.headers_mut()) {
        request.extensions_mut().insert(cookies);
    }
}

/// Whether a request carries what no upstream may see: cookies of logins, and who its visitor claims to be.
pub fn is_carried_by(head: &RequestHead<'_, '_>) -> bool {
    head.fields.iter().any(|field| {
        is_identity(field.name.as_bytes())
            || field.name.eq_ignore_ascii_case("cookie") && cookies::has_login_cookie(field.value)
    })
}

/// Adds to a response what a login says: cookies, and that nobody else may be shown it.
pub fn mark_private(headers: &mut HeaderMap, login: &HeaderMap) {
    for (name, value) in login {
        headers.append(name, value.clone());
    }
    for name in ["cdn-cache-control", "surrogate-control"] {
        headers.remove(name);
    }
    let mut directives: Vec<String> = Vec::new();
    for value in headers.get_all(CACHE_CONTROL) {
        for directive in String::from_utf8_lossy(value.as_bytes()).split(',') {
            let directive = directive.trim();
            let name = directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
            if !matches!(name.as_str(), "" | "public" | "s-maxage" | "private") {
                directives.push(directive.to_owned());
            }
        }
    }
    directives.insert(0, "private".to_owned());
    let private = HeaderValue::try_from(directives.join(", "));
    headers.insert(CACHE_CONTROL, private.unwrap_or(HeaderValue::from_static("private, no-store")));
    ginnel_http1::add_vary(headers, "Cookie");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_to_somebody_is_not_kept_for_others() {
        for (from, to) in [
            (None, "private"),
            (Some("public, max-age=60"), "private, max-age=60"),
            (Some("max-age=60, s-maxage=600"), "private, max-age=60"),
            (Some("no-store"), "private, no-store"),
            (Some("private=\"x\", public"), "private"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("cdn-cache-control", HeaderValue::from_static("max-age=9"));
            if let Some(from) = from {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static(from));
            }

            mark_private(&mut headers, &HeaderMap::new());

            assert_eq!(headers[CACHE_CONTROL], to);
            assert_eq!(headers[VARY], "Cookie");
            assert!(!headers.contains_key("cdn-cache-control"));
        }
    }

    #[test]
    fn a_domain_shares_its_session_with_its_hosts() {
        assert!(
            is_within("a.example.com", "example.com") && is_within("example.com", "example.com")
        );
        assert!(!is_within("badexample.com", "example.com") && !is_within("com", "example.com"));
    }
}
