//! What expressions see of a message, where it takes work to find out.

use std::sync::OnceLock;

use cel::common::types::CelMap;

use super::user_agent_facts::UserAgentFacts;

/// What was worked out once for all rules; forgotten when the message changes.
#[derive(Debug, Default)]
pub(super) struct Memo {
    pub(super) client_ip: OnceLock<String>,
    pub(super) server_ip: OnceLock<String>,
    /// None where the host is in its one form as it is.
    pub(super) authority: OnceLock<Option<String>>,
    pub(super) url: OnceLock<String>,
    pub(super) raw_url: OnceLock<String>,
    /// None where the path is normalized as it is.
    pub(super) path: OnceLock<Option<String>>,
    pub(super) path_and_query: OnceLock<Option<String>>,
    pub(super) query: OnceLock<CelMap<'static>>,
    pub(super) cookies: OnceLock<CelMap<'static>>,
    pub(super) user_agent: OnceLock<UserAgentFacts>,
    pub(super) response_cookies: OnceLock<CelMap<'static>>,
}

impl Memo {
    pub(super) fn forget_request(&mut self) {
        self.authority.take();
        self.url.take();
        self.raw_url.take();
        self.path.take();
        self.path_and_query.take();
        self.query.take();
        self.cookies.take();
        self.user_agent.take();
    }

    pub(super) fn forget_response(&mut self) {
        self.response_cookies.take();
    }
}
