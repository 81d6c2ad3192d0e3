//! What actions want to know from elsewhere, such as the keys of an issuer.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::{Host, Url};

use crate::base;
use crate::net::{OutOfReach, Reach, private, tls};
use crate::policy::{Fetch, FetchFailed, Fetched};

/// How many redirects are followed at most, whatever an action says.
const MAX_REDIRECTS: u8 = 10;
/// How long a body may take of which only the beginning is of use.
const BODY_TIMEOUT: Duration = Duration::from_millis(500);

/// The clients that fetch for actions; made when they are first needed.
#[derive(Default)]
pub(crate) struct Fetcher {
    any: OnceLock<Client>,
    /// Connects to public addresses alone.
    public: OnceLock<Client>,
}

impl Fetcher {
    /// Does what an action asks for, as far as it may reach.
    pub(crate) async fn fetch(&self, spec: &Fetch, reach: Reach) -> Fetched {
        let url = spec.url.clone();
        let mut left = spec.max_redirects.min(MAX_REDIRECTS);
        let fetched = async {
            let mut next = url;
            loop {
                let (answer, location) = self.once(spec, &next, reach).await?;
                match location.filter(|_| left > 0) {
                    Some(location) => {
                        left -= 1;
                        next = location;
                    }
                    None => return Ok(answer),
                }
            }
        };
        tokio::time::timeout(spec.timeout, fetched).await.unwrap_or(Err(FetchFailed::Late))
    }

    /// Sends one request; gives the response, with what comes of its body in a moment and within the limit.
    /// A body may be as long as it likes, and redirects lead nowhere.
    pub(crate) async fn send_once(
        &self,
        spec: &Fetch,
        reach: Reach,
    ) -> Result<Response<Bytes>, FetchFailed> {
        let sent = tokio::time::timeout(spec.timeout, self.send(spec, &spec.url, reach));
        let mut answer = sent.await.unwrap_or(Err(FetchFailed::Late))?;
        let mut body = BytesMut::new();
        let reading = async {
            while let Some(piece) = answer.chunk().await? {
                body.extend_from_slice(&piece);
                if body.len() > spec.limit {
                    break;
                }
            }
            Ok::<_, reqwest::Error>(())
        };
        match tokio::time::timeout(BODY_TIMEOUT.min(spec.timeout), reading).await {
            Ok(Ok(())) => {}
            Ok(Err(err)) => tracing::debug!(err = %err.without_url(), "a response is cut off"),
            Err(_) => tracing::debug!("a response does not end"),
        }
        body.truncate(spec.limit);
        let mut response = Response::new(body.freeze());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok(response)
    }

    /// Sends one request; gives the answer, and where it leads.
    async fn once(
        &self,
        spec: &Fetch,
        url: &str,
        reach: Reach,
    ) -> Result<(Response<Bytes>, Option<String>), FetchFailed> {
        let mut answer = self.send(spec, url, reach).await?;
        let leads = answer.status().is_redirection();
        let location = answer.headers().get(http::header::LOCATION).filter(|_| leads);
        let location = location
            .and_then(|location| location.to_str().ok())
            .and_then(|location| answer.url().join(location).ok())
            .map(String::from);
        let mut body = BytesMut::new();
        while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&piece);
            if body.len() > spec.limit {
                return Err(FetchFailed::TooLong);
            }
        }
        let mut response = Response::new(body.freeze());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok((response, location))
    }

    async fn send(
        &self,
        spec: &Fetch,
        url: &str,
        reach: Reach,
    ) -> Result<reqwest::Response, FetchFailed> {
        let request = self.client_for(url, reach).await?.request(spec.method.clone(), url);
        let request = request.headers(spec.headers.clone()).body(spec.body.clone());
        request.send().await.map_err(unreachable)
    }

    /// The client for a URL, which never leads to an API of this process.
    async fn client_for(&self, url: &str, reach: Reach) -> Result<Client, FetchFailed> {
        match checked(url, reach).await? {
            None => self.client(reach).cloned(),
            Some(pinned) => made(Some(pinned), reach),
        }
    }

    fn client(&self, reach: Reach) -> Result<&Client, FetchFailed> {
        let client = match reach {
            Reach::Any => &self.any,
            Reach::Public => &self.public,
        };
        if let Some(client) = client.get() {
            return Ok(client);
        }
        let made = made(None, reach)?;
        Ok(client.get_or_init(|| made))
    }
}

/// Resolves names, and refuses those that stand for an address which is not public.
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<_> = addresses.collect();
            addresses.iter().try_for_each(|address| Reach::Public.check(address.ip()))?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// With its causes, and without the URL, which may hold what only its receiver should know.
