//! Where sessions are stored that all nodes know: whoever runs the gateway says how.

use std::net::IpAddr;

use ginnel_policy::login::{Identity, LoginBrowser, LoginLocation};

use crate::{BoxFuture, RouteRef};

/// Why sessions cannot be looked up or stored at the moment.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct LoginRecordsError(pub String);

/// What comes of looking something up, or of storing it.
pub type RecordFuture<'a, T> = BoxFuture<'a, Result<T, LoginRecordsError>>;

/// A login that a browser has begun, which makes one session at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginAttemptId {
    /// What tells it from all others.
    pub state: String,
    /// The second of Unix after which it is over.
    pub ends: i64,
}

/// What is stored of a session; nothing of it is secret.
#[derive(Debug, Clone)]
pub struct NewLoginSession {
    /// The login that it comes of.
    pub attempt: LoginAttemptId,
    /// The session that it takes the place of.
    pub replaces: Option<String>,
    /// Who has logged in.
    pub identity: Identity,
    /// The URL of whoever says so.
    pub provider_url: String,
    /// The scheme, the host and the port that the visitor has logged in to.
    pub public_url: String,
    /// Where the visitor comes from.
    pub address: IpAddr,
    /// Where that is.
    pub location: Option<LoginLocation>,
    /// What the visitor has logged in with.
    pub browser: LoginBrowser,
    /// What the visitor has logged in to.
    pub route_ref: RouteRef,
    /// When the session ends if it is not used, in seconds of Unix.
    pub expires: i64,
}

#[cfg(any(test, feature = "test-support"))]
impl NewLoginSession {
    /// The session of somebody, of a login that is over at one second, and the session at another.
    pub fn of((subject, state): (&str, &str), (ends, expires): (i64, i64)) -> Self {
        Self {
            attempt: LoginAttemptId { state: state.to_owned(), ends },
            replaces: None,
            identity: Identity { subject: subject.to_owned(), ..Identity::default() },
            provider_url: "https://issuer.example".to_owned(),
            public_url: "https://app.example".to_owned(),
            address: [192, 0, 2, 1].into(),
            location: None,
            browser: LoginBrowser::default(),
            route_ref: RouteRef::none(),
            expires,
        }
    }
}

/// When a session was used last, in seconds of Unix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginActivity {
    /// The session.
    pub session_id: String,
    /// The last request of it.
    pub last_active: i64,
    /// When it ends if it is not used.
    pub expires: i64,
}

/// Stores sessions where all nodes find them.
pub trait LoginRecords: Send + Sync + 'static {
    /// Whether a login has made a session before, on any node.
    fn has_ended<'a>(&'a self, attempt: &'a LoginAttemptId) -> RecordFuture<'a, bool>;

    /// Stores a session; its identifier, or none where the login has made one before.
    fn create_session(&self, session: NewLoginSession) -> RecordFuture<'_, Option<String>>;

    /// The last request of a session that is stored, in seconds of Unix; none where the session is not.
    fn last_active<'a>(&'a self, session_id: &'a str) -> RecordFuture<'a, Option<i64>>;

    /// Removes a session, which ends it on all nodes.
    fn remove_session<'a>(&'a self, session_id: &'a str) -> RecordFuture<'a, ()>;

    /// Grows when sessions may have changed without a word to the gateway; none while it is not notified of changes.
    fn missed_changes(&self) -> Option<u64>;
}
