//! Sessions, and the cookies that hold them.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat, Utc};
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::gateway::login::issuer::LoginError;
use crate::gateway::login::seal::Seal;
use crate::policy::login::{Identity, LoginConfig, LoginRequest, MAX_COOKIE_CHUNKS};

/// What sessions are sealed for.
const PURPOSE: &str = "session";
/// How long the value of a cookie may be: browsers take 4,096 bytes with its name.
pub(super) const MAX_VALUE_BYTES: usize = 3800;
/// How long before it ends an access token is taken for ended, in seconds.
const RENEWAL_LEAD_SECONDS: i64 = 5;

/// Somebody who has logged in; the times are seconds of Unix.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LoginSession {
    pub id: String,
    /// Who it is, after all that the issuer has said.
    pub identity: Identity,
    /// What the ID token alone says.
    pub token_identity: Identity,
    pub started: i64,
    /// The last request that was noted.
    pub seen: i64,
    /// When the issuer was asked last.
    pub renewed: i64,
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
    pub(super) fn read(seal: &Seal, request: &LoginRequest) -> Option<Self> {
        let LoginRequest { config, visit, .. } = request;
        let chunk = |at: usize| visit.cookies.get(&visit.session_cookie(config, at));
        let (count, first) = chunk(0)?.split_once('.')?;
        let count: usize = count.parse().ok().filter(|count| *count <= MAX_COOKIE_CHUNKS)?;
        let mut text = first.to_owned();
        for at in 1..count {
            text.push_str(chunk(at)?);
        }
        seal.open(PURPOSE, &binding(request), &text)
    }

    /// Why it has ended; none while it lasts.
    pub(super) fn end(&self, config: &LoginConfig, now: i64) -> Option<LoginSessionEnd> {
        if now >= self.started.saturating_add(seconds(config.max_duration)) {
            Some(LoginSessionEnd::MaxDuration)
        } else if now >= self.seen.saturating_add(seconds(config.idle_timeout)) {
            Some(LoginSessionEnd::Idle)
        } else {
            None
        }
    }

    /// Whether the issuer is to be asked again before anybody is let in.
    pub(super) fn is_due(&self, config: &LoginConfig, now: i64) -> bool {
        let interval = config.refresh_interval.map(seconds);
        interval.is_some_and(|interval| now >= self.renewed.saturating_add(interval))
            || self.refresh_token.is_some()
                && self.access_expires.is_some_and(|expires| now >= expires - RENEWAL_LEAD_SECONDS)
    }

    /// When it ends if nobody uses it any more, RFC 3339.
    pub(super) fn expires_at(&self, config: &LoginConfig, now: DateTime<Utc>) -> String {
        let ends = now + Duration::from_secs(self.seconds_left(config, now.timestamp()) as u64);
        ends.to_rfc3339_opts(SecondsFormat::Secs, true)
    }

    /// For how long it lasts if nobody uses it any more.
    pub(super) fn seconds_left(&self, config: &LoginConfig, now: i64) -> i64 {
        let left = self.started + seconds(config.max_duration) - now;
        left.min(seconds(config.idle_timeout)).max(0)
    }

    /// Writes its cookies, in place of those that the visitor has.
    pub(super) fn write(
        &self,
        seal: &Seal,
        request: &LoginRequest,
        headers: &mut HeaderMap,
    ) -> Result<(), LoginError> {
        let binding = binding(request);
        let mut text = seal.seal(PURPOSE, &binding, self)?;
        if text.len() > MAX_COOKIE_CHUNKS * MAX_VALUE_BYTES {
            // Nothing here needs it any more.
            let smaller = Self { id_token: None, ..self.clone() };
            text = seal.seal(PURPOSE, &binding, &smaller)?;
        }
        if text.len() > MAX_COOKIE_CHUNKS * MAX_VALUE_BYTES - 2 && self.generation > 0 {
            // Somebody who is in already stays in, and can be asked for again.
            tracing::warn!("the access token of a renewed session is too large for its cookies");
            let smaller = Self { id_token: None, access_token: None, ..self.clone() };
            text = seal.seal(PURPOSE, &binding, &smaller)?;
        }
        let count = (text.len() + 2).div_ceil(MAX_VALUE_BYTES);
        if count > MAX_COOKIE_CHUNKS {
            return Err(LoginError::TooLarge);
        }
        let text = format!("{count}.{text}");
        let left = self.seconds_left(&request.config, self.seen);
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
pub(super) fn forget(request: &LoginRequest, headers: &mut HeaderMap) {
    for at in 0..MAX_COOKIE_CHUNKS {
        let name = request.visit.session_cookie(&request.config, at);
        if at == 0 || request.visit.cookies.get(&name).is_some() {
            set_cookie(headers, request, (&name, "", 0), true);
        }
    }
}

/// What a cookie is good for: nothing but this login, for a client that knows the same secret, at this site.
/// Nobody has shown to know the secret of the operator's client: what is good with that belongs to its owner.
pub(super) fn binding(request: &LoginRequest) -> String {
    let site = request.visit.site(&request.config);
    let secret = ring::digest::digest(&ring::digest::SHA256, request.client_secret.0.as_bytes());
    let secret = BASE64_URL_SAFE_NO_PAD.encode(secret.as_ref());
    let digest = request.config.digest(site);
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

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
