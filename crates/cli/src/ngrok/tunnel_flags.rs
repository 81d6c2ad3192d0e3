//! The options of `http`, `tcp` and `tls`: one row each, and the field of a tunnel's definition that it sets.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value, json};

use ginnel_agent::definition::{Definition, PublicAddress, binding_problem};
use ginnel_api::endpoint_options::{TUNNEL_MODULES, TunnelModuleInfo};
use ginnel_api::local::tunnels;
use ginnel_api::{Field, Kind, Operation, documentation, mask};

use super::remote_file::{self, FetchError};
use crate::agent::{UNNAMED, read_file};
use crate::error::{CliError, CommandResult, Exit};

/// An option.
#[derive(Clone)]
struct TunnelFlag {
    name: &'static str,
    /// The commands that have it.
    commands: &'static [&'static str],
    /// The field that it sets; a dot leads into a record.
    field: Cow<'static, str>,
    value: FlagValue,
}

/// What is written behind an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagValue {
    Text,
    /// It may be repeated.
    Texts,
    Number,
    /// True where nothing is written.
    Switch,
    /// The name of a file whose content is the value.
    Content,
    /// The URL of a document that is the value.
    Remote,
}

const ALL: &[&str] = &["http", "tcp", "tls"];
const HTTP: &[&str] = &["http"];
const NAMED: &[&str] = &["http", "tls"];
const TCP: &[&str] = &["tcp"];
const TLS: &[&str] = &["tls"];

const fn flag_row(
    name: &'static str,
    commands: &'static [&'static str],
    field: &'static str,
    value: FlagValue,
) -> TunnelFlag {
    TunnelFlag { name, commands, field: Cow::Borrowed(field), value }
}

/// The options that are not those of modules.
const OTHER_FLAGS: &[TunnelFlag] = &[
    flag_row("name", ALL, "name", FlagValue::Text),
    flag_row("metadata", ALL, "metadata", FlagValue::Text),
    flag_row("description", ALL, "description", FlagValue::Text),
    flag_row("domain", NAMED, "domain", FlagValue::Text),
    flag_row("hostname", NAMED, "hostname", FlagValue::Text),
    flag_row("subdomain", NAMED, "subdomain", FlagValue::Text),
    flag_row("remote-addr", TCP, "remote_addr", FlagValue::Text),
    flag_row("scheme", HTTP, "schemes", FlagValue::Texts),
    flag_row("bind-tls", HTTP, "bind_tls", FlagValue::Text),
    flag_row("host-header", HTTP, "host_header", FlagValue::Text),
    flag_row("app-protocol", HTTP, "app_protocol", FlagValue::Text),
    flag_row("upstream-protocol", HTTP, "app_protocol", FlagValue::Text),
    flag_row("inspect", HTTP, "inspect", FlagValue::Switch),
    flag_row("auth", HTTP, "auth", FlagValue::Text),
    flag_row("pooling-enabled", ALL, "pooling_enabled", FlagValue::Switch),
    flag_row("traffic-policy-file", ALL, "traffic_policy", FlagValue::Content),
    flag_row("policy-file", ALL, "policy", FlagValue::Content),
    flag_row("upstream-tls-verify", ALL, "upstream_tls_verify", FlagValue::Switch),
    flag_row("upstream-tls-verify-cas", ALL, "upstream_tls_verify_cas", FlagValue::Text),
    flag_row("mutual-tls-cas", NAMED, "mutual_tls_cas", FlagValue::Text),
    flag_row("traffic-policy-url", ALL, "traffic_policy", FlagValue::Remote),
    flag_row("proxy-proto", ALL, "proxy_proto", FlagValue::Text),
    flag_row("upstream-proxy-protocol", ALL, "proxy_proto", FlagValue::Text),
    flag_row("crt", TLS, "crt", FlagValue::Text),
    flag_row("key", TLS, "key", FlagValue::Text),
    flag_row("terminate-at", TLS, "terminate_at", FlagValue::Text),
];

