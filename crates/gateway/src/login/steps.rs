//! The steps of a login: to the issuer, back from it, and out again.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::Utc;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;

use ginnel_api::mask;
use ginnel_base::address::WebUrl;
use ginnel_policy::LocalResponse;
use ginnel_policy::login::{
    CALLBACK_PATH, Identity, LoginLocation, LoginOutcome, LoginProvider, LoginRequest, LoginVisit,
    MAX_COOKIE_CHUNKS, NOT_ALLOWED,
};

use crate::login::issuer::{Issuer, IssuerMetadata, LoginError, LoginResult};
use crate::login::records::{LoginAttemptId, NewLoginSession};
use crate::login::seal::random_text;
use crate::login::session::{
    self, LoginSession, LoginSessionEnd, MAX_VALUE_BYTES, cookie_binding, seconds_and_millis,
    set_cookie, whole_seconds,
};
use crate::login::tokens::{IssuedTokens, TokenClient};
use crate::login::{LoginPlace, Logins};

/// What logins on their way are sealed for.
const PURPOSE: &str = "login";
/// How long a login may take, in seconds.
const LOGIN_SECONDS: i64 = 10 * 60;
/// How many logins a browser may have on their way: each has a cookie.
const MAX_LOGINS: usize = 5;
/// How long the address may be that a visitor comes back to.
const MAX_TARGET_BYTES: usize = 2048;

/// A login on its way, in a cookie of the browser that has begun it.
#[derive(Serialize, Deserialize)]
struct LoginAttempt {
    state: String,
    nonce: String,
    /// What proves to the issuer that the same one asks (RFC 7636).
    verifier: String,
    /// Where the visitor wanted to go.
    target: String,
    started: i64,
}

impl Logins {
    /// Sends a visitor to the issuer; a fresh login does not take over one that is there already.
    pub(super) async fn begin_login(
        &self,
        request: &LoginRequest,
        issuer: &Arc<Issuer>,
        (target, is_fresh): (&str, bool),
        end: Option<LoginSessionEnd>,
    ) -> LoginResult<LoginOutcome> {
        let metadata = issuer.fetch_metadata().await?;
        let mut pending = LoginAttempt {
            state: random_text()?,
            nonce: random_text()?,
            verifier: random_text()? + &random_text()?,
            target: local_target(target),
            started: Utc::now().timestamp(),
        };
        let url = authorization_url(&metadata.authorization_endpoint, request, &pending, is_fresh)?;
        let mut response = redirect_response(&url)?;
        self.limit_logins(request, &mut response.headers);
        let name = request.visit.login_cookie(&request.config, &pending.state);
        let mut sealed = self.seal.seal_content(PURPOSE, &cookie_binding(request), &pending)?;
        if sealed.len() > MAX_VALUE_BYTES {
            // Browsers would not keep it, and the login would have no beginning.
            "/".clone_into(&mut pending.target);
            sealed = self.seal.seal_content(PURPOSE, &cookie_binding(request), &pending)?;
        }
        set_cookie(&mut response.headers, request, (&name, &sealed, LOGIN_SECONDS), false);
        let result = json!({
            "session_timed_out": end == Some(LoginSessionEnd::Idle),
            "session_max_duration_reached": end == Some(LoginSessionEnd::MaxDuration),
        });
        Ok(LoginOutcome::Answered { response, result })
    }

    /// Takes the cookies of other logins away where there are too many.
    fn limit_logins(&self, request: &LoginRequest, headers: &mut HeaderMap) {
        let start = request.visit.login_cookie(&request.config, "");
        let others = request.visit.cookies.0.iter().filter(|(name, _)| name.starts_with(&start));
        let others: Vec<_> = others.collect();
        if others.len() >= MAX_LOGINS {
            for (name, _) in others {
                set_cookie(headers, request, (name, "", 0), false);
            }
        }
    }

