//! Requests over HTTP to places that others name, for which the rules of the dialler hold.
//!
//! reqwest opens the connections. It resolves names with a resolver that permits each address, and URLs with an IP
//! address, which need no resolver, are permitted before a request is sent. reqwest follows no redirects: each one is a
//! request of its own.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response};
use rustls::ClientConfig;
use url::{Host as UrlHost, Url};

use ginnel_base::address::{AddressError, Host, HostPort, WebUrl};

use super::dial::{DialRefusal, DialRole, is_loopback_only, permit_address, permit_ip};
use super::private;
use super::reach::{OutOfReach, Reach};
use super::resolve::resolve_host;

/// Causes of a missing response.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The rules of the dialler exclude the address.
    #[error(transparent)]
    Refused(#[from] DialRefusal),
    /// The URL has no host that can be resolved.
    #[error("{0}")]
    Host(String),
    /// The library refuses the settings.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
    /// The request failed.
    #[error(transparent)]
    Failed(reqwest::Error),
    /// A redirect leads to a URL that cannot be used.
    #[error("leads to a URL that {0}")]
    Redirect(AddressError),
    /// There are more redirects than are followed.
    #[error("has more than {0} redirects")]
    TooManyRedirects(usize),
}

/// The settings of an [`OutboundClient`].
#[derive(Debug, Clone)]
pub struct OutboundOptions {
    pub role: DialRole,
    pub reach: Reach,
    /// The certificates to trust.
    pub tls: ClientConfig,
    /// The time that each request may take, including the body of the response.
    pub timeout: Option<Duration>,
    /// If true, requests go through the proxy of the environment.
    pub uses_proxy: bool,
}

/// Sends requests to places that the rules of the dialler permit.
#[derive(Debug)]
pub struct OutboundClient {
    options: OutboundOptions,
    client: OnceLock<Client>,
    /// The client while only this machine is allowed: it uses no proxy, and has no connection from before.
    local: OnceLock<Client>,
    /// The proxies of the environment, if requests go through them.
    proxies: Option<Matcher>,
}

