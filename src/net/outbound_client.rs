//! Requests over HTTP to places that others name, for which the rules of the dialler hold.
//!
//! reqwest opens the connections. It resolves names with a resolver that permits each address, and URLs with an IP
//! address, which need no resolver, are permitted before a request is sent and before a redirect is followed.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Method, RequestBuilder};
use rustls::ClientConfig;
use url::{Host as UrlHost, Url};

use super::dial::{DialRefusal, DialRole, is_loopback_only, permit, permit_ip};
use super::private;
use super::reach::{OutOfReach, Reach};
use super::resolve::{resolve, resolve_now};
use crate::base::address::{Host, HostPort, WebUrl};

/// Reasons why a request cannot be begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboundError {
    /// The rules of the dialler exclude the address.
    #[error(transparent)]
    Refused(#[from] DialRefusal),
    /// The URL has no host that can be resolved.
    #[error("{0}")]
    Host(String),
    /// The library refuses the settings.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
}

/// The settings of an [`OutboundClient`].
#[derive(Debug, Clone)]
pub(crate) struct OutboundOptions {
    pub role: DialRole,
    pub reach: Reach,
    /// The certificates to trust.
    pub tls: ClientConfig,
    /// The number of redirects that are followed.
    pub max_redirects: usize,
    /// The time that a request may take, including the body of the response.
    pub timeout: Option<Duration>,
    /// If true, requests go through the proxy of the environment.
    pub uses_proxy: bool,
}

/// Sends requests to places that the rules of the dialler permit.
#[derive(Debug)]
pub(crate) struct OutboundClient {
    options: OutboundOptions,
    client: OnceLock<Client>,
    /// The client while only this machine is allowed: it uses no proxy, and has no connection from before.
    local: OnceLock<Client>,
}

impl OutboundClient {
    /// Makes a client, which connects when a request is sent.
    pub fn new(options: OutboundOptions) -> Self {
        Self { options, client: OnceLock::new(), local: OnceLock::new() }
    }

    /// Begins a request.
    ///
    /// # Errors
    /// If the client may not reach the URL.
    pub async fn request(
        &self,
        method: Method,
        url: &WebUrl,
    ) -> Result<RequestBuilder, OutboundError> {
        let url = url.as_url();
        Ok(self.client_for(url).await?.request(method, url.clone()))
    }

    /// Returns the client for a URL.
    async fn client_for(&self, url: &Url) -> Result<Client, OutboundError> {
        let OutboundOptions { role, reach, .. } = self.options;
        match place_of(url)? {
            Some(UrlTarget::Address(address)) => permit(role, reach, address)?,
            Some(UrlTarget::Name(place)) if private::has_port(place.port) => {
                // The resolver knows no port. The connection is held to these addresses, so that a name which is
                // resolved once more does not lead elsewhere.
                let resolved = resolve(&place).await;
                let addresses =
                    resolved.map_err(|problem| OutboundError::Host(problem.to_string()))?;
                addresses.iter().try_for_each(|address| permit(role, reach, *address))?;
                let name = url.host_str().unwrap_or_default();
                let pinned = self.builder().resolve_to_addrs(name, &addresses);
                return Ok(pinned.build()?);
            }
            Some(UrlTarget::Name(_)) | None => {}
        }
        let slot = if is_loopback_only() { &self.local } else { &self.client };
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        let made = self.builder().build()?;
        Ok(slot.get_or_init(|| made).clone())
    }

    fn builder(&self) -> reqwest::ClientBuilder {
        let OutboundOptions { role, reach, tls, max_redirects, timeout, uses_proxy } =
            self.options.clone();
        let redirects = match max_redirects {
            0 => Policy::none(),
            most => Policy::custom(move |attempt| follow(role, reach, most, attempt)),
        };
        let builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirects)
            .retry(reqwest::retry::never())
            .referer(false)
            .dns_resolver(Arc::new(PermittingResolver(reach)));
        let builder = match timeout {
            Some(timeout) => builder.timeout(timeout),
            None => builder,
        };
        if uses_proxy && !is_loopback_only() { builder } else { builder.no_proxy() }
    }
}

