//! `ginnel serve`: the management API until a signal ends it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;

use super::error::CliError;
use super::number::whole_number;
use super::output::{complain, say, try_say};
use super::runtime;
use super::signals::{NOTHING_TO_READ, Signals, on_hangup};
use crate::api::{Secret, id};
use crate::gateway::{EventDelivery, EventSubscriber};
use crate::policy::Cidr;
use crate::service::store::HealthEvents;
use crate::service::{AcceptFailures, Options, Refusals, Service, read_admin_key, read_authtoken};

/// The variable that may hold the admin key; command lines are for all to see.
const KEY_VARIABLE: &str = "GINNEL_API_KEY";
/// Where the authtoken for agents may stand.
const TOKEN_VARIABLE: &str = "GINNEL_AUTHTOKEN";

/// How often it is said that connections were closed because there were too many.
const REFUSAL_REPORT_INTERVAL: Duration = Duration::from_secs(10);

pub(super) fn command() -> Command {
    let file = |name, help| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    let text = |name, value, help| Arg::new(name).long(name).value_name(value).help(help);
    Command::new("serve")
        .about("Serve the management API, agents and public traffic")
        .after_help(
            "The admin key is made and printed once, when the database is new; a new database\n\
             takes the one in --admin-key-file or GINNEL_API_KEY instead. For one that is lost,\n\
             see `ginnel admin-key new`.\n\n\
             Example:\n  ginnel serve --path ginnel.db --port 4000 --rate-limit 120/60s",
        )
        .arg(file(
            "path",
            "The SQLite database; without it, all data is lost when the process ends",
        ))
        .arg(text("host", "HOST", "The name or address to listen on").default_value("127.0.0.1"))
        .arg(
            text("port", "PORT", "The port to listen on; 0 picks a free port")
                .value_parser(whole_number::<u16>(0..=65535))
                .default_value("0"),
        )
        .arg(file("admin-key-file", "A file that holds the admin key"))
        .arg(file("authtoken-file", "A file that holds the authtoken for agents"))
        .arg(
            text(
                "agent-port",
                "PORT",
                "The port for agents; 0 picks a free port, none takes no agents",
            )
            .value_parser(edge_port)
            .default_value("0"),
        )
        .arg(text(
            "public-url",
            "URL",
            "The URL to put into responses, if clients reach the API at another one",
        ))
        .arg(
            text(
                "rate-limit",
                "N/60s",
                "Allow this many requests per account in a rolling window of seconds",
            )
            .value_parser(rate_limit),
        )
        .arg(text("code-prefix", "TEXT", "The prefix of error codes, before their numbers"))
        .arg(
            text("edge-host", "HOST", "The host name or address for public traffic")
                .default_value("127.0.0.1"),
        )
        .arg(
            text(
                "http-port",
                "PORT",
                "The port for public HTTP; 0 picks a free port, none disables it",
            )
            .value_parser(edge_port)
            .default_value("0"),
        )
        .arg(
            text(
                "https-port",
                "PORT",
                "The port for public HTTPS; 0 picks a free port, none disables it",
            )
            .value_parser(edge_port)
            .default_value("0"),
        )
        .arg(text(
            "base-domain",
            "DOMAIN",
            "The domain below which tunnels get host names; without it, each gets a port",
        ))
        .arg(
            file(
                "certificate",
                "A PEM file with a certificate for the host names in it; reloaded on SIGHUP",
            )
            .requires("certificate-key"),
        )
        .arg(
            file("certificate-key", "A PEM file with the private key of the certificate")
                .requires("certificate"),
        )
        .arg(
            text(
                "trusted-proxies",
                "CIDR",
                "Proxies whose X-Forwarded-For header is trusted: addresses or CIDRs",
            )
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(value_parser!(Cidr)),
        )
        .args(connection_limits())
        .arg(
            text(
                "ambiguous-paths",
                "WHAT",
                "What to do with ambiguous paths, if a route or a rule looks at paths",
            )
            .value_parser(["reject", "normalize"])
            .default_value("reject"),
        )
        .arg(
            Arg::new("tls-endpoints")
                .long("tls-endpoints")
                .action(ArgAction::SetTrue)
                .help("Speak TLS on the ports of tunnels that ask for HTTPS"),
        )
        .arg(super::grace::argument())
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the addresses as one JSON object"),
        )
        .arg(
            Arg::new("events")
                .long("events")
                .action(ArgAction::SetTrue)
                .help("Print one line of JSON for each request or connection of public traffic"),
        )
}

fn connection_limits() -> [Arg; 4] {
    let limit = |name, help| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(whole_number::<u32>(1..=u32::MAX.into()))
            .help(help)
    };
    [
        limit("max-connections", "The most visitor connections that may be open"),
        limit(
            "max-connections-per-address",
            "The most visitor connections that may be open from one address",
        ),
        limit("max-api-connections", "The most connections to the management API that may be open"),
        limit("max-agent-connections", "The most agent connections that may be open"),
    ]
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), CliError> {
    let options = options(matches)?;
    let grace = super::grace::read(matches);
    let runtime = runtime::start()?;
    let shown =
        OutputOptions { json: matches.get_flag("json"), events: matches.get_flag("events") };
    let served = runtime.block_on(serve(options, shown, grace));
    // What a second signal leaves unfinished is not waited for.
    runtime.shutdown_background();
    served
}

