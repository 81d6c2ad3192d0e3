//! `ginnel api` and `ginnel local`: every operation of both APIs, from the table of operations.
//!
//! `tree.rs` makes a command of each operation, `arguments.rs` makes the operation's arguments of
//! what was typed, `send.rs` performs it, `show.rs` prints what came back, and `curl.rs` prints the
//! request instead. `key.rs` finds the key: in a file, in the environment, or by asking.

mod arguments;
mod curl;
mod follow;
mod key;
mod send;
mod show;
mod tree;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value};

use ginnel_api::{Info, Operation, Resource, Secret, encode_arguments, local, remote};
use ginnel_client::{Api, Client, ClientCert, ClientOptions};

use super::error::{CliError, CommandResult};
use super::help::HelpRank;

/// The names of the options that every operation has. No parameter of an operation has such a name.
const OUTPUT_ARG: &str = ":output";
const CURL_ARG: &str = ":curl";
const MAX: &str = ":max";
const FILE_ARG: &str = ":file";
const FOLLOW_ARG: &str = ":follow";
const BASE_URL: &str = ":base-url";
const KEY_FILE: &str = ":api-key-file";
const TIMEOUT: &str = ":timeout";
const RETRIES: &str = ":max-retries";
const CA_BUNDLE: &str = ":ca-bundle";
const CLIENT_CERT: &str = ":client-cert";
const CLIENT_KEY: &str = ":client-key";
const DEADLINE: &str = ":deadline";
const PROXY: &str = ":proxy";
const JSON: &str = ":json";
const ALLOW_HTTP: &str = ":allow-http";

const API_HELP: &str = "\
The key is taken from --api-key-file, from GINNEL_API_KEY, or asked for; it is never an argument.

Examples:
  ginnel api api-keys create --description ci
  ginnel api ip-policies list --output csv
  ginnel api edges https routes policy replace EDGE_ID ID --file policy.json
  ginnel api api-keys delete ID --curl";

const LOCAL_HELP: &str = "\
Examples:
  ginnel local tunnels start --name web --proto http --addr 8080
  ginnel local requests list --limit 5
  ginnel local requests list --follow
  ginnel local requests load --file requests.har
  ginnel local requests replay ID";

/// `ginnel api`.
pub(super) fn api_command() -> Command {
    let file = Arg::new(KEY_FILE)
        .long("api-key-file")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help_heading(OPTIONS_HEADING)
        .help("File that holds the key");
    Command::new("api")
        .about("Call the management API")
        .after_help(API_HELP)
        .subcommand_required(true)
        .args(common_arguments("GINNEL_BASE_URL"))
        .arg(file.global(true))
        .subcommands(tree::resource_commands("ginnel api", &remote_resources()))
}

/// `ginnel reload`.
pub(super) fn reload_command() -> Command {
    let file = Arg::new(KEY_FILE).long("api-key-file").value_name("FILE");
    Command::new("reload")
        .about("Reload the configuration and the certificate of a service")
        .after_help(
            "The key must be that of an admin; it is taken from --api-key-file, from GINNEL_API_KEY,\n\
             or asked for. SIGHUP does the same without a key, and opens log files again.",
        )
        .args(common_arguments("GINNEL_BASE_URL"))
        .arg(file.value_parser(value_parser!(PathBuf)).help("File that holds the key"))
}

/// `ginnel cluster`.
pub(super) fn cluster_command() -> Command {
    let file = Arg::new(KEY_FILE).long("api-key-file").value_name("FILE");
    let json = Arg::new(JSON).long("json").action(ArgAction::SetTrue);
    let status = Command::new("status")
        .about("Show the nodes that share a database: leases, sessions, tunnels, version lag")
        .after_help(
            "Any node can be asked. A node is lapsed if the one that responds has not seen it for\n\
             15 seconds; other nodes take over its agents then.",
        )
        .args(common_arguments("GINNEL_BASE_URL"))
        .arg(file.value_parser(value_parser!(PathBuf)).help("File that holds the key"))
        .arg(json.conflicts_with(OUTPUT_ARG).help("The same as --output json"));
    Command::new("cluster")
        .about("Look after several nodes that share a database")
        .subcommand_required(true)
        .subcommand(status)
}

/// `ginnel local`.
pub(super) fn local_command() -> Command {
    Command::new("local")
        .about("Call the local API of a running agent")
        .after_help(LOCAL_HELP)
        .subcommand_required(true)
        .args(common_arguments("GINNEL_AGENT_URL"))
        .subcommands(tree::resource_commands("ginnel local", &local_resources()))
}

/// Runs `ginnel api`.
pub(super) fn run_api(matches: &ArgMatches) -> CommandResult<()> {
    run_operation(Api::Remote, &remote_resources(), matches)
}

