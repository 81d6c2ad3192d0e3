//! `diagnose`: whether an agent can connect to its service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use ginnel_agent::{Agent, AgentOptions, SessionState, WebAddress};
use ginnel_api::mask;
use ginnel_base::address::HostPort;
use ginnel_base::files;
use ginnel_net::{DialRole, dial_address, resolve};

use super::run::{connecting, options};
use crate::agent::online;
use crate::error::{CliError, Exit};
use crate::output::say;
use crate::runtime;

/// How long the whole may take beyond the time for connecting.
const SPARE_TIME: Duration = Duration::from_secs(2);
/// How long it may take to resolve a name, or to connect to one address.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);
const IPV6: &str = "ipv6";
const REPORT: &str = "write-report";

pub(super) fn command() -> Command {
    connecting(Command::new("diagnose"))
        .about("Try to connect to the service")
        .arg(
            Arg::new(IPV6)
                .short('6')
                .long(IPV6)
                .value_name("BOOL")
                .num_args(0..=1)
                .default_missing_value("true")
                .value_parser(value_parser!(bool))
                .help("Connect to IPv6 addresses of the service, too"),
        )
        .arg(
            Arg::new(REPORT)
                .short('w')
                .long(REPORT)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Where to write a report in JSON"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), CliError> {
    let options = options(matches)?;
    let has_ipv6 = matches.get_one::<bool>(IPV6) == Some(&true);
    let runtime = runtime::start()?;
    let mut diagnosis = Diagnosis { steps: Vec::new(), has_ipv6 };
    let done = runtime.block_on(diagnosis.run(options));
    runtime.shutdown_background();
    let written = matches.get_one::<PathBuf>(REPORT).map(|path| diagnosis.write(path, &done));
    done.and(written.unwrap_or(Ok(())))
}

/// What was tried, and how it went.
struct Diagnosis {
    steps: Vec<Value>,
    /// Whether IPv6 addresses are tried where there are others.
    has_ipv6: bool,
}

impl Diagnosis {
    async fn run(&mut self, options: AgentOptions) -> Result<(), CliError> {
        let names = options.server_addrs.clone();
        let shown = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let limit = options.connect_timeout + SPARE_TIME;
        let deadline = Instant::now() + limit;
        say(&format!("Connecting to {}, for at most {:.0?} ...", shown, limit));
        let reached = timeout_at(deadline, self.reach(&names)).await;
        let late = || format!("no response within {limit:.0?}");
        let reached = reached.unwrap_or_else(|_| Err(late()));
        let connected = match reached {
            Ok(()) => {
                self.connect(options, deadline).await?.map_err(|reason| reason.unwrap_or_else(late))
            }
            Err(reason) => Err(reason),
        };
        let failed = |reason| format!("{shown}: {reason}");
        connected.map_err(|reason| CliError::new(Exit::Unreachable, failed(reason)))
    }

    /// Connects to the addresses of the service; fails where none of them accepts.
    async fn reach(&mut self, names: &[HostPort]) -> Result<(), String> {
        let (mut is_reached, mut reason) = (false, String::new());
        for name in names {
            let began = Instant::now();
            let found = timeout(STEP_TIMEOUT, resolve(name)).await;
            let found: Result<Vec<_>, _> = match found {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err(format!("not resolved within {STEP_TIMEOUT:?}")),
            };
            self.note("resolve", &name.to_string(), began, &found.as_ref().map(drop));
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    reason = error;
                    continue;
                }
            };
            for address in self.of_families(found) {
                match self.dial(address).await {
                    Ok(()) => is_reached = true,
                    Err(error) => reason = error,
                }
            }
        }
        if is_reached { Ok(()) } else { Err(reason) }
    }

    /// The addresses that are tried.
    fn of_families(&self, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let has_ipv4 = found.iter().any(SocketAddr::is_ipv4);
        let is_tried = |it: &SocketAddr| it.is_ipv4() || self.has_ipv6 || !has_ipv4;
        found.into_iter().filter(is_tried).collect()
    }

    async fn dial(&mut self, address: SocketAddr) -> Result<(), String> {
        let began = Instant::now();
        let dialed =
            match timeout(STEP_TIMEOUT, dial_address(DialRole::AgentSession, address)).await {
                Ok(dialed) => dialed.map(drop).map_err(|error| error.to_string()),
                Err(_) => Err(format!("no connection within {STEP_TIMEOUT:?}")),
            };
        self.note("TCP", &address.to_string(), began, &dialed.as_ref().copied());
        dialed
    }

    /// Starts a session; fails with the reason where one is known.
    async fn connect(
        &mut self,
        options: AgentOptions,
        deadline: Instant,
    ) -> Result<Result<(), Option<String>>, CliError> {
        let options = AgentOptions { web_addr: WebAddress::Off, ..options };
        let began = Instant::now();
        let agent = Agent::start(options).await?;
        let is_online = timeout_at(deadline, online(&agent)).await == Ok(true);
        let refusal = agent.refusal().map(|refusal| refusal.to_string());
        let reason = refusal.or_else(|| agent.last_error());
        let shown = match is_online {
            true => Ok(()),
            false => Err(reason.clone().unwrap_or_else(|| "no response".to_owned())),
        };
        self.note("session", "", began, &shown.as_ref().copied());
        if is_online {
            let took = began.elapsed().as_millis();
            say(&format!("The session was established after {took} ms"));
            if let SessionState::Online(sessions) = agent.state() {
                let regions = sessions.iter().map(|online| online.region.clone());
                say(&format!("Region: {}", regions.collect::<Vec<_>>().join(", ")));
            }
        }
        agent.stop(Duration::ZERO).await;
        Ok(if is_online { Ok(()) } else { Err(reason) })
    }

    /// Says how a step went.
    fn note(&mut self, step: &str, place: &str, began: Instant, ended: &Result<(), &String>) {
        let took = began.elapsed().as_millis();
        let title = format!("{step} {place}");
        match ended {
            Ok(()) => say(&format!("{}: ok, {took} ms", title.trim_end())),
            Err(error) => say(&format!("{}: {error}", title.trim_end())),
        }
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        let error = ended.err();
        self.steps.push(json!({
            "step": step, "address": place, "ok": ended.is_ok(), "ms": took, "error": error,
        }));
    }

    fn write(&self, path: &Path, ended: &Result<(), CliError>) -> Result<(), CliError> {
        let error = ended.as_ref().err().map(|error| error.message.as_str());
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ok": ended.is_ok(),
            "error": error,
            "steps": self.steps,
        });
        let text = format!("{report:#}\n");
        let written = files::write(path, text.as_bytes(), files::SECRET_MODE);
        written.map_err(|error| {
            CliError::new(Exit::Failed, format!("--{REPORT}: {}: {error}", mask::path(path)))
        })?;
        say(&format!("Report written to {}", mask::path(path)));
        Ok(())
    }
}
