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

pub use auth::{Auth, AuthAnswer, AuthAnswerExtra, AuthExtra, ConnectAddress, SAME_NODE_CODE};
pub use base64::Base64Bytes;
pub use bind::{
    Bind, BindAnswer, BindAnswerExtra, BindExtra, BindLabeled, BindLabeledAnswer, PatchTunnelState,
    Unbind,
};
pub use command::{
    CommandResponse, ProxyHeader, Restart, SrvInfo, SrvInfoAnswer, Stop, StopTunnel, Update,
};
pub use endpoint_options::{
    BasicAuthCredential, BasicAuthOptions, CircuitBreakerOptions, Empty, HeaderOptions, HttpOpts,
    IpRestrictionOptions, LoginOptions, MutualTlsOptions, TcpOpts, TlsOpts, TlsTerminationOptions,
    UserAgentOptions, WebhookOptions,
};
pub use error_text::{RemoteError, error_text};
pub use hidden::Hidden;
pub use lenient_json::{MessageError, decode, from_value};
pub use options::BindOpts;