/// Runs `api` of a program that prints responses as they are, with a key that is known.
pub(super) fn run_api_as_wire(matches: &ArgMatches, key: Option<Secret>) -> CommandResult<()> {
    let Some((info, matches)) = tree::find_operation(&remote_resources(), matches) else {
        return Err(CliError::usage("no operation given; try `--help`"));
    };
    let call = encode_arguments(info, arguments::read_arguments(info, matches)?)?;
    let options = ClientOptions { api_key: key, ..client_options(Api::Remote, matches) };
    send::perform_call(info, call, options, show::OutputFormat::Wire, None)
}

/// Runs `ginnel reload`.
pub(super) fn run_reload(matches: &ArgMatches) -> CommandResult<()> {
    call(Api::Remote, &remote::configuration::Reload::INFO, matches)
}

/// Runs `ginnel cluster`.
pub(super) fn run_cluster(matches: &ArgMatches) -> CommandResult<()> {
    let Some(("status", matches)) = matches.subcommand() else {
        return Err(CliError::usage("no command given; try `ginnel cluster --help`"));
    };
    let format = match matches.get_flag(JSON) {
        true => show::OutputFormat::Json,
        false => show::OutputFormat::from_name(matches.get_one::<String>(OUTPUT_ARG)),
    };
    call_with(Api::Remote, &remote::nodes::List::INFO, Map::new(), (matches, format))
}

/// Runs `ginnel local`.
pub(super) fn run_local(matches: &ArgMatches) -> CommandResult<()> {
    run_operation(Api::Agent, &local_resources(), matches)
}

fn remote_resources() -> Vec<&'static Resource> {
    remote::resources().collect()
}

fn local_resources() -> Vec<&'static Resource> {
    local::resources().collect()
}

