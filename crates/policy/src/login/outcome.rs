//! What an action asks of whoever runs the rules, and what it is told.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use serde_json::Value as Json;

use super::super::verdict::LocalResponse;
use super::config::LoginConfig;
use super::identity::Identity;
use super::provider::ClientSecret;
use super::visit::LoginVisit;

/// Asks who has sent a request.
#[derive(Debug)]
pub struct LoginRequest {
    /// What the action asks for.
    pub config: Arc<LoginConfig>,
    /// What the issuer calls this service.
    pub client_id: String,
    /// What the service proves that with.
    pub client_secret: ClientSecret,
    /// What the request says.
    pub visit: LoginVisit,
    /// Whose login it is: the edge, or the account of the agent; empty until it is said.
    pub owner: Arc<str>,
}

/// Who has sent a request, or what is answered in place of the upstream.
#[derive(Debug)]
pub enum LoginOutcome {
    /// Somebody with a session.
    Admitted(Box<Admission>),
    /// Nobody yet, or a step of a login.
    Answered {
        /// What the visitor gets.
        response: LocalResponse,
        /// What later expressions find of it.
        result: Json,
    },
}

/// Somebody with a session.
#[derive(Clone)]
pub struct Admission {
    /// Who it is.
    pub identity: Identity,
    /// The session.
    pub session_id: String,
    /// What the issuer calls them; none where it speaks OAuth alone.
    pub id_token: Option<String>,
    /// What opens other services for them.
    pub access_token: Option<String>,
    /// What the next access token is got with.
    pub refresh_token: Option<String>,
    /// When the session ends, RFC 3339.
    pub expires_at: String,
    /// Whether the issuer was asked again for this request.
    pub is_refreshed: bool,
    /// Fields for the response, such as new cookies.
    pub headers: HeaderMap,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl LoginOutcome {
    /// A refusal with a sentence, which nobody keeps.
    pub fn refused(status: StatusCode, code: u16, sentence: &'static str) -> Self {
        let mut response = LocalResponse::refusal(status, code, sentence);
        response
            .headers
            .insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
        let result = serde_json::json!({"error": {"code": code, "message": sentence}});
        Self::Answered { response, result }
    }
}