    /// Makes a session of what the issuer sends a visitor back with.
    pub(super) async fn finish_login(
        &self,
        request: &LoginRequest,
        issuer: &Arc<Issuer>,
        place: LoginPlace,
    ) -> LoginResult<LoginOutcome> {
        let visit = &request.visit;
        let state = visit.query_parameter("state").ok_or(LoginError::UnknownLogin)?;
        let name = visit.login_cookie(&request.config, &state);
        let sealed = visit.cookies.get(&name).ok_or(LoginError::UnknownLogin)?;
        let pending: Option<LoginAttempt> =
            self.seal.open_text(PURPOSE, &cookie_binding(request), sealed);
        let pending = pending.filter(|it| it.state == state).ok_or(LoginError::UnknownLogin)?;
        let (now, last) = (Utc::now().timestamp(), pending.started + LOGIN_SECONDS);
        // Without a code there is nothing that could be used twice.
        let has_answer =
            visit.query_parameter("code").or_else(|| visit.query_parameter("error")).is_some();
        if now > last || !has_answer {
            return Err(LoginError::UnknownLogin);
        }
        // Asked before the code is used up: where nothing can be stored, the visitor may come again.
        let (login, records) = (self.login_hash(request), self.session_records()?);
        let attempt = LoginAttemptId { state, ends: last };
        // The database is asked once for each login, whatever a browser sends.
        if self.memory.has_ended(&attempt.state) {
            return Err(LoginError::UnknownLogin);
        }
        let asked = (records.as_ref(), &self.sessions);
        let has_ended = self.attempts.has_ended(&attempt, asked).await?;
        if !self.memory.end_login((login, &attempt.state), last) || has_ended {
            return Err(LoginError::UnknownLogin);
        }
        let mut session = log_in(request, issuer, &pending).await?;
        // Anybody may have an account at an issuer: of those whom this login does not let in nothing is stored.
        if !request.config.allow.allows_identity(&session.identity) {
            return Ok(forbidden_outcome(request, &name));
        }
        // What no cookies can hold is not stored either.
        session.write_cookies(&self.seal, request, &mut HeaderMap::new())?;
        let before = LoginSession::from_cookies(&self.seal, request).map(|before| before.id);
        let new = new_session((request, place), &session, (attempt, before.clone()));
        session.id = self.create_session(records, new).await?.ok_or(LoginError::UnknownLogin)?;
        if let Some(before) = before {
            self.memory.renewals.forget_session(&before);
        }
        let mut response = redirect_response(&format!("{}{}", visit.origin, pending.target))?;
        set_cookie(&mut response.headers, request, (&name, "", 0), false);
        session.write_cookies(&self.seal, request, &mut response.headers)?;
        Ok(LoginOutcome::Answered { response, result: json!({}) })
    }

    /// Ends the session of a visitor, who keeps the cookies where it cannot be ended everywhere.
    pub(super) async fn log_out(&self, request: &LoginRequest) -> LoginResult<LoginOutcome> {
        if let Some(session) = LoginSession::from_cookies(&self.seal, request)
            && (self.sessions.has_ended_here(&session.id)
                || self.is_live(request, &session.id).await.unwrap_or(true))
        {
            self.end_session((self.login_hash(request), &session.id)).await?;
        }
        let mut response = LocalResponse::empty(StatusCode::OK);
        response.body = "You are logged out.\n".into();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers.insert(CONTENT_TYPE, plain);
        set_no_store(&mut response.headers);
        session::clear_cookies(request, &mut response.headers);
        Ok(LoginOutcome::Answered { response, result: json!({}) })
    }
}

/// Tells somebody that they may not come in, and takes the cookie of the login away, which is over.
fn forbidden_outcome(request: &LoginRequest, cookie: &str) -> LoginOutcome {
    let mut outcome = LoginOutcome::refused(StatusCode::FORBIDDEN, NOT_ALLOWED.0, NOT_ALLOWED.1);
    if let LoginOutcome::Answered { response, .. } = &mut outcome {
        response.body = request.config.not_allowed().into();
        set_cookie(&mut response.headers, request, (cookie, "", 0), false);
    }
    outcome
}

