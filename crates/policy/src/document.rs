//! Documents: the phases, in both of their spellings.
//!
//! Traffic policy sheet, section 1.

use std::io;
use std::net::IpAddr;

use serde_json::{Map, Value};

use ginnel_api::policy_document;

use super::actions::terminate_tls::TerminateTls;
use super::address::AddressKinds;
use super::checker::Checker;
use super::fields::{field_faults, find_field, is_field};
use super::head_rules::HeadRules;
use super::login::{LoginConfig, LoginVisit, OauthApplications};
use super::path::{Ambiguity, RequestPath};
use super::problem::{DocumentPath, Problem, code};
use super::rule::{ACTION_FIELDS, RULE_FIELDS, Rule};
use super::secrets::SecretName;
use super::{Phase, Scope};

/// How large a document may be as JSON, in bytes.
const SIZE: usize = 64 << 10;

/// How many rules a phase may have.
const RULES: usize = 100;

/// The fields of a document from before phases had the names of today.
const OLD_PHASES: &[&str] = &["inbound", "outbound"];
const PHASES: &[&str] = &["on_tcp_connect", "on_http_request", "on_http_response"];

/// A document that was checked and compiled.
#[derive(Debug)]
pub struct Policy {
    /// Whether it is applied at all; true unless the document says otherwise.
    pub enabled: bool,
    /// Whether anything in it looks at the paths of requests, so that they must not be ambiguous.
    pub reads_paths: bool,
    /// What its rules ask of the addresses of visitors.
    pub address_kinds: AddressKinds,
    /// The secrets that its rules read, each once.
    pub secrets: Vec<SecretName>,
    /// The rules for connections.
    pub connect: Vec<Rule>,
    /// The rules for requests.
    pub request: Vec<Rule>,
    /// The rules for responses.
    pub response: Vec<Rule>,
    /// The rules for connections that have closed.
    pub close: Vec<Rule>,
    /// Whether visitors must have logged in for any of its rules.
    pub has_logins: bool,
    /// What the rules for requests do with a head alone.
    pub(super) head_rules: Option<HeadRules>,
}

impl Policy {
    /// A policy without rules.
    pub fn empty() -> Self {
        let (connect, request, response, close) = Default::default();
        let (reads_paths, address_kinds, secrets, has_logins, head_rules) = Default::default();
        Self {
            enabled: true,
            reads_paths,
            address_kinds,
            secrets,
            connect,
            request,
            response,
            close,
            has_logins,
            head_rules,
        }
    }

    /// Compiles a document for what it is put on, or finds all that is wrong with it.
    pub fn compile(document: &Value, scope: Scope) -> Result<Self, Vec<Problem>> {
        let whole = DocumentPath::top_level("document");
        let document = &*policy_document::with_texts(document);
        let Some(fields) = document.as_object() else {
            return Err(vec![whole.problem(code::DOCUMENT, "must be an object")]);
        };
        if !fits_size_limit(document) {
            return Err(vec![whole.problem(code::DOCUMENT, format!("larger than {SIZE} bytes"))]);
        }
        compile_document(fields, scope)
    }

    /// Reads a document from JSON or YAML, and compiles it.
    pub fn parse(text: &str, scope: Scope) -> Result<Self, Vec<Problem>> {
        Self::compile(&read_document(text).map_err(|problem| vec![problem])?, scope)
    }

    /// The rules of a phase.
    pub fn rules(&self, phase: Phase) -> &[Rule] {
        match phase {
            Phase::Connect => &self.connect,
            Phase::Request => &self.request,
            Phase::Response => &self.response,
            Phase::Close => &self.close,
        }
    }

    /// The IP policies that actions refer to; one that is named twice comes twice.
    pub fn ip_policy_ids(&self) -> impl Iterator<Item = &str> {
        [&self.connect, &self.request, &self.response, &self.close]
            .into_iter()
            .flatten()
            .flat_map(|rule| &rule.actions)
            .flat_map(|step| step.action.ip_policies())
            .map(String::as_str)
    }

    /// How TLS is spoken with visitors, where the policy says so.
    pub fn tls_termination(&self) -> Option<&TerminateTls> {
        self.tls_terminations().next().filter(|_| self.enabled)
    }

    fn tls_terminations(&self) -> impl Iterator<Item = &TerminateTls> {
        self.connect
            .iter()
            .flat_map(|rule| &rule.actions)
            .filter_map(|step| step.action.tls_termination())
    }

    /// Whether visitors log in at an issuer that is reached over this machine alone.
    pub fn has_local_issuers(&self) -> bool {
        self.login_configs().any(LoginConfig::is_local)
    }