/// What is printed.
#[derive(Clone, Copy)]
struct OutputOptions {
    json: bool,
    events: bool,
}

async fn serve(options: Options, shown: OutputOptions, grace: Duration) -> Result<(), CliError> {
    // In place before the service is, so that no signal ends it unprepared.
    let mut signals = Signals::new()?;
    let (path, certificate) = (options.path.clone(), options.certificate.clone());
    let is_configured = (options.admin_key.is_some(), options.authtoken.is_some());
    let mut service = Service::start(options).await?;
    let key = service.api_key().filter(|_| !is_configured.0);
    let token = service.authtoken().filter(|_| !is_configured.1);
    if announce(&service, path.as_deref(), (key, token), shown.json) {
        service.remove_token_files();
    } else {
        service.keep_token_files();
    }
    tokio::spawn(complain_of(service.storage_health()));
    if shown.events {
        tokio::spawn(tell(service.events()));
    }
    let authority = service.gateway().authority().clone();
    on_hangup(move || match &certificate {
        None => complain(NOTHING_TO_READ),
        Some((chain, key)) => {
            if let Err(error) = authority.provide(chain, key) {
                complain(&error.to_string());
            }
        }
    })?;
    tokio::select! {
        () = report_refusals(&service) => {}
        () = signals.next() => {}
    }
    tokio::select! {
        () = service.stop(grace) => Ok(()),
        () = signals.next() => Err(CliError::second_signal()),
    }
}

/// Says what is wrong with the storage, and when it is right again.
async fn complain_of(mut health: HealthEvents) {
    while let Some(line) = health.next().await {
        complain(&line);
    }
}

/// Says where everything is; false when nobody can have read it.
fn announce(
    service: &Service,
    path: Option<&std::path::Path>,
    (key, token): (Option<&Secret>, Option<&Secret>),
    as_json: bool,
) -> bool {
    if as_json {
        let line = json!({
            "url": service.url(),
            "public_url": service.public_url(),
            "path": path,
            "agent_addr": service.agent_address().map(|address| address.to_string()),
            "api_key": key.map(|key| key.0.as_str()),
            "authtoken": token.map(|token| token.0.as_str()),
            "http_url": edge_url(service, "http"),
            "https_url": edge_url(service, "https"),
            "ca_path": service.gateway().authority().path(),
        });
        return try_say(&line.to_string());
    }
    let place = path.map_or("in memory".to_owned(), |path| format!("data in {}", path.display()));
    let public = match service.public_url() {
        public if public == service.url() => String::new(),
        public => format!(", known as {public}"),
    };
    // One line, so that whoever starts it reads everything at once.
    let edges = ["http", "https"].into_iter().filter_map(|scheme| edge_url(service, scheme));
    let edges = edges.map(|url| format!(", public traffic at {url}")).collect::<String>();
    let agents = service.agent_address().map(|address| format!(", agents at {address}"));
    let agents = agents.unwrap_or_default();
    let trusted = service.gateway().authority().path();
    let trusted = trusted.map(|path| format!(", certificates to trust in {}", path.display()));
    let trusted = trusted.unwrap_or_default();
    let url = service.url();
    say(&format!("management API at {url}{public}{edges}{agents}, {place}{trusted}"));
    let key = key.is_none_or(|key| try_say(&format!("admin key, shown this once: {}", key.0)));
    let token = token.is_none_or(|token| {
        try_say(&format!("authtoken for agents, shown this once: {}", token.0))
    });
    key && token
}

/// Says from time to time how many connections were closed because there were too many, and why none
/// could be accepted; never ends.
async fn report_refusals(service: &Service) {
    loop {
        tokio::time::sleep(REFUSAL_REPORT_INTERVAL).await;
        for Refusals { of, count, last, per_address, total } in service.take_refusals() {
            complain(&format!(
                "{count} connections of {of} refused, the last from {last}: at most \
                 {per_address} from one address and {total} in total may be open"
            ));
        }
        for AcceptFailures { of, count, last } in service.take_accept_failures() {
            complain(&format!(
                "cannot accept connections of {of}: {last}; tried {count} times, and trying again"
            ));
        }
    }
}

/// Prints events until the service ends.
async fn tell(mut events: EventSubscriber) {
    while let Some(received) = events.next().await {
        let line = match received {
            EventDelivery::Event(event) => {
                serde_json::to_string(&event.masked()).unwrap_or_default()
            }
            EventDelivery::Missed(missed) => json!({"missed": missed}).to_string(),
        };
        say(&line);
    }
}