fn run_operation(
    api: Api,
    resources: &[&'static Resource],
    matches: &ArgMatches,
) -> CommandResult<()> {
    let Some((info, matches)) = tree::find_operation(resources, matches) else {
        return Err(CliError::usage("no operation given; try `--help`"));
    };
    call(api, info, matches)
}

fn call(api: Api, info: &'static Info, matches: &ArgMatches) -> CommandResult<()> {
    let format = show::OutputFormat::from_name(matches.get_one::<String>(OUTPUT_ARG));
    call_with(api, info, arguments::read_arguments(info, matches)?, (matches, format))
}

fn call_with(
    api: Api,
    info: &'static Info,
    arguments: Map<String, Value>,
    (matches, format): (&ArgMatches, show::OutputFormat),
) -> CommandResult<()> {
    if matches.try_get_one::<bool>(FOLLOW_ARG).ok().flatten() == Some(&true) {
        return follow::follow_requests(&arguments, client_options(api, matches), format);
    }
    let call = encode_arguments(info, arguments)?;
    let mut options = client_options(api, matches);
    if matches.get_flag(CURL_ARG) {
        return curl::print_curl(info, &call, options);
    }
    if api == Api::Remote {
        options.api_key = key::find_key(matches.get_one(KEY_FILE))?;
    }
    // Only lists have this option.
    let max = matches.try_get_one::<usize>(MAX).ok().flatten();
    send::perform_call(info, call, options, format, max.copied())
}

fn client_options(api: Api, matches: &ArgMatches) -> ClientOptions {
    ClientOptions {
        api,
        base_url: matches.get_one(BASE_URL).cloned(),
        max_retries: matches.get_one(RETRIES).copied(),
        deadline: matches.get_one::<u64>(DEADLINE).copied().map(Duration::from_secs),
        ..connection_options(matches)
    }
}

/// A client for the management API at an address, as the options of [`remote_connection`] say; without
/// one of them, `timeout` is how long an attempt may take.
pub(super) fn remote_client(
    matches: &ArgMatches,
    base_url: String,
    timeout: Duration,
) -> CommandResult<Client> {
    let options = connection_options(matches);
    Ok(Client::new(ClientOptions {
        api: Api::Remote,
        base_url: Some(base_url),
        api_key: key::find_key(matches.get_one(KEY_FILE))?,
        timeout: Some(options.timeout.unwrap_or(timeout)),
        deadline: Some(Duration::ZERO),
        ..options
    })?)
}

/// The options of a command that calls the management API in a way of its own.
pub(super) fn remote_connection(timeout: &'static str) -> impl Iterator<Item = Arg> {
    let file = option_argument(KEY_FILE, "FILE").value_parser(value_parser!(PathBuf));
    [file.help("File that holds the key")].into_iter().chain(connection_arguments(timeout))
}

/// What the options of [`connection`] say.
fn connection_options(matches: &ArgMatches) -> ClientOptions {
    ClientOptions {
        timeout: matches.get_one::<u64>(TIMEOUT).copied().map(Duration::from_secs),
        ca_bundle: matches.get_one(CA_BUNDLE).cloned(),
        client_cert: client_cert(matches),
        proxy: matches.get_one(PROXY).cloned(),
        allow_http: matches.get_flag(ALLOW_HTTP),
        app: Some(concat!("ginnel-cli/", env!("CARGO_PKG_VERSION")).to_owned()),
        ..ClientOptions::default()
    }
}

fn client_cert(matches: &ArgMatches) -> Option<ClientCert> {
    let chain = matches.get_one::<PathBuf>(CLIENT_CERT)?;
    let key = matches.get_one::<PathBuf>(CLIENT_KEY).unwrap_or(chain);
    Some(ClientCert { chain: chain.clone(), key: key.clone() })
}

/// Where the help lists the options of every operation, after those of the operation itself.
const OPTIONS_HEADING: &str = "Options of every call";

fn option_argument(id: &'static str, value: &'static str) -> Arg {
    Arg::new(id).long(id.trim_start_matches(':')).value_name(value)
}

fn flag_argument(id: &'static str) -> Arg {
    Arg::new(id).long(id.trim_start_matches(':')).action(ArgAction::SetTrue)
}

/// The options of every operation.
fn common_arguments(variable: &'static str) -> Vec<Arg> {
    let of_calls = [
        option_argument(OUTPUT_ARG, "FORMAT")
            .short('o')
            .value_parser(["table", "json", "jsonl", "csv"])
            .default_value("table")
            .help("Output format"),
        flag_argument(CURL_ARG)
            .help("Print the request as a curl command, secrets masked, and send nothing"),
        option_argument(BASE_URL, "URL").help(format!("URL of the API; default: {variable}")),
        option_argument(DEADLINE, "SECONDS")
            .value_parser(value_parser!(u64))
            .help("Maximum duration of a call with its retries and pauses")
            .rare(),
        option_argument(RETRIES, "N")
            .value_parser(value_parser!(u32))
            .help("Maximum number of retries of a failed attempt")
            .rare(),
    ];
    let timeout = connection_arguments("Maximum duration of one attempt");
    let all = of_calls.into_iter().chain(timeout);
    all.map(|arg| arg.global(true).help_heading(OPTIONS_HEADING)).collect()
}

/// The options of every connection to an API.
fn connection_arguments(timeout: &'static str) -> impl Iterator<Item = Arg> {
    let options = [
        option_argument(TIMEOUT, "SECONDS").value_parser(value_parser!(u64)).help(timeout),
        option_argument(CA_BUNDLE, "FILE").value_parser(value_parser!(PathBuf)).help(
            "PEM file of certificates to trust instead of the system's; default: GINNEL_CA_BUNDLE",
        ),
        option_argument(CLIENT_CERT, "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("PEM file with a client certificate; default: GINNEL_CLIENT_CERT"),
        option_argument(CLIENT_KEY, "FILE")
            .value_parser(value_parser!(PathBuf))
            .requires(CLIENT_CERT)
            .help("Private key of the client certificate, if it is in a file of its own"),
        option_argument(PROXY, "URL").help("Proxy to use, instead of one from the environment"),
        flag_argument(ALLOW_HTTP).help("Allow the key to be sent unencrypted to another machine"),
    ];
    options.into_iter().map(HelpRank::rare)
}

/// The name of something of the table in the shell's way.
fn to_kebab_case(name: &str) -> String {
    name.trim_end_matches('_').replace('_', "-").to_lowercase()
}

/// The words that name an operation on the command line, after `ginnel api`.
fn command_words(info: &Info) -> Vec<String> {
    info.resource.split('.').chain([info.name]).map(to_kebab_case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_command() {
        for (mut command, resources) in
            [(api_command(), remote_resources()), (local_command(), local_resources())]
        {
            command.build();
            for info in resources.iter().flat_map(|resource| resource.operations) {
                let found = command_words(info).iter().try_fold(&command, |at, word| {
                    at.get_subcommands().find(|inner| inner.get_name() == word)
                });
                let arguments = found.into_iter().flat_map(Command::get_arguments);
                let given: Vec<_> = arguments.map(|arg| arg.get_id().as_str()).collect();
                assert!(found.is_some(), "{}.{}", info.resource, info.name);
                for parameter in info.parameters {
                    assert!(given.contains(&parameter.name), "{}: {}", info.path, parameter.name);
                }
            }
            // Among other things, that no two options share a name.
            command.debug_assert();
        }
    }
}