/// Returns the refusal among the causes of an error.
pub(crate) fn refusal_of(error: &(dyn StdError + 'static)) -> Option<DialRefusal> {
    let mut cause = Some(error);
    while let Some(problem) = cause {
        if let Some(refusal) = problem.downcast_ref::<DialRefusal>() {
            return Some(*refusal);
        }
        if let Some(out_of_reach) = problem.downcast_ref::<OutOfReach>() {
            return Some(DialRefusal::OutOfReach(*out_of_reach));
        }
        let inner = problem.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(refusal) = inner.and_then(|inner| inner.downcast_ref::<DialRefusal>()) {
            return Some(*refusal);
        }
        cause = problem.source();
    }
    None
}

/// The target of a URL.
enum UrlTarget {
    Address(SocketAddr),
    Name(HostPort),
}

/// Reads the target of a URL, as the library will connect to it.
fn place_of(url: &Url) -> Result<Option<UrlTarget>, OutboundError> {
    let Some(port) = url.port_or_known_default() else { return Ok(None) };
    match url.host() {
        None => Ok(None),
        Some(UrlHost::Ipv4(ip)) => Ok(Some(UrlTarget::Address(SocketAddr::new(ip.into(), port)))),
        Some(UrlHost::Ipv6(ip)) => Ok(Some(UrlTarget::Address(SocketAddr::new(ip.into(), port)))),
        Some(UrlHost::Domain(name)) => {
            let host = Host::parse(name)
                .map_err(|problem| OutboundError::Host(format!("{name:?} {problem}")))?;
            Ok(Some(UrlTarget::Name(HostPort { host, port })))
        }
    }
}

/// Follows a redirect to a place that is permitted.
fn follow(
    role: DialRole,
    reach: Reach,
    most: usize,
    attempt: Attempt<'_>,
) -> reqwest::redirect::Action {
    if attempt.previous().len() > most {
        return attempt.error("too many redirects");
    }
    let permitted = match place_of(attempt.url()) {
        Ok(Some(UrlTarget::Address(address))) => {
            permit(role, reach, address).map_err(io::Error::from)
        }
        Ok(Some(UrlTarget::Name(place))) if private::has_port(place.port) => resolve_now(&place)
            .and_then(|addresses| {
                let permitted =
                    addresses.iter().try_for_each(|address| permit(role, reach, *address));
                permitted.map_err(io::Error::from)
            }),
        Ok(_) => Ok(()),
        Err(problem) => Err(io::Error::other(problem)),
    };
    match permitted {
        Ok(()) => attempt.follow(),
        Err(problem) => attempt.error(problem),
    }
}

/// Resolves names, and refuses names with an address that is not permitted.
struct PermittingResolver(Reach);

impl Resolve for PermittingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let host = Host::parse(name.as_str())
                .map_err(|problem| format!("{:?} {problem}", name.as_str()))?;
            let addresses = resolve(&HostPort { host, port: 0 }).await?;
            addresses.iter().try_for_each(|address| permit_ip(reach, address.ip()))?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::net::private::PrivateListener;
    use crate::net::tls;

    fn client(max_redirects: usize) -> OutboundClient {
        OutboundClient::new(OutboundOptions {
            role: DialRole::Acme,
            reach: Reach::Any,
            tls: tls::client_config(tls::system_roots()).unwrap(),
            max_redirects,
            timeout: Some(Duration::from_secs(20)),
            uses_proxy: false,
        })
    }

    fn url(text: &str) -> WebUrl {
        WebUrl::parse(text).unwrap()
    }

    /// Redirects one request.
    async fn redirecting(to: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
        });
        url
    }

    #[tokio::test]
    async fn redirects_do_not_lead_to_an_api_of_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _private = PrivateListener::new(address);
        for host in ["127.0.0.1", "localhost", "api.localhost", "[::ffff:127.0.0.1]"] {
            let target = format!("http://{host}:{}/", address.port());

            let direct = client(3).request(Method::GET, &url(&target)).await;
            let request = client(3).request(Method::GET, &url(&redirecting(&target).await)).await;
            let redirected = request.unwrap().send().await.unwrap_err();

            let is_own = |refusal| matches!(refusal, DialRefusal::OwnApi(_));
            assert!(matches!(direct, Err(OutboundError::Refused(it)) if is_own(it)), "{host}");
            assert!(refusal_of(&redirected).is_some_and(is_own), "{host}: {redirected:?}");
        }
        let accepted = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(accepted.is_err());
    }

    #[tokio::test]
    async fn redirects_are_followed_up_to_the_limit() {
        let last = redirecting("http://127.0.0.1:9/").await;
        let first = redirecting(&last).await;

        let request = client(1).request(Method::GET, &url(&first)).await.unwrap();
        let problem = format!("{:?}", request.send().await.unwrap_err());

        assert!(problem.contains("too many redirects"), "{problem}");
    }
}