    /// The addresses of issuers, where documents write them in place of names.
    pub fn issuer_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.login_configs().flat_map(LoginConfig::literal_addresses)
    }

    /// Whether a step of a login belongs to one of its rules.
    pub fn takes_login(&self, visit: &LoginVisit) -> bool {
        self.login_configs().any(|config| visit.is_for(config))
    }

    /// What is wrong with its logins where the operator has these applications.
    pub fn login_problem(&self, applications: &OauthApplications) -> Option<Problem> {
        let message = self.login_configs().find_map(|config| config.setup_problem(applications))?;
        Some(DocumentPath::top_level("document").problem(code::VALUE, message))
    }

    fn login_configs(&self) -> impl Iterator<Item = &LoginConfig> {
        let steps = self.request.iter().flat_map(|rule| &rule.actions);
        steps.filter_map(|step| step.action.login_config())
    }

    /// Why a request with this path is not for the rules, where they look at paths.
    pub fn path_ambiguity(&self, path: &str) -> Option<Ambiguity> {
        let reads = self.enabled && self.reads_paths;
        if reads { RequestPath::new(path).ambiguity() } else { None }
    }

    fn rules_mut(&mut self, phase: Phase) -> &mut Vec<Rule> {
        match phase {
            Phase::Connect => &mut self.connect,
            Phase::Request => &mut self.request,
            Phase::Response => &mut self.response,
            Phase::Close => &mut self.close,
        }
    }
}

/// Reads a document from JSON or YAML.
pub fn read_document(text: &str) -> Result<Value, Problem> {
    policy_document::read_document(text).map_err(|error| {
        let place =
            DocumentPath::top_level(if error.path.is_empty() { "document" } else { &error.path });
        place.problem(code::DOCUMENT, error.problem)
    })
}

/// Returns the problem of a document whose text is not known and that has a number in a text field.
pub fn unclear_number(document: &Value) -> Option<Problem> {
    let path = policy_document::unclear_number(document)?;
    let message = "is a number in a text field, and its spelling is not known; put it into quotes";
    Some(DocumentPath::top_level(path.trim_start_matches('.')).problem(code::CONFIG, message))
}

fn compile_document(fields: &Map<String, Value>, scope: Scope) -> Result<Policy, Vec<Problem>> {
    let mut policy = Policy::empty();
    let mut checker = Checker::new(Phase::Request);
    checker.problems.extend(mixed_spellings(fields));
    let known: Vec<_> = fields.keys().map(|spelled| field_name(spelled)).collect();
    for (name, fault) in field_faults(fields, &known) {
        checker.record_problem(&DocumentPath::top_level(name), code::DOCUMENT, fault);
    }
    for (spelled, value) in fields {
        let (name, place) = (field_name(spelled), DocumentPath::top_level(spelled));
        if name == "enabled" {
            match value {
                Value::Null => {}
                Value::Bool(enabled) => policy.enabled = *enabled,
                _ => {
                    checker.record_problem(&place, code::DOCUMENT, "enabled must be true or false")
                }
            }
            continue;
        }
        match parse_phase(name, scope) {
            Err((code, message)) => checker.record_problem(&place, code, message),
            Ok(phase) => {
                checker.phase = phase;
                *policy.rules_mut(phase) = compile_rules(&mut checker, &place, value);
            }
        }
    }
    if scope.is_edge() && policy.tls_termination().is_some() {
        let message = "terminate-tls is for endpoints of agents: edges have a module for it";
        checker.record_problem(&DocumentPath::top_level("inbound"), code::PROTOCOL, message);
    }
    if policy.tls_terminations().nth(1).is_some() {
        let message = "there is more than one terminate-tls";
        checker.record_problem(&DocumentPath::top_level("on_tcp_connect"), code::DOCUMENT, message);
    }
    policy.reads_paths = checker.reads.path;
    policy.address_kinds = checker.reads.addresses;
    policy.secrets = checker.secrets.into_iter().collect();
    let mut steps = policy.request.iter().flat_map(|rule| &rule.actions);
    policy.has_logins = steps.any(|step| step.action.login_config().is_some());
    // Whether secrets are all there is found out where there is a message to refuse, and what visitors say
    // of themselves is taken off whole messages.
    let is_whole = !policy.secrets.is_empty() || policy.has_logins;
    policy.head_rules = if is_whole { None } else { HeadRules::from_rules(&policy.request) };
    if checker.problems.is_empty() { Ok(policy) } else { Err(checker.problems) }
}