/// What is stored of a session that begins.
fn new_session(
    (request, place): (&LoginRequest, LoginPlace),
    session: &LoginSession,
    (attempt, replaces): (LoginAttemptId, Option<String>),
) -> NewLoginSession {
    let (config, visit) = (&request.config, &request.visit);
    let address = place.connection.client.ip();
    NewLoginSession {
        attempt,
        replaces,
        identity: session.identity.clone(),
        provider_url: config.provider.identity_url().to_owned(),
        public_url: visit.origin.clone(),
        address,
        location: place.connection.lookup.look_up(address).and_then(LoginLocation::from_facts),
        browser: visit.browser.clone().unwrap_or_default(),
        route_ref: place.route_ref,
        expires: session
            .started
            .saturating_add(whole_seconds(session.time_left(config, Utc::now()))),
    }
}

/// Exchanges the code that a visitor brings for who they are.
async fn log_in(
    request: &LoginRequest,
    issuer: &Arc<Issuer>,
    pending: &LoginAttempt,
) -> LoginResult<LoginSession> {
    let visit = &request.visit;
    let metadata = issuer.fetch_metadata().await?;
    let code = code_of(visit, &metadata)?;
    let calls = issuer.login_calls.for_caller((request.client_id.clone(), request.owner.clone()));
    let client = TokenClient {
        issuer,
        metadata: &metadata,
        client_id: &request.client_id,
        client_secret: &request.client_secret,
        slots: &calls,
    };
    let redirect_uri = format!("{}{CALLBACK_PATH}", visit.origin);
    let mut parameters = vec![
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &redirect_uri),
    ];
    if request.config.provider.takes_pkce() {
        parameters.push(("code_verifier", &pending.verifier));
    }
    let tokens = client.request_tokens(&parameters).await?;
    let (token_identity, identity) = identities(&client, request, pending, &tokens).await?;
    let (now, millis) = seconds_and_millis(Utc::now().timestamp_millis());
    Ok(LoginSession {
        // Until it is stored, which gives it one that is no longer.
        id: random_text()?,
        identity,
        token_identity,
        started: now,
        started_millis: millis,
        seen: now,
        seen_millis: millis,
        renewed: now,
        renewed_millis: millis,
        generation: 0,
        access_expires: tokens.access_expires(),
        id_token: tokens.id_token.filter(|_| !metadata.issuer.is_empty()),
        access_token: tokens.access_token,
        refresh_token: tokens.refresh_token,
        is_stale: false,
    })
}

/// Returns the code that a visitor brings from an issuer.
///
/// # Errors
/// If another issuer has sent the visitor, or the issuer has refused the login.
fn code_of(visit: &LoginVisit, metadata: &IssuerMetadata) -> LoginResult<String> {
    match visit.query_parameter("iss") {
        Some(from) if from != metadata.issuer && !metadata.issuer.is_empty() => {
            return Err(LoginError::Unusable("another issuer has answered".to_owned()));
        }
        None if metadata.authorization_response_iss_parameter_supported => {
            return Err(LoginError::Unusable("it is not said who has answered".to_owned()));
        }
        _ => {}
    }
    if let Some(error) = visit.query_parameter("error") {
        let error = error.chars().filter(|it| it.is_ascii_graphic()).take(64).collect();
        return Err(LoginError::Refused(error));
    }
    visit.query_parameter("code").ok_or(LoginError::UnknownLogin)
}