/// Returns the options of a command: those of modules, which the table of modules has, and others.
fn flags(command: &str) -> impl Iterator<Item = TunnelFlag> {
    let known = OTHER_FLAGS.iter().cloned().chain(TUNNEL_MODULES.iter().flat_map(flags_of));
    known.filter(move |flag| flag.commands.contains(&command))
}

/// Returns the options of a module.
fn flags_of(row: &'static TunnelModuleInfo) -> impl Iterator<Item = TunnelFlag> {
    row.flags.iter().map(|(name, inner)| {
        let field = match *inner {
            "" => Cow::Borrowed(row.field),
            inner => Cow::Owned(format!("{}.{inner}", row.field)),
        };
        let value = known_field(&field).map_or(FlagValue::Text, |it| FlagValue::of(&it.kind));
        TunnelFlag { name, commands: row.protocols, field, value }
    })
}

impl FlagValue {
    /// Returns the form of the values of fields of this kind.
    fn of(kind: &Kind) -> Self {
        match kind {
            Kind::List(_) => Self::Texts,
            Kind::Bool => Self::Switch,
            Kind::Number => Self::Number,
            _ => Self::Text,
        }
    }
}

/// Returns the options with secret values: those of modules that set a secret, and the older form of one.
pub(super) fn secret_flags() -> impl Iterator<Item = &'static str> {
    let is_secret = |kind: &Kind| matches!(kind, Kind::Secret | Kind::List(Kind::Secret));
    let of_modules = TUNNEL_MODULES.iter().flat_map(flags_of);
    let secret = of_modules
        .filter(move |flag| known_field(&flag.field).is_some_and(|field| is_secret(&field.kind)));
    secret.map(|flag| flag.name).chain(["auth"])
}

const URL: &str = "url";
const BINDING: &str = "binding";

/// The address and the options of a command that starts one tunnel.
pub(super) fn with_arguments(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let addr = Arg::new("addr").required(true).value_name("ADDR").help(field_doc("addr"));
    let url = Arg::new(URL).long(URL).value_name("URL").help("The public URL, or its host alone");
    let binding = Arg::new(BINDING).long(BINDING).value_name("BINDING").action(ArgAction::Append);
    let binding = binding
        .value_delimiter(',')
        .help("Who can reach it: public, or internal with a --url at a host below .internal");
    command.arg(addr).arg(url).arg(binding).args(flags(&name).map(flag_argument))
}

fn flag_argument(flag: TunnelFlag) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).help(field_doc(&flag.field));
    match flag.value {
        FlagValue::Text => argument.value_name("TEXT"),
        FlagValue::Texts => argument.value_name("TEXT").action(ArgAction::Append),
        FlagValue::Number => argument.value_name("NUMBER").value_parser(value_parser!(f64)),
        FlagValue::Switch => argument
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(parse_boolean),
        FlagValue::Content => argument.value_name("FILE").value_parser(value_parser!(PathBuf)),
        FlagValue::Remote => argument
            .value_name("URL")
            .help("Where a traffic policy is fetched from, once, at the start; http or https"),
    }
}

/// Parses a boolean in one of the spellings of Go, in which the flags of such a program are written.
fn parse_boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Returns the text of the agent API about a field, or about one inside of it.
fn field_doc(field: &str) -> String {
    known_field(field).map(|field| documentation::in_one_line(field.doc)).unwrap_or_default()
}

/// Returns a field in the table of the agent API, or one inside of it.
fn known_field(path: &str) -> Option<&'static Field> {
    let mut known = tunnels::Start::INFO.parameters;
    let mut found = None;
    for name in path.split('.') {
        let field = known.iter().find(|field| field.name == name)?;
        known = match &field.kind {
            Kind::Record(shape) => shape.fields,
            _ => &[],
        };
        found = Some(field);
    }
    found
}