/// The name of a field of the document, whatever its spelling; what is no such field keeps its name.
fn field_name(spelled: &str) -> &str {
    let mut names = OLD_PHASES.iter().chain(PHASES).chain(&["enabled"]);
    names.find(|name| is_field(spelled, name)).copied().unwrap_or(spelled)
}

/// A document for an edge with the names that the module of edges has for its fields: `inbound` and `outbound`
/// for the phases, and those of rules and actions, whatever their spelling.
pub fn as_edge_module(document: Value) -> Value {
    let rule = |rule| {
        rename_fields(rule, rule_field, |name, value| match name {
            "actions" => {
                map_items(value, |action| rename_fields(action, action_field, |_, value| value))
            }
            _ => value,
        })
    };
    rename_fields(document, edge_field, |name, value| match name {
        "inbound" | "outbound" => map_items(value, rule),
        _ => value,
    })
}

fn edge_field(spelled: &str) -> &str {
    match field_name(spelled) {
        "on_http_request" => "inbound",
        "on_http_response" => "outbound",
        name => name,
    }
}

fn rule_field(spelled: &str) -> &str {
    known_field(spelled, RULE_FIELDS)
}

fn action_field(spelled: &str) -> &str {
    known_field(spelled, ACTION_FIELDS)
}

fn known_field<'s>(spelled: &'s str, known: &[&'static str]) -> &'s str {
    known.iter().find(|name| is_field(spelled, name)).copied().unwrap_or(spelled)
}

fn map_items(list: Value, change: impl Fn(Value) -> Value) -> Value {
    match list {
        Value::Array(items) => Value::Array(items.into_iter().map(change).collect()),
        other => other,
    }
}

/// An object with other names for its fields, and what becomes of their values.
fn rename_fields(
    object: Value,
    name_of: impl Fn(&str) -> &str,
    change: impl Fn(&str, Value) -> Value,
) -> Value {
    let Value::Object(fields) = object else { return object };
    let fields = fields.into_iter().map(|(spelled, value)| {
        let name = name_of(&spelled);
        (name.to_owned(), change(name, value))
    });
    Value::Object(fields.collect())
}

/// The phase that a field of the document names, or what is wrong with it.
fn parse_phase(name: &str, scope: Scope) -> Result<Phase, (u16, String)> {
    match name {
        "inbound" if scope.is_http() => Ok(Phase::Request),
        "inbound" => Ok(Phase::Connect),
        "outbound" if scope.is_http() => Ok(Phase::Response),
        "outbound" => Ok(Phase::Close),
        "on_tcp_connect" if scope.is_edge() => {
            Err((code::EDGE_PHASE, format!("{name} is not available on edges")))
        }
        "on_tcp_connect" => Ok(Phase::Connect),
        "on_http_request" if scope.is_http() => Ok(Phase::Request),
        "on_http_response" if scope.is_http() => Ok(Phase::Response),
        "on_http_request" | "on_http_response" => {
            Err((code::PHASE, format!("{name} needs http traffic")))
        }
        "on_event_stream_message" => {
            let message = format!("{name} is not supported: events of a stream pass as they are");
            Err((code::PHASE, message))
        }
        _ => Err((code::PHASE, format!("unknown phase {name:?}"))),
    }
}

fn mixed_spellings(fields: &Map<String, Value>) -> Option<Problem> {
    let has = |name: &&&str| find_field(fields, name).is_some();
    let (old, new) = (OLD_PHASES.iter().find(has)?, PHASES.iter().find(has)?);
    let message = format!("{new} and {old} cannot be in one document");
    Some(DocumentPath::top_level("document").problem(code::DOCUMENT, message))
}

fn compile_rules(checker: &mut Checker, place: &DocumentPath, value: &Value) -> Vec<Rule> {
    let rules = match value {
        Value::Null => return Vec::new(),
        Value::Array(rules) => rules,
        _ => {
            checker.record_problem(place, code::DOCUMENT, "must be a list of rules");
            return Vec::new();
        }
    };
    if rules.len() > RULES {
        checker.record_problem(place, code::RULE_COUNT, format!("more than {RULES} rules"));
        return Vec::new();
    }
    let mut compiled: Vec<Rule> = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let place = place.entry(index);
        if compiled.iter().any(Rule::always_ends) {
            checker.record_problem(&place, code::UNREACHABLE, "a rule before it ends the phase");
        }
        compiled.push(Rule::parse(checker, &place, rule));
    }
    compiled
}

/// Whether the document is small enough; stops counting when it is not.
fn fits_size_limit(document: &Value) -> bool {
    serde_json::to_writer(Room(SIZE), document).is_ok()
}

/// A writer that keeps nothing and takes so many bytes.
struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
