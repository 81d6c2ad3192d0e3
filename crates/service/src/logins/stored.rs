//! What is stored of users, and of their sessions: nothing that lets anybody in.

use sha2::{Digest, Sha256};

use ginnel_api::id::prefix;
use ginnel_api::remote::Ref;
use ginnel_api::remote::application_sessions::{
    ApplicationSession, BrowserSession, Location, UserAgent,
};
use ginnel_api::remote::application_users::{ApplicationUser, IdentityProvider};
use ginnel_api::{Number, Timestamp};
use ginnel_base::address::WebUrl;
use ginnel_gateway::login::records::{LoginActivity, LoginAttemptId, NewLoginSession};
use ginnel_store::{StoreResult, Transaction, View};

/// The role of a user for their sessions.
pub(crate) const SESSIONS_OF_USER: &str = "application_user";
/// Where users are found by their provider and its name for them.
const USER_NAMES: &str = "application_user";
/// Where logins that have ended are unique; the keys begin with the second after which they are over.
pub(super) const ENDED_LOGINS: &str = "ended_login";
/// What is found by the second in which it is over.
pub(super) const SESSION_ENDS: &str = "application_session_end";
pub(super) const USER_ENDS: &str = "application_user_end";
/// How many sessions a user has; the oldest ends when there is another one.
const MAX_SESSIONS_PER_USER: usize = 1000;
/// How long a user is kept who has no session, in seconds.
pub(super) const USER_RETENTION: i64 = 90 * 24 * 60 * 60;
/// How much is stored of what a provider says, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// The key of something that is over in a second of Unix: keys are in the order of time.
pub(super) fn key_at(second: i64, name: &str) -> String {
    format!("{:012}_{name}", second.clamp(0, 999_999_999_999))
}

/// Whether a login has made a session before.
pub(super) fn has_ended(view: &View<'_>, attempt: &LoginAttemptId) -> StoreResult<bool> {
    let key = key_at(attempt.ends, &attempt.state);
    Ok(view.claimant(ENDED_LOGINS, &key)?.is_some())
}

/// Stores a session and its user; its identifier, or none where the login has made one before.
pub(super) fn create_session(
    change: &Transaction<'_>,
    new: &NewLoginSession,
) -> StoreResult<Option<String>> {
    if has_ended(change, &new.attempt)? {
        return Ok(None);
    }
    let attempt = key_at(new.attempt.ends, &new.attempt.state);
    change.claim_key(ENDED_LOGINS, &attempt, &attempt)?;
    if let Some(before) = &new.replaces {
        remove_session(change, before)?;
    }
    let user_id = store_user(change, new)?;
    let sessions = change.referrers(&user_id, SESSIONS_OF_USER)?;
    let surplus = sessions.get(MAX_SESSIONS_PER_USER - 1..).unwrap_or_default();
    change.for_each(surplus, |id| remove_session(change, id))?;
    let id = change.new_id(prefix::APPLICATION_SESSION)?;
    change.put_document(&new_session(new, (&id, &user_id), change.now()))?;
    change.replace_references(&id, SESSIONS_OF_USER, [user_id.as_str()])?;
    change.claim_own(SESSION_ENDS, &key_at(new.expires, &id), &id)?;
    Ok(Some(id))
}

/// Removes a session.
pub(super) fn remove_session(change: &Transaction<'_>, session_id: &str) -> StoreResult<()> {
    change.remove_document::<ApplicationSession>(session_id).map(drop)
}

/// Stores who has logged in; the identifier of the user.
fn store_user(change: &Transaction<'_>, new: &NewLoginSession) -> StoreResult<String> {
    let name = user_name(new);
    let known = match change.claimant(USER_NAMES, &name)? {
        Some(id) => change.find_document::<ApplicationUser>(&id)?,
        None => None,
    };
    let now = change.now();
    let mut user = match known {
        Some(user) => user,
        None => {
            let id = change.new_id(prefix::APPLICATION_USER)?;
            change.claim_key(USER_NAMES, &name, &id)?;
            ApplicationUser { id, created_at: Some(now.clone()), ..ApplicationUser::default() }
        }
    };
    let identity = &new.identity;
    user.identity_provider = Some(identity_provider(&new.provider_url));
    user.provider_user_id = Some(truncate_text(&identity.subject));
    user.username = identity.username.as_deref().map(truncate_text);
    user.email = identity.email.as_deref().map(truncate_text);
    user.name = identity.name.as_deref().map(truncate_text);
    (user.last_login, user.last_active) = (Some(now.clone()), Some(now));
    change.put_document(&user)?;
    change.release_claims(USER_ENDS, &user.id)?;
    let end = new.expires.saturating_add(USER_RETENTION);
    change.claim_own(USER_ENDS, &key_at(end, &user.id), &user.id)?;
    Ok(user.id)
}

