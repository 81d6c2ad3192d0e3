//! The actions, one per file: what each can be told, checked and ready to run.
//!
//! Traffic policy sheet, section 3.

pub mod add_headers;
pub mod basic_auth;
pub mod body_find_replace;
pub mod change;
pub mod circuit_breaker;
pub mod close_connection;
pub mod compress_response;
pub mod custom_response;
pub mod deny;
pub mod forward_internal;
pub mod http_request;
pub mod jwt_validation;
pub mod log;
mod nginx;
pub mod rate_limit;
pub mod redirect;
pub mod remove_headers;
pub mod restrict_ips;
pub mod set_vars;
pub mod url_rewrite;
pub mod verify_webhook;
