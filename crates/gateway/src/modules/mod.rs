//! What is done with requests and answers on their way, module by module.
//!
//! `module` contains what acts on traffic, `edge_module` how modules are built for edges and tunnels and how the
//! management API checks them, and `endpoint` builds the modules of an agent's endpoint. `docs/architecture.md` lists
//! the places of a new module.

pub mod backend;
pub mod basic_auth;
pub mod circuit_breaker;
pub mod compression;
pub mod edge_module;
pub mod header_changes;
pub mod header_edits;
pub mod ip_policies;
pub mod ip_restriction;
pub mod login_rule;
pub mod module;
mod mutual_tls;
mod oauth;
mod oidc;
pub mod policy_cache;
pub mod policy_resources;
mod prelude;
pub mod tls_termination;
pub mod traffic_policy;
pub mod user_agent_filter;
pub mod webhook_verification;
pub mod websocket_tcp;

macro_rules! module_kinds {
    ($($(#[doc = $doc:literal])+ $Kind:ident = $name:literal,)+) => {
        /// The kinds of modules, in the order in which requests meet them; answers meet them the other
        /// way round (remote API sheet, section 6).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ModuleKind {
            $($(#[doc = $doc])+ $Kind,)+
        }

        impl ModuleKind {
            /// The name, as in the API and in events.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Kind => $name,)+
                }
            }
        }
    };
}

module_kinds! {
    /// Who may come, by address.
    IpRestriction = "ip_restriction",
    /// Who may come, by program.
    UserAgentFilter = "user_agent_filter",
    /// Who may come, by password.
    BasicAuth = "basic_auth",
    /// Compresses answers, when all others have done what they do with them.
    Compression = "compression",
    /// Who may come, by what an issuer says of them.
    Oidc = "oidc",
    /// Who may come, by what a provider of OAuth says of them.
    Oauth = "oauth",
    /// Whose signatures requests must carry.
    WebhookVerification = "webhook_verification",
    /// Rules for connections, requests and answers.
    Policy = "policy",
    /// Changes the headers of answers.
    ResponseHeaders = "response_headers",
    /// Changes the headers of requests.
    RequestHeaders = "request_headers",
    /// Spares a backend that fails.
    CircuitBreaker = "circuit_breaker",
    /// Carries the messages of WebSockets as bytes.
    WebsocketTcpConverter = "websocket_tcp_converter",
}