/// What a user is found by: short, however long the provider's name for them is.
fn user_name(new: &NewLoginSession) -> String {
    // Policies may name one issuer with a slash at the end and without.
    let provider = new.provider_url.trim_end_matches('/');
    let digest = Sha256::new()
        .chain_update((provider.len() as u64).to_be_bytes())
        .chain_update(provider)
        .chain_update(&new.identity.subject)
        .finalize();
    ginnel_base::hex(digest)
}

fn identity_provider(url: &str) -> IdentityProvider {
    let host = WebUrl::parse(url).ok().map(|url| url.host().to_string());
    IdentityProvider { name: host, url: Some(truncate_text(url)) }
}

fn new_session(
    new: &NewLoginSession,
    (id, user_id): (&str, &str),
    now: Timestamp,
) -> ApplicationSession {
    let reference = |id: &str| Ref { id: id.to_owned(), uri: String::new() };
    let (edge_id, route_id) = (&*new.route_ref.edge_id, &*new.route_ref.route_id);
    let has_edge = !edge_id.is_empty();
    let is_endpoint = route_id.starts_with(&format!("{}_", prefix::ENDPOINT));
    let browser = &new.browser;
    let known = |text: &str| Some(truncate_text(text)).filter(|text| !text.is_empty());
    ApplicationSession {
        id: id.to_owned(),
        public_url: Some(truncate_text(&new.public_url)),
        browser_session: Some(BrowserSession {
            user_agent: Some(UserAgent {
                raw: known(&browser.user_agent),
                browser_name: known(&browser.name),
                browser_version: known(&browser.version),
                device_type: known(browser.device),
                os_name: known(&browser.os),
                os_version: known(&browser.os_version),
            }),
            ip_address: Some(new.address.to_canonical().to_string()),
            location: new.location.as_ref().map(|location| Location {
                country_code: location.country_code.clone(),
                latitude: location.latitude.map(Number),
                longitude: location.longitude.map(Number),
                lat_long_radius_km: location.radius,
            }),
        }),
        application_user: Some(reference(user_id)),
        created_at: Some(now.clone()),
        last_active: Some(now),
        expires_at: Some(to_timestamp(new.expires)),
        endpoint: (!has_edge && is_endpoint).then(|| reference(route_id)),
        edge: has_edge.then(|| reference(edge_id)),
        route: (has_edge && !route_id.is_empty()).then(|| reference(route_id)),
        ..ApplicationSession::default()
    }
}

/// The second of the last request of a session that is stored, if the session is.
pub(super) fn last_active(view: &View<'_>, session_id: &str) -> StoreResult<Option<i64>> {
    let Some(session) = view.find_document::<ApplicationSession>(session_id)? else {
        return Ok(None);
    };
    let second = session.last_active.and_then(|at| i64::try_from(at.unix_seconds()?).ok());
    Ok(Some(second.unwrap_or_default()))
}

/// Notes when a session and its user were last active. No node is notified: nothing that it knows depends on it.
pub(super) fn store_activity(
    change: &Transaction<'_>,
    activity: &LoginActivity,
) -> StoreResult<()> {
    let at = to_timestamp(activity.last_active);
    let Some(mut session) = change.find_document::<ApplicationSession>(&activity.session_id)?
    else {
        return Ok(());
    };
    // Another node may have seen the visitor since.
    if is_later(&at, session.last_active.as_ref()) {
        session.last_active = Some(at.clone());
        session.expires_at = Some(to_timestamp(activity.expires));
        change.put_document_quietly(&session)?;
        change.release_claims(SESSION_ENDS, &session.id)?;
        change.claim_own(SESSION_ENDS, &key_at(activity.expires, &session.id), &session.id)?;
    }
    let user_id = session.application_user.map(|user| user.id).unwrap_or_default();
    let Some(mut user) = change.find_document::<ApplicationUser>(&user_id)? else { return Ok(()) };
    if is_later(&at, user.last_active.as_ref()) {
        user.last_active = Some(at);
        change.put_document_quietly(&user)?;
    }
    Ok(())
}

fn is_later(at: &Timestamp, before: Option<&Timestamp>) -> bool {
    before.is_none_or(|before| at.unix_seconds() > before.unix_seconds())
}

fn to_timestamp(second: i64) -> Timestamp {
    Timestamp::at_unix(u64::try_from(second).unwrap_or_default())
}

/// The beginning of a text that somebody else has made.
fn truncate_text(text: &str) -> String {
    let mut ends = (0..=MAX_TEXT_BYTES.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.get(..end).unwrap_or_default().to_owned()
}
