//! The fields of a definition: what is given, what was asked for, and what is wrong.

use std::sync::Arc;

use rustls::ServerConfig;
use serde_json::{Map, Value};

use super::Definition;

/// The fields of a definition while it is read.
pub(super) struct DefinitionFields<'a> {
    pub(super) document: &'a Map<String, Value>,
    seen: Vec<&'static str>,
    pub(super) problems: Vec<String>,
    /// How TLS of visitors ends at the agent, once that is read.
    pub(super) ends_tls: Option<Arc<ServerConfig>>,
}

impl<'a> DefinitionFields<'a> {
    /// Nothing is read yet.
    pub fn of(document: &'a Map<String, Value>) -> Self {
        Self { document, seen: Vec::new(), problems: Vec::new(), ends_tls: None }
    }

    /// The definition, if nothing is wrong with it.
    pub fn settle(self, definition: Option<Definition>) -> Result<Definition, Vec<String>> {
        match definition {
            Some(definition) if self.problems.is_empty() => Ok(definition),
            _ => Err(self.problems),
        }
    }

    /// An object with two lists of texts.
    pub(super) fn lists(
        &mut self,
        field: &'static str,
        names: [&str; 2],
    ) -> Option<[Vec<String>; 2]> {
        let members = self.members(field, &names)?;
        let mut wrong = false;
        let lists = names.map(|name| match members.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(value) => texts(value).unwrap_or_else(|| {
                wrong = true;
                Vec::new()
            }),
        });
        if wrong {
            self.problem(field, &format!("{} and {} must be lists of strings", names[0], names[1]));
        }
        Some(lists)
    }

    pub(super) fn members(
        &mut self,
        field: &'static str,
        names: &[&str],
    ) -> Option<Map<String, Value>> {
        let value = self.value(field)?.clone();
        let Value::Object(members) = value else {
            self.problem(field, &format!("must be an object of {}", names.join(" and ")));
            return None;
        };
        for name in members.keys().filter(|name| !names.contains(&name.as_str())) {
            self.problems.push(format!("{field}: field {name} not found in type {field}"));
        }
        Some(members)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Option<String> {
        match self.value(field)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.problem(field, "must be a string");
                None
            }
        }
    }

    pub(super) fn texts(&mut self, field: &'static str) -> Option<Vec<String>> {
        let count = texts(self.value(field)?);
        if count.is_none() {
            self.problem(field, "must be a list of strings");
        }
        count
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Option<bool> {
        match self.value(field)? {
            Value::Bool(flag) => Some(*flag),
            _ => {
                self.problem(field, "must be true or false");
                None
            }
        }
    }

    /// A field that is given; null is as good as absent.
    pub(super) fn value(&mut self, field: &'static str) -> Option<&'a Value> {
        self.seen.push(field);
        self.document.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn refuse(&mut self, field: &'static str, problem: &str) {
        if self.value(field).is_some() {
            self.problem(field, problem);
        }
    }

    pub(super) fn problem(&mut self, field: &str, problem: &str) {
        self.problems.push(format!("{field}: {problem}"));
    }

    /// Notes the fields that nobody asked for.
    pub fn refuse_unknown(&mut self) {
        if !self.problems.is_empty() && self.seen.len() < 4 {
            return;
        }
        for (name, value) in self.document {
            if !self.seen.contains(&name.as_str()) && !value.is_null() {
                let problem = match KNOWN_FIELDS.contains(&name.as_str()) {
                    true => format!("{name}: does not belong to this kind of tunnel"),
                    false => format!("{name}: field {name} not found in type tunnel"),
                };
                self.problems.push(problem);
            }
        }
    }
}

/// The fields of all kinds of tunnels.
const KNOWN_FIELDS: &[&str] = &[
    "addr",
    "app_protocol",
    "auth",
    "basic_auth",
    "bind_tls",
    "circuit_breaker",
    "compression",
    "crt",
    "domain",
    "host_header",
    "hostname",
    "inspect",
    "ip_restriction",
    "key",
    "labels",
    "metadata",
    "mutual_tls_cas",
    "name",
    "oauth",
    "policy",
    "proto",
    "proxy_proto",
    "proxy_protocol",
    "remote_addr",
    "request_header",
    "response_header",
    "schemes",
    "subdomain",
    "terminate_at",
    "traffic_policy",
    "upstream_tls_verify",
    "upstream_tls_verify_cas",
    "user_agent_filter",
    "verify_webhook",
    "websocket_tcp_converter",
];

/// The texts of a list of texts.
fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}