/// The definition that a command line gives.
pub(super) fn tunnel_definition(proto: &str, matches: &ArgMatches) -> CommandResult<Definition> {
    let mut document = Map::new();
    document.insert("proto".to_owned(), proto.into());
    document.insert("name".to_owned(), UNNAMED.into());
    if let Some(addr) = matches.get_one::<String>("addr") {
        document.insert("addr".to_owned(), addr.as_str().into());
    }
    if let Some(url) = matches.get_one::<String>(URL) {
        apply_url(url, proto, &mut document)?;
    }
    let mut present = Vec::new();
    for flag in flags(proto) {
        if let Some(value) = flag_value(&flag, matches)? {
            set_field(&mut document, &flag.field, value);
            present.push(flag);
        }
    }
    let definition = Definition::from_document(&document).map_err(|problems| {
        let problems = problems.iter().map(|problem| translate_problem(problem, &present));
        CliError::usage(problems.collect::<Vec<_>>().join("; "))
    })?;
    check_bindings(matches)?;
    Ok(definition)
}

/// A problem of a field, as one of the option that has set it.
fn translate_problem(problem: &str, present: &[TunnelFlag]) -> String {
    let of_flag = |flag: &TunnelFlag| {
        let rest = problem.strip_prefix(&*flag.field)?.strip_prefix(": ")?;
        Some(format!("--{}: {rest}", flag.name))
    };
    present.iter().find_map(of_flag).unwrap_or_else(|| problem.to_owned())
}

/// Refuses bindings that the public URL has not.
fn check_bindings(matches: &ArgMatches) -> CommandResult<()> {
    let names = [URL, "domain", "hostname", "remote-addr"].into_iter();
    let place = names.filter_map(|name| matches.try_get_one::<String>(name).ok().flatten()).next();
    let place = place.map(String::as_str);
    for binding in matches.get_many::<String>(BINDING).into_iter().flatten() {
        if let Some(problem) = binding_problem(binding, place) {
            return Err(CliError::usage(format!("--{BINDING}: {binding:?} {problem}")));
        }
    }
    Ok(())
}

/// What a public URL says of a tunnel whose protocol is known.
fn apply_url(url: &str, proto: &str, document: &mut Map<String, Value>) -> CommandResult<()> {
    let is_bare = !url.contains("://") && proto != "http";
    let url = if is_bare { format!("{proto}://{url}") } else { url.to_owned() };
    let wrong = |problem: String| CliError::usage(format!("--{URL}: {problem}"));
    let public = PublicAddress::parse_url(&url).map_err(wrong)?;
    if public.proto != proto {
        return Err(wrong(format!("is one of {}, not of {proto}", public.proto)));
    }
    let fields = [
        ("schemes", public.schemes.map(|schemes| json!(schemes))),
        ("domain", public.domain.map(Value::from)),
        ("remote_addr", public.remote_addr.map(Value::from)),
    ];
    let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    document.extend(set);
    Ok(())
}

/// What the command line says of an option; none where it says nothing.
fn flag_value(flag: &TunnelFlag, matches: &ArgMatches) -> CommandResult<Option<Value>> {
    Ok(match flag.value {
        // `true` and `false` are no texts where a field also takes these.
        FlagValue::Text if flag.field == "bind_tls" => {
            let text = matches.get_one::<String>(flag.name);
            text.map(|text| text.parse::<bool>().map_or_else(|_| json!(text), Value::from))
        }
        FlagValue::Text => matches.get_one::<String>(flag.name).map(|text| json!(text)),
        FlagValue::Texts => {
            let texts = matches.get_many::<String>(flag.name);
            texts.map(|texts| texts.map(String::as_str).collect())
        }
        FlagValue::Number => matches.get_one::<f64>(flag.name).map(|number| json!(number)),
        FlagValue::Switch => matches.get_one::<bool>(flag.name).map(|truth| json!(truth)),
        FlagValue::Content => {
            let path = matches.get_one::<PathBuf>(flag.name);
            path.map(read_file).transpose()?.map(Value::from)
        }
        FlagValue::Remote => {
            let url = matches.get_one::<String>(flag.name);
            url.map(|url| fetch_document(flag.name, url)).transpose()?.map(Value::from)
        }
    })
}

/// The document at a URL.
fn fetch_document(flag: &str, url: &str) -> CommandResult<String> {
    remote_file::fetch_text(url).map_err(|problem| {
        let exit = match problem {
            FetchError::Url(_) | FetchError::Scheme => Exit::Usage,
            _ => Exit::Unreachable,
        };
        CliError::new(exit, format!("--{flag}: {}: {problem}", mask::url(url)))
    })
}

