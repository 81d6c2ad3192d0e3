//! The options of a bind: one object on the wire, whose members depend on the protocol.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use ginnel_api::EndpointOptions;
use ginnel_api::endpoint_options::member;

use crate::protocol::message::{MessageError, from_value};

/// The place of an endpoint, and what its agent does with connections: the members of a bind that are not modules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindPlace {
    /// The wanted address as a full URL.
    #[serde(rename = "URL")]
    pub url: String,
    /// The wanted host name.
    pub domain: String,
    /// The wanted host name, as older agents name it.
    pub hostname: String,
    /// The wanted first label of the host name.
    pub subdomain: String,
    /// The wanted host and port of a TCP endpoint.
    pub addr: String,
    /// The version of the PROXY protocol to put in front of each connection; 0 for none.
    pub proxy_proto: u8,
    /// True if the agent asks visitors for certificates.
    #[serde(rename = "MutualTLSAtAgent")]
    pub mutual_tls_at_agent: bool,
}

/// The members of a [`BindPlace`] that a bind of this protocol has.
fn place_members(proto: &str) -> &'static [&'static str] {
    match proto {
        "tcp" => &["URL", "Addr", "ProxyProto"],
        "tls" => &["URL", "Domain", "Hostname", "Subdomain", "ProxyProto", "MutualTLSAtAgent"],
        _ => &["URL", "Domain", "Hostname", "Subdomain", "ProxyProto"],
    }
}

/// The options of a bind as they came; what an answer must echo.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BindOpts(Map<String, Value>);

impl BindOpts {
    /// Returns the options that an agent sends for an endpoint.
    pub fn of_endpoint(proto: &str, place: &BindPlace, options: &EndpointOptions) -> Self {
        // A plain struct always makes an object.
        let place = serde_json::to_value(place).unwrap_or_default();
        let value = |name: &str| place.get(name).cloned().unwrap_or_default();
        let mut members: Map<String, Value> =
            place_members(proto).iter().map(|name| ((*name).to_owned(), value(name))).collect();
        if matches!(proto, "http" | "https") {
            let unused = [
                ("Auth", Value::String(String::new())),
                ("HostHeaderRewrite", Value::Bool(false)),
                ("LocalUrlScheme", Value::Null),
            ];
            members.extend(unused.map(|(name, value)| (name.to_owned(), value)));
        }
        options.encode(proto, &mut members);
        Self(members)
    }

    /// Reads the place of the endpoint of a bind.
    ///
    /// # Errors
    /// When a member has the wrong type.
    pub fn place(&self, proto: &str) -> Result<BindPlace, MessageError> {
        let names = place_members(proto).iter();
        let given =
            names.filter_map(|name| Some(((*name).to_owned(), member(&self.0, name)?.clone())));
        from_value(Value::Object(given.collect()))
    }

    /// Reads the modules of the endpoint of a bind.
    ///
    /// # Errors
    /// If a member has another form, or contains a value that no service can use.
    pub fn endpoint(&self, proto: &str) -> Result<EndpointOptions, String> {
        EndpointOptions::decode(proto, &self.0)
    }

    /// A member, whatever the case of its name; `None` when it is absent or null.
    pub fn get(&self, name: &str) -> Option<&Value> {
        member(&self.0, name)
    }

    /// A member that is non-empty text.
    pub fn text_member(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Gives a member a value, replacing every other spelling of its name.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.retain(|known, _| known == name || !known.eq_ignore_ascii_case(name));
        self.0.insert(name.to_owned(), value.into());
    }

    /// Adds the members that clients need in an answer and the request left out.
    pub fn fill_defaults(&mut self, proto: &str) {
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
