//! What agent and service say to each other.
//!
//! Names are written exactly as the protocol spells them, and read with [`decode`], which does not
//! care about their case: agents in the wild differ in it.

mod auth;
mod base64;
mod bind;
mod command;
mod endpoint_options;
mod error_text;
mod hidden;
mod lenient_json;
mod options;

pub use auth::{Auth, AuthAnswer, AuthAnswerExtra, AuthExtra, ConnectAddress};
pub use base64::Base64;
pub use bind::{
    Bind, BindAnswer, BindAnswerExtra, BindExtra, BindLabeled, BindLabeledAnswer, PatchTunnelState,
    Unbind,
};
pub use command::{Answer, ProxyHeader, Restart, SrvInfo, SrvInfoAnswer, Stop, StopTunnel, Update};
pub use endpoint_options::{
    BasicAuth, BasicAuthCredential, CircuitBreaker, Empty, Headers, HttpOpts, IpRestriction, Login,
    MutualTls, TcpOpts, TlsOpts, TlsTermination, UserAgentFilter, WebhookVerification,
};
pub use error_text::{Failure, error_text};
pub use hidden::Hidden;
pub use lenient_json::{MessageError, decode, from_value};
pub use options::BindOpts;