/// The address for public traffic of a scheme.
fn edge_url(service: &Service, scheme: &str) -> Option<String> {
    let edges = service.gateway();
    let address = if scheme == "https" { edges.https_address() } else { edges.http_address() };
    address.map(|address| format!("{scheme}://{address}"))
}

fn options(matches: &ArgMatches) -> Result<Options, CliError> {
    let defaults = Options::default();
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let limit = |name: &str| matches.get_one::<u32>(name).map(|limit| *limit as usize);
    Ok(Options {
        path: matches.get_one("path").cloned(),
        host: text("host").unwrap_or(defaults.host),
        port: matches.get_one("port").copied().unwrap_or(defaults.port),
        admin_key: admin_key(matches)?,
        code_prefix: text("code-prefix").unwrap_or(defaults.code_prefix),
        rate_limit: matches.get_one("rate-limit").copied(),
        public_url: text("public-url"),
        agent_host: text("host").unwrap_or(defaults.agent_host),
        agent_port: matches
            .get_one::<EdgePort>("agent-port")
            .map_or(defaults.agent_port, |it| it.0),
        authtoken: authtoken(matches)?,
        edge_host: text("edge-host").unwrap_or(defaults.edge_host),
        http_port: matches.get_one::<EdgePort>("http-port").map_or(defaults.http_port, |it| it.0),
        https_port: matches
            .get_one::<EdgePort>("https-port")
            .map_or(defaults.https_port, |it| it.0),
        base_domain: text("base-domain"),
        tls_endpoints: matches.get_flag("tls-endpoints"),
        certificate: path("certificate").zip(path("certificate-key")),
        trusted_proxies: matches
            .get_many::<Cidr>("trusted-proxies")
            .map_or(defaults.trusted_proxies, |ranges| ranges.copied().collect()),
        ambiguous_paths: text("ambiguous-paths")
            .and_then(|word| word.parse().ok())
            .unwrap_or(defaults.ambiguous_paths),
        origin: defaults.origin,
        kept_calls: defaults.kept_calls,
        connections: limit("max-api-connections"),
        agent_connections: limit("max-agent-connections"),
        edge_connections: limit("max-connections"),
        edge_connections_per_address: limit("max-connections-per-address"),
        timeouts: defaults.timeouts,
        heartbeat_interval: defaults.heartbeat_interval,
        heartbeat_tolerance: defaults.heartbeat_tolerance,
        login_timeout: defaults.login_timeout,
        reserve: defaults.reserve,
    })
}

fn authtoken(matches: &ArgMatches) -> Result<Option<Secret>, CliError> {
    if let Some(path) = matches.get_one::<PathBuf>("authtoken-file") {
        return Ok(Some(read_authtoken(path)?));
    }
    let is_configured = std::env::var(TOKEN_VARIABLE).unwrap_or_default();
    Ok(Some(Secret(is_configured.trim().to_owned())).filter(|token| !token.0.is_empty()))
}

fn admin_key(matches: &ArgMatches) -> Result<Option<Secret>, CliError> {
    if let Some(path) = matches.get_one::<PathBuf>("admin-key-file") {
        return Ok(Some(read_admin_key(path)?));
    }
    match std::env::var(KEY_VARIABLE) {
        Ok(key) if id::split_token(key.trim()).is_some() => Ok(Some(Secret(key.trim().into()))),
        Ok(key) if !key.trim().is_empty() => {
            Err(CliError::usage(format!("{KEY_VARIABLE} does not hold an API key of this service")))
        }
        _ => Ok(None),
    }
}

/// A port for public traffic, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EdgePort(Option<u16>);

/// Reads a port, or `none`.
fn edge_port(text: &str) -> Result<EdgePort, String> {
    if text == "none" {
        return Ok(EdgePort(None));
    }
    let port = text
        .parse()
        .map_err(|_| format!("'{text}' is neither a port from 0 to 65535 nor 'none'"))?;
    Ok(EdgePort(Some(port)))
}

/// Reads `120/60s` or `120/60`.
fn rate_limit(text: &str) -> Result<(u32, Duration), String> {
    let read = || {
        let (requests, window) = text.split_once('/')?;
        let seconds = window.strip_suffix('s').unwrap_or(window).parse().ok()?;
        Some((requests.parse().ok()?, Duration::from_secs(seconds)))
    };
    read()
        .filter(|(requests, window): &(u32, Duration)| *requests > 0 && !window.is_zero())
        .ok_or_else(|| "must be a number of requests and of seconds, such as 120/60s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_is_requests_and_seconds() {
        assert_eq!(rate_limit("120/60s"), Ok((120, Duration::from_secs(60))));
        assert_eq!(rate_limit("1/1"), Ok((1, Duration::from_secs(1))));
        for bad in ["", "120", "0/60s", "1/0s", "-1/60", "a/b", "1/60m"] {
            assert!(rate_limit(bad).is_err(), "{bad}");
        }
    }
}
