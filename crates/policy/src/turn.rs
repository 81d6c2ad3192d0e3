//! What an action that runs sees and changes, and what it says comes next.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::Value as Json;

use super::action_error::{ActionError, ActionResult, failure};
use super::exchange::{Content, Exchange};
use super::facts::Facts;
use super::jwt::{KeyRequest, KeySet};
use super::login::{LoginOutcome, LoginRequest};
use super::phase::Phase;
use super::template::Template;
use super::verdict::{Fetch, Fetched, Verdict};
use super::world::World;

/// What an action does next.
#[derive(Debug)]
pub enum Flow {
    /// The next action runs.
    Continue,
    /// The phase ends.
    End(Verdict),
    /// The action runs again when the body is there.
    NeedBody {
        /// How many bytes it takes at most.
        limit: usize,
    },
    /// The action runs again when the answer is there.
    Fetch(Fetch),
    /// The action runs again when the keys are there, or when it is known that they are not.
    Keys(KeyRequest),
    /// The action runs again when it is known who has sent the request.
    Login(Box<LoginRequest>),
}

/// What an action that runs can see and change.
pub struct Turn<'a> {
    /// The exchange.
    pub exchange: &'a mut Exchange,
    /// The world around it.
    pub world: &'a dyn World,
    /// The phase that runs.
    pub phase: Phase,
    /// The number of the rule in its phase.
    pub rule: usize,
    /// The number of the action in its rule.
    pub action: usize,
    /// What was fetched for the action.
    pub(super) answers: &'a [(Fetch, Fetched)],
    /// The keys that the action has asked for; none where they cannot be had.
    pub(super) keys: &'a [(KeyRequest, Option<Arc<KeySet>>)],
    /// Who has sent the request, once the action has asked.
    pub(super) login: Option<LoginOutcome>,
    /// What later expressions find under `actions.ngrok`.
    pub(super) result: Option<Arc<Json>>,
}

impl Turn<'_> {
    /// What expressions can see.
    pub(super) fn facts(&self) -> Facts<'_> {
        Facts::new(self.exchange, self.world)
    }

    /// The text of a template.
    pub(super) fn render(&self, template: &Template) -> ActionResult<String> {
        template.render(&self.facts(), std::convert::identity)
    }

    /// Keeps what later expressions find under `actions.ngrok`.
    pub(super) fn set_result(&mut self, result: impl Into<Arc<Json>>) {
        self.result = Some(result.into());
    }

    /// The headers that the phase changes.
    pub(super) fn headers_mut(&mut self) -> Option<&mut HeaderMap> {
        self.exchange.headers_mut(self.phase)
    }

    /// All of the body of the phase; none while it is still to be asked for.
    pub(super) fn full_body(&self, limit: usize) -> ActionResult<Option<Bytes>> {
        match self.exchange.body(self.phase) {
            Some(Content::Passing) => Ok(None),
            Some(Content::Full(body)) if body.len() <= limit => Ok(Some(body.clone())),
            _ => {
                Err(ActionError::fatal(failure::BODY, format!("a body of more than {limit} bytes")))
            }
        }
    }

    /// What came of something that was asked for.
    pub(super) fn find_fetched(&self, fetch: &Fetch) -> Option<&Fetched> {
        self.answers.iter().find(|(asked, _)| asked == fetch).map(|(_, fetched)| fetched)
    }

    /// The keys that were asked for, where that was done.
    pub(super) fn find_keys(&self, request: &KeyRequest) -> Option<&Option<Arc<KeySet>>> {
        self.keys.iter().find(|(asked, _)| asked == request).map(|(_, keys)| keys)
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.world.now()
    }

    pub(super) fn instant(&self) -> Instant {
        self.world.instant()
    }
}
