//! The options of a bind: one object on the wire, whose members depend on the protocol.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::protocol::message::{MessageError, from_value};

/// The options of a bind as they came; what an answer must echo.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BindOpts(Map<String, Value>);

impl BindOpts {
    /// The object form of typed options.
    ///
    /// # Errors
    /// When the options do not make an object.
    pub fn from_typed<T: Serialize>(options: &T) -> Result<Self, MessageError> {
        from_value(serde_json::to_value(options).map_err(MessageError::from)?)
    }

    /// Reads the options as [`HttpOpts`](super::HttpOpts), [`TcpOpts`](super::TcpOpts) or
    /// [`TlsOpts`](super::TlsOpts).
    ///
    /// # Errors
    /// When a member has the wrong type.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, MessageError> {
        from_value(Value::Object(self.0.clone()))
    }

    /// A member, whatever the case of its name; `None` when it is absent or null.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// A member that is non-empty text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Gives a member a value, replacing every other spelling of its name.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.retain(|known, _| known == name || !known.eq_ignore_ascii_case(name));
        self.0.insert(name.to_owned(), value.into());
    }

    /// Adds the members that clients need in an answer and the request left out.
    pub fn complete(&mut self, proto: &str) {
        let needed: &[(&str, Value)] = match proto {
            "tcp" => &[("Addr", Value::String(String::new())), ("ProxyProto", Value::from(0))],
            "tls" => &[
                ("Hostname", Value::String(String::new())),
                ("Subdomain", Value::String(String::new())),
                ("ProxyProto", Value::from(0)),
                ("MutualTLSAtAgent", Value::Bool(false)),
            ],
            _ => &[
                ("Hostname", Value::String(String::new())),
                ("Auth", Value::String(String::new())),
                ("Subdomain", Value::String(String::new())),
                ("HostHeaderRewrite", Value::Bool(false)),
                ("ProxyProto", Value::from(0)),
            ],
        };
        for (name, default) in needed {
            if self.get(name).is_none() {
                self.set(name, default.clone());
            }
        }
    }
}

/// Names only: options hold passwords and keys.
impl fmt::Debug for BindOpts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
