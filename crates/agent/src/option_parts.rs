//! The options of an agent, read. The start of an agent and `ginnel config check` share this reading.

use std::sync::Arc;

use rustls::ClientConfig;

use ginnel_api::{Metadata, mask};

use super::Error;
use super::hosts::AllowedHosts;
use super::intercept::Interceptors;
use super::options::AgentOptions;
use super::service_proxies::ServiceProxies;
use super::unix_sockets::UnixSocketRoots;

/// Maximum length of an authtoken. A login has room for little more.
const MAX_AUTHTOKEN_BYTES: usize = 4096;

/// The parts of an agent that depend only on its options.
pub(super) struct OptionParts {
    pub tls: Arc<ClientConfig>,
    pub proxies: ServiceProxies,
    pub web_hosts: AllowedHosts,
    pub replay_hosts: AllowedHosts,
    pub socket_roots: UnixSocketRoots,
    pub interceptors: Arc<Interceptors>,
}

impl OptionParts {
    /// Reads the options.
    ///
    /// # Errors
    /// With every problem; there is at least one.
    pub fn from_options(options: &AgentOptions) -> Result<Self, Vec<Error>> {
        let mut problems = Vec::new();
        collect_problem(&mut problems, check_authtoken(options));
        collect_problem(&mut problems, check_metadata(options));
        let tls = collect_problem(&mut problems, options.trust.client_config());
        let proxies = collect_problem(&mut problems, service_proxies(options));
        let web_hosts = allowed_hosts("web_allow_hosts", &options.web_allow_hosts);
        let web_hosts = collect_problem(&mut problems, web_hosts);
        let replay_hosts = allowed_hosts("replay_allow_hosts", &options.replay_allow_hosts);
        let replay_hosts = collect_problem(&mut problems, replay_hosts);
        let socket_roots = collect_problem(&mut problems, socket_roots(options));
        let interceptors = collect_problem(&mut problems, build_interceptors(options));
        match (tls, proxies, web_hosts, replay_hosts, socket_roots, interceptors) {
            (
                Some(tls),
                Some(proxies),
                Some(web_hosts),
                Some(replay_hosts),
                Some(socket_roots),
                Some(interceptors),
            ) if problems.is_empty() => {
                Ok(Self { tls, proxies, web_hosts, replay_hosts, socket_roots, interceptors })
            }
            _ => Err(problems),
        }
    }
}

/// Keeps the problem of a part, or returns the part.
fn collect_problem<T>(problems: &mut Vec<Error>, part: Result<T, Error>) -> Option<T> {
    part.map_err(|problem| problems.push(problem)).ok()
}

fn check_authtoken(options: &AgentOptions) -> Result<(), Error> {
    if options.authtoken.0.len() <= MAX_AUTHTOKEN_BYTES {
        return Ok(());
    }
    let problem = format!("is longer than {MAX_AUTHTOKEN_BYTES} bytes");
    Err(Error::Option { option: "authtoken".to_owned(), problem })
}

fn service_proxies(options: &AgentOptions) -> Result<ServiceProxies, Error> {
    ServiceProxies::from_option(options.proxy_url.as_ref()).map_err(|error| Error::Option {
        option: error.option.to_owned(),
        problem: format!("{} {}", error.value, error.problem),
    })
}

/// A service refuses the login of an agent with more.
fn check_metadata(options: &AgentOptions) -> Result<(), Error> {
    let (length, limit) = (options.metadata.len(), Metadata::MAX);
    if length <= limit {
        return Ok(());
    }
    let problem = format!("is {length} bytes long, the limit is {limit}");
    Err(Error::Option { option: "metadata".to_owned(), problem })
}

fn allowed_hosts(option: &str, entries: &[String]) -> Result<AllowedHosts, Error> {
    AllowedHosts::parse_entries(entries).map_err(|entry| Error::Option {
        option: option.to_owned(),
        problem: format!(
            "{:?} is not an address, a network, a name or .name; leave out the scheme and the port",
            mask::url(&entry)
        ),
    })
}

/// The folders of Unix sockets that callers of the agent API may name.
fn socket_roots(options: &AgentOptions) -> Result<UnixSocketRoots, Error> {
    UnixSocketRoots::new(&options.unix_socket_roots).map_err(|folder| Error::Option {
        option: "unix_socket_roots".to_owned(),
        problem: format!("{:?} is not an absolute path", mask::path(&folder)),
    })
}

/// The mocks of the configuration.
fn build_interceptors(options: &AgentOptions) -> Result<Arc<Interceptors>, Error> {
    let interceptors = Interceptors::default();
    for fields in &options.mocks {
        interceptors.add_mock(fields.clone(), true).map_err(|error| Error::Option {
            option: "mocks".to_owned(),
            problem: error.to_string(),
        })?;
    }
    Ok(Arc::new(interceptors))
}