/// Returns the identity of the ID token, and that of all that the issuer knows of the visitor.
async fn identities(
    client: &TokenClient<'_>,
    request: &LoginRequest,
    pending: &LoginAttempt,
    tokens: &IssuedTokens,
) -> LoginResult<(Identity, Identity)> {
    let missing = |what: &str| LoginError::Unusable(format!("it gives no {what}"));
    let said = match (&request.config.provider, &tokens.id_token) {
        (LoginProvider::Issuer(_), Some(token)) => {
            let claims =
                client.verify_id_token(token, &request.config, Some(&pending.nonce)).await?;
            Some(Identity::from_claims(&claims).ok_or_else(|| missing("subject"))?)
        }
        (LoginProvider::Issuer(_), None) => return Err(missing("ID token")),
        (LoginProvider::Endpoints(_), _) => None,
    };
    // Who has just come from the issuer gets the reason, and is not sent there again.
    let more = client.fetch_userinfo(tokens.access_token.as_deref(), &request.config).await;
    let more = more.map_err(|error| match error {
        LoginError::Ended => LoginError::Refused("userinfo".to_owned()),
        other => other,
    })?;
    match (said, more) {
        (Some(said), Some(more)) => {
            let all = said.merged_with(more);
            let all = all.ok_or(LoginError::Unusable("userinfo is of another one".to_owned()));
            Ok((said, all?))
        }
        (Some(said), None) => Ok((said.clone(), said)),
        // What a provider of OAuth says of its users is all that is known.
        (None, Some(more)) => {
            Ok((Identity { subject: more.subject.clone(), ..Identity::default() }, more))
        }
        (None, None) => Err(missing("access token")),
    }
}

/// The path of this host that a visitor wanted, or else its beginning.
fn local_target(target: &str) -> String {
    let is_fit = target.starts_with('/')
        && target.len() <= MAX_TARGET_BYTES
        && !target.contains(|it: char| it.is_control() || it == '\\');
    if is_fit { target.to_owned() } else { "/".to_owned() }
}

fn authorization_url(
    endpoint: &str,
    request: &LoginRequest,
    pending: &LoginAttempt,
    is_fresh: bool,
) -> LoginResult<String> {
    let url = WebUrl::parse(endpoint)
        .map_err(|problem| LoginError::Unusable(format!("{:?} {problem}", mask::url(endpoint))))?;
    let mut url = url.as_url().clone();
    let challenge =
        BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, pending.verifier.as_bytes()).as_ref());
    let redirect_uri = format!("{}{CALLBACK_PATH}", request.visit.origin);
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &request.client_id)
        .append_pair("redirect_uri", &redirect_uri)
        .append_pair("scope", &request.config.scopes.join(" "))
        .append_pair("state", &pending.state)
        .append_pair("nonce", &pending.nonce);
    if request.config.provider.takes_pkce() {
        query
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
    }
    let parameters = &request.config.parameters;
    query.extend_pairs(parameters);
    if is_fresh && !parameters.iter().any(|(name, _)| name == "prompt") {
        query.append_pair("prompt", "login");
    }
    drop(query);
    Ok(url.into())
}

fn redirect_response(url: &str) -> LoginResult<LocalResponse> {
    let mut response = LocalResponse::empty(StatusCode::FOUND);
    let location = HeaderValue::try_from(url);
    let location = location.map_err(|error| LoginError::Unusable(error.to_string()))?;
    response.headers.insert(LOCATION, location);
    set_no_store(&mut response.headers);
    Ok(response)
}

fn set_no_store(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("Cookie"));
}

/// A session has room for its cookies and for those of logins.
const _: () = assert!(MAX_COOKIE_CHUNKS * 4096 + MAX_LOGINS * 4096 < 48 << 10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_come_back_to_a_path_of_the_same_host() {
        for target in ["/", "/a?b=c", "//evil.example/x", "/a//b"] {
            assert_eq!(local_target(target), target);
        }
        for target in ["", "https://evil.example", "evil", "/\\evil.example", "/a\r\nb"] {
            assert_eq!(local_target(target), "/");
        }
        assert_eq!(local_target(&format!("/{}", "x".repeat(MAX_TARGET_BYTES))), "/");
    }
}