fn set_field(document: &mut Map<String, Value>, field: &str, value: Value) {
    match field.split_once('.') {
        None => drop(document.insert(field.to_owned(), value)),
        Some((record, inner)) => {
            let record = document.entry(record).or_insert_with(|| json!({}));
            record[inner] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(command: &'static str, arguments: &[&str]) -> Result<Value, String> {
        let command = with_arguments(Command::new(command));
        let name = command.get_name().to_owned();
        let words = [name.as_str()].into_iter().chain(arguments.iter().copied());
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let read = tunnel_definition(&name, &matches).map_err(|error| error.message)?;
        Ok(Value::Object(read.document))
    }

    #[test]
    fn options_are_fields_of_the_definition() {
        let arguments = [
            "8080",
            "--url=http://a.test",
            "--name=web",
            "--metadata=m",
            "--description=d",
            "--host-header=rewrite",
            "--upstream-protocol=http2",
            "--inspect=false",
            "--basic-auth",
            "somebody:swordfish",
            "--basic-auth=other:swordfish",
            "--circuit-breaker=0.5",
            "--compression",
            "--websocket-tcp-converter=true",
            "--request-header-add=a: b",
            "--request-header-remove=c",
            "--response-header-add=d: e",
            "--response-header-remove=f",
            "--ua-filter-allow=x",
            "--ua-filter-deny=y",
            "--oauth=google",
            "--oauth-client-id=a",
            "--oauth-client-secret=b",
            "--oauth-allow-email=c@d.test",
            "--oauth-allow-email=e@d.test",
            "--oauth-allow-domain=f.test",
            "--oauth-scope=g",
            "--verify-webhook=github",
            "--verify-webhook-secret=z",
            "--cidr-allow=10.0.0.0/8",
            "--cidr-deny=10.1.0.0/16",
            "--upstream-tls-verify",
        ];

        let read = document("http", &arguments).unwrap();

        let expected = json!({
            "proto": "http", "addr": "8080", "schemes": ["http"], "domain": "a.test", "name": "web",
            "metadata": "m", "description": "d", "host_header": "rewrite", "app_protocol": "http2", "inspect": false,
            "basic_auth": ["somebody:swordfish", "other:swordfish"], "circuit_breaker": 0.5,
            "compression": true, "websocket_tcp_converter": true,
            "request_header": {"add": ["a: b"], "remove": ["c"]},
            "response_header": {"add": ["d: e"], "remove": ["f"]},
            "user_agent_filter": {"allow": ["x"], "deny": ["y"]},
            "oauth": {
                "provider": "google", "client_id": "a", "client_secret": "b",
                "allow_emails": ["c@d.test", "e@d.test"], "allow_domains": ["f.test"], "scopes": ["g"],
            },
            "verify_webhook": {"provider": "github", "secret": "z"},
            "ip_restriction": {"allow_cidrs": ["10.0.0.0/8"], "deny_cidrs": ["10.1.0.0/16"]},
            "upstream_tls_verify": true,
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn an_issuer_has_options_of_its_own() {
        let arguments = [
            "8080",
            "--oidc=https://h.test",
            "--oidc-client-id=i",
            "--oidc-client-secret=j",
            "--oidc-allow-email=k@d.test",
            "--oidc-allow-domain=l.test",
            "--oidc-allow-domain=m.test",
            "--oidc-scope=n",
        ];

        let read = document("http", &arguments).unwrap();

        let expected = json!({
            "issuer_url": "https://h.test", "client_id": "i", "client_secret": "j",
            "allow_emails": ["k@d.test"], "allow_domains": ["l.test", "m.test"], "scopes": ["n"],
        });
        assert_eq!(read["oidc"], expected);
    }

    #[test]
    fn names_and_schemes_have_several_options() {
        let field = |command, argument, field: &str| {
            document(command, &["8080", argument]).unwrap()[field].clone()
        };

        assert_eq!(field("http", "--domain=a.test", "domain"), "a.test");
        assert_eq!(field("tls", "--hostname=a.test", "hostname"), "a.test");
        assert_eq!(field("http", "--subdomain=a", "subdomain"), "a");
        assert_eq!(field("tcp", "--remote-addr=a.test:22", "remote_addr"), "a.test:22");
        assert_eq!(field("tcp", "--url=a.test:22", "remote_addr"), "a.test:22");
        assert_eq!(field("tls", "--url=tls://a.test", "domain"), "a.test");
        assert_eq!(field("http", "--url=a.test", "schemes"), json!(["https"]));
        assert_eq!(field("http", "--scheme=http", "schemes"), json!(["http"]));
        assert_eq!(field("http", "--bind-tls=false", "bind_tls"), false);
        assert_eq!(field("http", "--bind-tls=both", "bind_tls"), "both");
        assert_eq!(field("http", "--auth=somebody:swordfish", "auth"), "somebody:swordfish");
        assert_eq!(field("tcp", "--proxy-proto=2", "proxy_proto"), "2");
        assert_eq!(field("tls", "--terminate-at=edge", "terminate_at"), "edge");
    }

    #[test]
    fn what_an_option_cannot_do_is_said_in_its_name() {
        let problem = |command, arguments: &[&str]| {
            document(command, &[&["80"], arguments].concat()).unwrap_err()
        };

        for option in ["--proxy-proto", "--upstream-proxy-protocol"] {
            let said = problem("http", &[option, "1"]);
            assert!(said.starts_with(&format!("{option}: 1 is only for tcp and tls")), "{said}");
            assert!(document("http", &["80", option, ""]).is_ok());
            assert_eq!(document("tls", &["80", option, "2"]).unwrap()["proxy_proto"], "2");
        }
        let said = problem("tcp", &["--upstream-proxy-protocol=3"]);
        assert_eq!(said, "--upstream-proxy-protocol: must be 1 or 2");
        let said = problem("http", &["--binding=internal"]);
        assert!(said.starts_with("--binding: \"internal\" needs a --url"), "{said}");
        let said = problem("tcp", &["--binding=public", "--url=tcp://a.internal:1"]);
        assert!(said.starts_with("--binding: \"public\" needs a --url"), "{said}");
        let said = problem("tls", &["--binding=kubernetes"]);
        assert_eq!(said, "--binding: \"kubernetes\" is neither public nor internal");
        let said = problem("http", &["--traffic-policy-url=ftp://u:swordfish@a.test/p"]);
        assert!(said.contains("neither http nor https") && !said.contains("swordfish"), "{said}");
        assert!(document("http", &["80", "--binding=internal", "--url=a.internal"]).is_ok());
        assert!(document("tcp", &["80", "--binding=public"]).is_ok());
    }

    #[test]
    fn a_url_of_another_protocol_is_refused() {
        let problem = |command, url| document(command, &["80", "--url", url]).unwrap_err();

        assert!(problem("http", "tcp://a.test:22").contains("is one of tcp, not of http"));
        assert!(problem("tcp", "https://a.test").contains("is one of http, not of tcp"));
        assert!(problem("http", "https://u:swordfish@a.test").contains("a user or a password"));
    }

    #[test]
    fn options_that_set_secrets_are_kept_out_of_sight() {
        let mut secret: Vec<_> = secret_flags().collect();

        secret.sort_unstable();
        assert_eq!(
            secret,
            [
                "auth",
                "basic-auth",
                "oauth-client-secret",
                "oidc-client-secret",
                "verify-webhook-secret"
            ]
        );
    }

    #[test]
    fn each_option_sets_a_field_that_there_is() {
        for flag in ALL.iter().flat_map(|command| flags(command)) {
            assert!(!field_doc(&flag.field).is_empty(), "{}", flag.name);
            let mut document = Map::new();
            set_field(&mut document, &flag.field, Value::Null);
            let name = flag.field.split('.').next().unwrap();
            assert!(tunnels::Start::INFO.parameters.iter().any(|field| field.name == name));
        }
    }
}
