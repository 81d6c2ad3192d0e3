//! Sessions, and the cookies that hold them.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat, Utc};
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

use ginnel_policy::login::{Identity, LoginConfig, LoginRequest, MAX_COOKIE_CHUNKS};

use crate::login::issuer::{LoginError, LoginResult};
use crate::login::seal::Seal;

/// What sessions are sealed for.
const PURPOSE: &str = "session";
/// How long the value of a cookie may be: browsers take 4,096 bytes with its name.
pub(super) const MAX_VALUE_BYTES: usize = 3800;
/// How often the last request is noted in the cookies of a session within its idle timeout, and how often at
/// least.
const NOTES_PER_IDLE_TIMEOUT: u32 = 10;
const MAX_NOTE_INTERVAL: Duration = Duration::from_secs(60);
/// How long before it ends an access token is taken for ended, in seconds.
const RENEWAL_LEAD_SECONDS: i64 = 5;

/// Somebody who has logged in; the times are seconds of Unix. Nodes of older versions read cookies without the
/// milliseconds, and write none.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LoginSession {
    pub id: String,
    /// Who it is, after all that the issuer has said.
    pub identity: Identity,
    /// What the ID token alone says.
    pub token_identity: Identity,
    pub started: i64,
    #[serde(default)]
    pub started_millis: u16,
    /// The last request that was noted.
    pub seen: i64,
    #[serde(default)]
    pub seen_millis: u16,
    /// When the issuer was asked last.
    pub renewed: i64,
    #[serde(default)]
    pub renewed_millis: u16,
    /// How often it was asked.
    pub generation: u64,
    pub id_token: Option<String>,
    pub access_token: Option<String>,
    pub refresh_token: Option<String>,
    /// When the access token ends.
    pub access_expires: Option<i64>,
    /// Whether the visitor's cookies are older than this.
    #[serde(skip)]
    pub is_stale: bool,
}

/// Why a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginSessionEnd {
    /// Nobody has used it for too long.
    Idle,
    /// It has lasted as long as sessions may.
    MaxDuration,
}

impl LoginSession {
    /// The session that a request carries.
    pub(super) fn from_cookies(seal: &Seal, request: &LoginRequest) -> Option<Self> {
        let LoginRequest { config, visit, .. } = request;
        let chunk = |at: usize| visit.cookies.get(&visit.session_cookie(config, at));
        let (count, first) = chunk(0)?.split_once('.')?;
        let count: usize = count.parse().ok().filter(|count| *count <= MAX_COOKIE_CHUNKS)?;
        let mut text = first.to_owned();
        for at in 1..count {
            text.push_str(chunk(at)?);
        }
        seal.open_text(PURPOSE, &cookie_binding(request), &text)
    }

    /// Why it has ended; none while it lasts.
    pub(super) fn end_reason(
        &self,
        config: &LoginConfig,
        now: DateTime<Utc>,
    ) -> Option<LoginSessionEnd> {
        let now = now.timestamp_millis();
        if now >= self.started_at().saturating_add(duration_millis(config.max_duration)) {
            Some(LoginSessionEnd::MaxDuration)
        } else if now >= self.seen_at().saturating_add(duration_millis(noted_idle_timeout(config)))
        {
            Some(LoginSessionEnd::Idle)
        } else {
            None
        }
    }

    /// When it has begun, in milliseconds of Unix.
    fn started_at(&self) -> i64 {
        millis_of(self.started, self.started_millis)
    }

    /// The last request that was noted, in milliseconds of Unix.
    pub(super) fn seen_at(&self) -> i64 {
        millis_of(self.seen, self.seen_millis)
    }

    /// Notes a request, in milliseconds of Unix, unless a later one was noted.
    pub(super) fn record_request(&mut self, at: i64) {
        if at > self.seen_at() {
            (self.seen, self.seen_millis) = seconds_and_millis(at);
        }
    }

    /// Whether its last request was noted so long ago that this one is to be.
    pub(super) fn is_record_due(&self, config: &LoginConfig, now: DateTime<Utc>) -> bool {
        now.timestamp_millis() - self.seen_at() >= duration_millis(note_interval(config))
    }

    /// Whether the issuer is to be asked again before anybody is let in.
    pub(super) fn is_due(&self, config: &LoginConfig, now: DateTime<Utc>) -> bool {
        let renewed = millis_of(self.renewed, self.renewed_millis);
        let interval = config.refresh_interval.map(duration_millis);
        let ends_soon = |end: i64| now.timestamp() >= end.saturating_sub(RENEWAL_LEAD_SECONDS);
        interval.is_some_and(|it| now.timestamp_millis() >= renewed.saturating_add(it))
            || self.refresh_token.is_some() && self.access_expires.is_some_and(ends_soon)
    }

