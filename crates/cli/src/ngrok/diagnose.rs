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
use ginnel_net::{DialRole, dial_address, resolve_host};

use super::run::{connect_options, with_connection_arguments};
use crate::agent::wait_until_online;
use crate::error::{CliError, CommandResult, Exit};
use crate::output::print_line;
use crate::runtime;

/// How long the whole may take beyond the time for connecting.
const SPARE_TIME: Duration = Duration::from_secs(2);
/// How long it may take to resolve a name, or to connect to one address.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);
const IPV6: &str = "ipv6";
const REPORT: &str = "write-report";

pub(super) fn command() -> Command {
    with_connection_arguments(Command::new("diagnose"))
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

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let options = connect_options(matches)?;
    let has_ipv6 = matches.get_one::<bool>(IPV6) == Some(&true);
    let runtime = runtime::start_runtime()?;
    let mut diagnosis = Diagnosis { steps: Vec::new(), has_ipv6 };
    let done = runtime.block_on(diagnosis.run_steps(options));
    runtime.shutdown_background();
    let written =
        matches.get_one::<PathBuf>(REPORT).map(|path| diagnosis.write_report(path, &done));
    done.and(written.unwrap_or(Ok(())))
}

/// What was tried, and how it went.
struct Diagnosis {
    steps: Vec<Value>,
    /// Whether IPv6 addresses are tried where there are others.
    has_ipv6: bool,
}

impl Diagnosis {
    async fn run_steps(&mut self, options: AgentOptions) -> CommandResult<()> {
        let names = options.server_addrs.clone();
        let shown = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let limit = options.connect_timeout + SPARE_TIME;
        let deadline = Instant::now() + limit;
        print_line(&format!("Connecting to {}, for at most {:.0?} ...", shown, limit));
        let reached = timeout_at(deadline, self.reach_service(&names)).await;
        let late = || format!("no response within {limit:.0?}");
        let reached = reached.unwrap_or_else(|_| Err(late()));
        let connected = match reached {
            Ok(()) => self
                .start_session(options, deadline)
                .await?
                .map_err(|reason| reason.unwrap_or_else(late)),
            Err(reason) => Err(reason),
        };
        let failed = |reason| format!("{shown}: {reason}");
        connected.map_err(|reason| CliError::new(Exit::Unreachable, failed(reason)))
    }

    /// Connects to the addresses of the service; fails where none of them accepts.
    async fn reach_service(&mut self, names: &[HostPort]) -> Result<(), String> {
        let (mut is_reached, mut reason) = (false, String::new());
        for name in names {
            let began = Instant::now();
            let found = timeout(STEP_TIMEOUT, resolve_host(name)).await;
            let found: Result<Vec<_>, _> = match found {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err(format!("not resolved within {STEP_TIMEOUT:?}")),
            };
            self.record_step("resolve", &name.to_string(), began, &found.as_ref().map(drop));
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    reason = error;
                    continue;
                }
            };
            for address in self.filter_families(found) {
                match self.try_dial(address).await {
                    Ok(()) => is_reached = true,
                    Err(error) => reason = error,
                }
            }
        }
        if is_reached { Ok(()) } else { Err(reason) }
    }

    /// The addresses that are tried.
    fn filter_families(&self, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let has_ipv4 = found.iter().any(SocketAddr::is_ipv4);
        let is_tried = |it: &SocketAddr| it.is_ipv4() || self.has_ipv6 || !has_ipv4;
        found.into_iter().filter(is_tried).collect()
    }

    async fn try_dial(&mut self, address: SocketAddr) -> Result<(), String> {
        let began = Instant::now();
        let dialed =
            match timeout(STEP_TIMEOUT, dial_address(DialRole::AgentSession, address)).await {
                Ok(dialed) => dialed.map(drop).map_err(|error| error.to_string()),
                Err(_) => Err(format!("no connection within {STEP_TIMEOUT:?}")),
            };
        self.record_step("TCP", &address.to_string(), began, &dialed.as_ref().copied());
        dialed
    }

    /// Starts a session; fails with the reason where one is known.
    async fn start_session(
        &mut self,
        options: AgentOptions,
        deadline: Instant,
    ) -> CommandResult<Result<(), Option<String>>> {
        let options = AgentOptions { web_addr: WebAddress::Off, ..options };
        let began = Instant::now();
        let agent = Agent::start(options).await?;
        let is_online = timeout_at(deadline, wait_until_online(&agent)).await == Ok(true);
        let refusal = agent.refusal().map(|refusal| refusal.to_string());
        let reason = refusal.or_else(|| agent.last_error());
        let shown = match is_online {
            true => Ok(()),
            false => Err(reason.clone().unwrap_or_else(|| "no response".to_owned())),
        };
        self.record_step("session", "", began, &shown.as_ref().copied());
        if is_online {
            let took = began.elapsed().as_millis();
            print_line(&format!("The session was established after {took} ms"));
            if let SessionState::Online(sessions) = agent.session_state() {
                let regions = sessions.iter().map(|online| online.region.clone());
                print_line(&format!("Region: {}", regions.collect::<Vec<_>>().join(", ")));
            }
        }
        agent.stop(Duration::ZERO).await;
        Ok(if is_online { Ok(()) } else { Err(reason) })
    }

    /// Says how a step went.
    fn record_step(
        &mut self,
        step: &str,
        place: &str,
        began: Instant,
        ended: &Result<(), &String>,
    ) {
        let took = began.elapsed().as_millis();
        let title = format!("{step} {place}");
        match ended {
            Ok(()) => print_line(&format!("{}: ok, {took} ms", title.trim_end())),
            Err(error) => print_line(&format!("{}: {error}", title.trim_end())),
        }
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        let error = ended.err();
        self.steps.push(json!({
            "step": step, "address": place, "ok": ended.is_ok(), "ms": took, "error": error,
        }));
    }

    fn write_report(&self, path: &Path, ended: &CommandResult<()>) -> CommandResult<()> {
        let error = ended.as_ref().err().map(|error| error.message.as_str());
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ok": ended.is_ok(),
            "error": error,
            "steps": self.steps,
        });
        let text = format!("{report:#}\n");
        let written = files::write_atomic(path, text.as_bytes(), files::SECRET_MODE);
        written.map_err(|error| {
            CliError::new(Exit::Failed, format!("--{REPORT}: {}: {error}", mask::path(path)))
        })?;
        print_line(&format!("Report written to {}", mask::path(path)));
        Ok(())
    }
}