impl OutboundClient {
    /// Makes a client, which connects when a request is sent.
    pub fn new(options: OutboundOptions) -> Self {
        let proxies = options.uses_proxy.then(Matcher::from_system);
        Self { options, client: OnceLock::new(), local: OnceLock::new(), proxies }
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

    /// Sends a request without a body, and follows redirects. Each of them is permitted as the first request is.
    ///
    /// # Errors
    /// If the client may not reach one of the URLs, if a request fails, or if there are more than `max_redirects`.
    pub async fn send_and_follow(
        &self,
        method: Method,
        url: &WebUrl,
        headers: &HeaderMap,
        max_redirects: usize,
    ) -> Result<Response, OutboundError> {
        let mut url = url.clone();
        for _ in 0..=max_redirects {
            let request = self.request(method.clone(), &url).await?.headers(headers.clone());
            let response = request.send().await.map_err(OutboundError::Failed)?;
            let location = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
            let Some(location) = location.filter(|_| response.status().is_redirection()) else {
                return Ok(response);
            };
            url = url.join(location).map_err(OutboundError::Redirect)?;
        }
        Err(OutboundError::TooManyRedirects(max_redirects))
    }

    /// Returns the client for a URL.
    async fn client_for(&self, url: &Url) -> Result<Client, OutboundError> {
        let OutboundOptions { role, reach, .. } = self.options;
        match url_target(url)? {
            Some(UrlTarget::Address(address)) => permit_address(role, reach, address)?,
            Some(UrlTarget::Name(place))
                if private::has_port(place.port) && !self.goes_through_proxy(url) =>
            {
                // The resolver knows no port. The connection is held to these addresses, so that a name which is
                // resolved once more does not lead elsewhere.
                let resolved = resolve_host(&place).await;
                let addresses =
                    resolved.map_err(|problem| OutboundError::Host(problem.to_string()))?;
                addresses.iter().try_for_each(|address| permit_address(role, reach, *address))?;
                let name = url.host_str().unwrap_or_default();
                let pinned = self.client_builder().resolve_to_addrs(name, &addresses);
                return Ok(pinned.build()?);
            }
            Some(UrlTarget::Name(_)) | None => {}
        }
        let slot = if is_loopback_only() { &self.local } else { &self.client };
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        let made = self.client_builder().build()?;
        Ok(slot.get_or_init(|| made).clone())
    }

    /// Returns true if a proxy of the environment connects to a URL. It resolves the name then, and this machine may
    /// not know the name.
    fn goes_through_proxy(&self, url: &Url) -> bool {
        let proxies = self.proxies.as_ref().filter(|_| !is_loopback_only());
        let uri = Uri::try_from(url.as_str()).ok();
        proxies.zip(uri).is_some_and(|(proxies, uri)| proxies.intercept(&uri).is_some())
    }

    fn client_builder(&self) -> reqwest::ClientBuilder {
        let OutboundOptions { reach, tls, timeout, uses_proxy, .. } = self.options.clone();
        let builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
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
pub fn find_refusal(error: &(dyn StdError + 'static)) -> Option<DialRefusal> {
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
fn url_target(url: &Url) -> Result<Option<UrlTarget>, OutboundError> {
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

/// Resolves names, and refuses names with an address that is not permitted.
struct PermittingResolver(Reach);

impl Resolve for PermittingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let host = Host::parse(name.as_str())
                .map_err(|problem| format!("{:?} {problem}", name.as_str()))?;
            let addresses = resolve_host(&HostPort { host, port: 0 }).await?;
            addresses.iter().try_for_each(|address| permit_ip(reach, address.ip()))?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::private::PrivateListener;
    use crate::tls;

    fn client() -> OutboundClient {
        OutboundClient::new(OutboundOptions {
            role: DialRole::Acme,
            reach: Reach::Any,
            tls: tls::client_config(tls::system_roots()).unwrap(),
            timeout: Some(Duration::from_secs(20)),
            uses_proxy: false,
        })
    }

    fn url(text: &str) -> WebUrl {
        WebUrl::parse(text).unwrap()
    }

    async fn get(text: &str, max_redirects: usize) -> Result<Response, OutboundError> {
        client().send_and_follow(Method::GET, &url(text), &HeaderMap::new(), max_redirects).await
    }

    /// Redirects one request.
    async fn redirecting(to: &str) -> String {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        answering(&head).await
    }

    /// Responds to one request.
    async fn answering(head: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let head = head.to_owned();
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

            let direct = client().request(Method::GET, &url(&target)).await.map(drop);
            let redirected = get(&redirecting(&target).await, 3).await.map(drop);

            for found in [direct, redirected] {
                let is_own = matches!(&found, Err(OutboundError::Refused(DialRefusal::OwnApi(_))));
                assert!(is_own, "{host}: {found:?}");
            }
        }
        let accepted = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(accepted.is_err());
    }

    #[tokio::test]
    async fn redirects_are_followed_up_to_the_limit() {
        for (max_redirects, is_followed) in [(2, true), (1, false)] {
            let last = redirecting(&answering("HTTP/1.1 204 No Content\r\n\r\n").await).await;

            let found = get(&redirecting(&last).await, max_redirects).await;

            match is_followed {
                true => assert_eq!(found.unwrap().status(), 204),
                false => assert!(matches!(found, Err(OutboundError::TooManyRedirects(1)))),
            }
        }
    }

    #[tokio::test]
    async fn a_request_alone_follows_no_redirect() {
        let url = url(&redirecting("http://127.0.0.1:9/").await);

        let request = client().request(Method::GET, &url).await.unwrap();

        assert_eq!(request.send().await.unwrap().status(), 302);
    }

    #[tokio::test]
    async fn a_name_that_only_the_proxy_knows_is_not_resolved() {
        let _private = PrivateListener::new("192.0.2.1:4443".parse().unwrap());
        let url = url("https://acme.invalid:4443/");
        let mut client = client();
        let direct = client.request(Method::GET, &url).await.map(drop);

        client.proxies = Some(Matcher::builder().https("http://127.0.0.1:9").build());

        let proxied = client.request(Method::GET, &url).await.map(drop);
        assert!(matches!(direct, Err(OutboundError::Host(_))), "{direct:?}");
        assert!(proxied.is_ok(), "{proxied:?}");
    }
}