    /// When it ends if nobody uses it any more, RFC 3339.
    pub(super) fn expires_at(&self, config: &LoginConfig, now: DateTime<Utc>) -> String {
        (now + self.time_left(config, now)).to_rfc3339_opts(SecondsFormat::Secs, true)
    }

    /// For how long it lasts if nobody uses it any more.
    pub(super) fn time_left(&self, config: &LoginConfig, now: DateTime<Utc>) -> Duration {
        self.left_of(config, now.timestamp_millis()).min(config.idle_timeout)
    }

    /// For how long it lasts in any case.
    fn left_of(&self, config: &LoginConfig, now: i64) -> Duration {
        let left = self.started_at().saturating_add(duration_millis(config.max_duration)) - now;
        Duration::from_millis(u64::try_from(left).unwrap_or_default())
    }

    /// Writes its cookies, in place of those that the visitor has.
    pub(super) fn write_cookies(
        &self,
        seal: &Seal,
        request: &LoginRequest,
        headers: &mut HeaderMap,
    ) -> LoginResult<()> {
        let binding = cookie_binding(request);
        let mut text = seal.seal_content(PURPOSE, &binding, self)?;
        if text.len() > MAX_COOKIE_CHUNKS * MAX_VALUE_BYTES {
            // Nothing here needs it any more.
            let smaller = Self { id_token: None, ..self.clone() };
            text = seal.seal_content(PURPOSE, &binding, &smaller)?;
        }
        if text.len() > MAX_COOKIE_CHUNKS * MAX_VALUE_BYTES - 2 && self.generation > 0 {
            // Somebody who is in already stays in, and can be asked for again.
            tracing::warn!("the access token of a renewed session is too large for its cookies");
            let smaller = Self { id_token: None, access_token: None, ..self.clone() };
            text = seal.seal_content(PURPOSE, &binding, &smaller)?;
        }
        let count = (text.len() + 2).div_ceil(MAX_VALUE_BYTES);
        if count > MAX_COOKIE_CHUNKS {
            return Err(LoginError::TooLarge);
        }
        let text = format!("{count}.{text}");
        let config = &request.config;
        let left = self.left_of(config, self.seen_at()).min(noted_idle_timeout(config));
        let left = whole_seconds(left);
        for at in 0..MAX_COOKIE_CHUNKS {
            let name = request.visit.session_cookie(&request.config, at);
            let start = at * MAX_VALUE_BYTES;
            match text.get(start..text.len().min(start + MAX_VALUE_BYTES)) {
                Some(value) if !value.is_empty() => {
                    set_cookie(headers, request, (&name, value, left), true);
                }
                _ if request.visit.cookies.get(&name).is_some() => {
                    set_cookie(headers, request, (&name, "", 0), true);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Takes the cookies of a session from a visitor.
pub(super) fn clear_cookies(request: &LoginRequest, headers: &mut HeaderMap) {
    for at in 0..MAX_COOKIE_CHUNKS {
        let name = request.visit.session_cookie(&request.config, at);
        if at == 0 || request.visit.cookies.get(&name).is_some() {
            set_cookie(headers, request, (&name, "", 0), true);
        }
    }
}

/// What a cookie is good for: nothing but this login, for a client that knows the same secret, at this site.
/// Nobody has shown to know the secret of the operator's client: what is good with that belongs to its owner.
pub(super) fn cookie_binding(request: &LoginRequest) -> String {
    let site = request.visit.session_site(&request.config);
    let secret = ring::digest::digest(&ring::digest::SHA256, request.client_secret.0.as_bytes());
    let secret = BASE64_URL_SAFE_NO_PAD.encode(secret.as_ref());
    let digest = request.config.session_digest(site);
    let binding = format!("{digest}\n{secret}\n{}\n{site}", request.client_id);
    if request.config.is_managed { format!("{binding}\n{}", request.owner) } else { binding }
}

/// Sets a cookie for so many seconds; for none it is taken away.
pub(super) fn set_cookie(
    headers: &mut HeaderMap,
    request: &LoginRequest,
    (name, value, seconds): (&str, &str, i64),
    is_session: bool,
) {
    let secure = if request.visit.is_secure { "; Secure" } else { "" };
    let domain = request.config.cookie_domain.as_ref().filter(|_| is_session);
    let domain = domain.map(|domain| format!("; Domain={domain}")).unwrap_or_default();
    let cookie = format!(
        "{name}={value}; Path=/{domain}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    );
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        headers.append(SET_COOKIE, cookie);
    }
}

/// The seconds of a time of Unix, and the milliseconds after them.
pub(super) fn seconds_and_millis(time: i64) -> (i64, u16) {
    (time.div_euclid(1000), time.rem_euclid(1000) as u16)
}

fn millis_of(seconds: i64, millis: u16) -> i64 {
    seconds.saturating_mul(1000).saturating_add(millis.into())
}

/// How long after a request another one is noted: each has new cookies written.
fn note_interval(config: &LoginConfig) -> Duration {
    (config.idle_timeout / NOTES_PER_IDLE_TIMEOUT).min(MAX_NOTE_INTERVAL)
}

/// How long a session lasts after the last request that was noted: there may have been another one since, and
/// a session ends no sooner than is configured.
fn noted_idle_timeout(config: &LoginConfig) -> Duration {
    config.idle_timeout.saturating_add(note_interval(config))
}

/// The seconds of a duration, and one more for those that are not whole.
pub(super) fn whole_seconds(duration: Duration) -> i64 {
    duration_seconds(duration.saturating_add(Duration::from_nanos(999_999_999)))
}

fn duration_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn duration_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_policy::login::{AllowRules, LoginKind, LoginProvider};

    /// A moment of a day, in milliseconds.
    fn at(millis: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_700_000_000_000 + millis).unwrap()
    }

    fn session(millis: i64) -> LoginSession {
        let (started, started_millis) = seconds_and_millis(at(millis).timestamp_millis());
        LoginSession {
            id: String::new(),
            identity: Identity::default(),
            token_identity: Identity::default(),
            started,
            started_millis,
            seen: started,
            seen_millis: started_millis,
            renewed: started,
            renewed_millis: started_millis,
            generation: 0,
            id_token: None,
            access_token: None,
            refresh_token: None,
            access_expires: None,
            is_stale: false,
        }
    }

    fn config(idle: u64, max: u64) -> LoginConfig {
        LoginConfig {
            kind: LoginKind::OpenIdConnect,
            provider: LoginProvider::Issuer("https://issuer.example".to_owned()),
            named: None,
            is_managed: false,
            auth_id: String::new(),
            document_hash: String::new(),
            scopes: Vec::new(),
            has_usual_scopes: true,
            parameters: Vec::new(),
            allow: AllowRules::default(),
            allow_cors_preflight: false,
            idle_timeout: Duration::from_secs(idle),
            max_duration: Duration::from_secs(max),
            refresh_interval: None,
            cookie_domain: None,
            cookie_prefix: String::new(),
        }
    }

    #[test]
    fn a_session_lasts_as_long_as_is_configured_whenever_its_second_has_begun() {
        let (config, session) = (config(60, 2), session(900));

        assert_eq!(session.end_reason(&config, at(2899)), None);
        assert_eq!(session.end_reason(&config, at(2900)), Some(LoginSessionEnd::MaxDuration));
        assert_eq!(whole_seconds(session.time_left(&config, at(1000))), 2, "1.9 s are left");
        assert_eq!(session.time_left(&config, at(5000)), Duration::ZERO);
    }

    #[test]
    fn nobody_is_idle_before_the_time_after_a_request_that_was_not_noted() {
        let (config, mut session) = (config(1, 60), session(900));
        assert!(!session.is_record_due(&config, at(999)));

        assert_eq!(session.end_reason(&config, at(999 + 1000)), None, "a request was not noted");
        assert_eq!(session.end_reason(&config, at(2000)), Some(LoginSessionEnd::Idle));
        session.record_request(at(1500).timestamp_millis());
        session.record_request(at(1200).timestamp_millis());
        assert_eq!(session.end_reason(&config, at(2599)), None);
        assert_eq!(session.end_reason(&config, at(2600)), Some(LoginSessionEnd::Idle));
    }

    #[test]
    fn cookies_of_older_nodes_have_whole_seconds_and_older_nodes_read_those_of_newer_ones() {
        let written = serde_json::to_value(session(900)).unwrap();
        assert_eq!(
            (&written["started"], &written["seen"]),
            (&1_700_000_000.into(), &1_700_000_000.into())
        );
        let mut older = written;
        for name in ["started_millis", "seen_millis", "renewed_millis"] {
            assert!(older.as_object_mut().unwrap().remove(name).is_some());
        }

        let read: LoginSession = serde_json::from_value(older).unwrap();

        assert_eq!(read.end_reason(&config(60, 2), at(1999)), None);
        assert_eq!(read.end_reason(&config(60, 2), at(2000)), Some(LoginSessionEnd::MaxDuration));
    }
}
