//! What agent and service say to each other.
//!
//! Names are written exactly as the protocol spells them, and read with [`decode_message`], which does not
//! care about their case: agents in the wild differ in it.

mod auth;
mod bind;
mod command;
mod error_text;
mod hidden;
mod options;

pub use ginnel_api::lenient_json::{MessageError, decode_message, from_value};

pub use auth::{Auth, AuthAnswer, AuthAnswerExtra, AuthExtra, ConnectAddress, SAME_NODE_CODE};
pub use bind::{
    Bind, BindAnswer, BindAnswerExtra, BindExtra, BindLabeled, BindLabeledAnswer, PatchTunnelState,
    Unbind,
};
pub use command::{
    CommandResponse, ProxyHeader, Restart, SrvInfo, SrvInfoAnswer, Stop, StopTunnel, Update,
};
pub use error_text::{RemoteError, error_text};
pub use hidden::Hidden;
pub use options::{BindOpts, BindPlace};