fn unreachable(problem: reqwest::Error) -> FetchFailed {
    let problem = problem.without_url();
    let mut text = problem.to_string();
    let mut cause = std::error::Error::source(&problem);
    while let Some(problem) = cause {
        if let Some(OutOfReach(address)) = problem.downcast_ref() {
            return FetchFailed::OutOfReach(*address);
        }
        text = format!("{text}: {problem}");
        cause = problem.source();
    }
    FetchFailed::Unreachable(text)
}

/// A name, and the only addresses that it stands for.
type PinnedResolver = (String, Vec<SocketAddr>);

/// What a URL's host must be held to, so that a name which is resolved once more does not lead
/// elsewhere; none where nothing private has that port.
async fn checked(url: &str, reach: Reach) -> Result<Option<PinnedResolver>, FetchFailed> {
    let in_reach = |address: IpAddr| {
        reach.check(address).map_err(|OutOfReach(address)| FetchFailed::OutOfReach(address))
    };
    let url = Url::parse(url).map_err(failed)?;
    match url.host() {
        Some(Host::Ipv4(address)) => in_reach(address.into())?,
        Some(Host::Ipv6(address)) => in_reach(address.into())?,
        Some(Host::Domain(_)) | None => {}
    }
    let port = url.port_or_known_default().filter(|port| private::has_port(*port));
    let (Some(port), Some(host)) = (port, url.host_str()) else { return Ok(None) };
    let name = base::address::Host::parse(host).map_err(failed)?.unbracketed();
    let addresses = tokio::net::lookup_host((name.as_str(), port)).await.map_err(failed)?;
    let addresses: Vec<_> = addresses.collect();
    addresses.iter().try_for_each(|address| {
        private::check(*address).map_err(failed)?;
        in_reach(address.ip())
    })?;
    Ok(Some((host.to_owned(), addresses)))
}

fn made(pinned: Option<PinnedResolver>, reach: Reach) -> Result<Client, FetchFailed> {
    make(pinned, reach).map_err(failed)
}

fn failed(problem: impl Display) -> FetchFailed {
    FetchFailed::Unreachable(problem.to_string())
}

fn make(
    pinned: Option<PinnedResolver>,
    reach: Reach,
) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let config = tls::client_config(tls::system_roots())?;
    let client = Client::builder()
        .tls_backend_preconfigured(config)
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy();
    let client = match (pinned, reach) {
        (Some((host, addresses)), _) => client.resolve_to_addrs(&host, &addresses),
        (None, Reach::Public) => client.dns_resolver(Arc::new(PublicResolver)),
        (None, Reach::Any) => client,
    };
    Ok(client.build()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::net::private::PrivateListener;

    fn spec(url: String) -> Fetch {
        Fetch {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: Duration::from_secs(20),
            limit: 1024,
            max_redirects: 3,
            attempt: 1,
        }
    }

    /// Answers one request with this.
    async fn answering(head: String) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn nothing_is_fetched_from_a_private_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _private = PrivateListener::new(address);
        let port = address.port();
        for host in ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0"] {
            let leading = format!("http://{host}:{port}/");
            let redirect = format!("HTTP/1.1 302 Found\r\nLocation: {leading}\r\n\r\n");
            let redirecting = format!("http://{}/", answering(redirect).await);
            for url in [leading, redirecting] {
                let fetched = Fetcher::default().fetch(&spec(url.clone()), Reach::Any).await;
                let problem = fetched.unwrap_err().to_string();
                assert!(problem.contains("own API"), "{url}: {problem}");
            }
        }
        let nobody = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody.is_err());
    }

    #[tokio::test]
    async fn another_machine_may_have_the_port_of_a_private_listener() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_owned();
        let address = answering(ok).await;
        // Nobody has an address that is kept for documentation.
        let _private = PrivateListener::new(SocketAddr::new([192, 0, 2, 1].into(), address.port()));

        let fetched =
            Fetcher::default().fetch(&spec(format!("http://{address}/")), Reach::Any).await;

        assert_eq!(fetched.unwrap().body(), "hi");
    }

    #[tokio::test]
    async fn what_may_reach_public_addresses_alone_reaches_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"] {
            let url = format!("http://{host}:{port}/");
            let fetched = Fetcher::default().fetch(&spec(url), Reach::Public).await;
            let failure = fetched.unwrap_err();
            assert!(matches!(failure, FetchFailed::OutOfReach(_)), "{host}: {failure}");
        }
        let nobody = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody.is_err());
    }
}
