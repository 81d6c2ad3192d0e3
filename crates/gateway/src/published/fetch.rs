//! What actions want to know from elsewhere, such as the keys of an issuer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;

use ginnel_net::{
    DialRefusal, DialRole, OutOfReach, OutboundClient, OutboundError, OutboundOptions, Reach,
    find_refusal, tls,
};
use ginnel_policy::{Fetch, FetchFailed, Fetched};

/// How long a body may take of which only the beginning is of use.
const BODY_TIMEOUT: Duration = Duration::from_millis(500);

/// The clients that fetch for actions, made when they are first needed.
#[derive(Default)]
pub struct Fetcher(Mutex<HashMap<(DialRole, Reach), Arc<OutboundClient>>>);

impl Fetcher {
    /// Sends one request within `reach`. Redirects are not followed.
    pub async fn fetch(&self, spec: &Fetch, role: DialRole, reach: Reach) -> Fetched {
        let fetched = self.fetch_response(spec, (role, reach));
        tokio::time::timeout(spec.timeout, fetched).await.unwrap_or(Err(FetchFailed::Late))
    }

    /// Sends one request; gives the response, with what comes of its body in a moment and within the limit.
    /// A body may be as long as it likes, and redirects lead nowhere.
    pub async fn send_once(
        &self,
        spec: &Fetch,
        role: DialRole,
        reach: Reach,
    ) -> Result<Response<Bytes>, FetchFailed> {
        let sent = tokio::time::timeout(spec.timeout, self.send_request(spec, (role, reach)));
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

    /// Sends one request, and reads the response.
    async fn fetch_response(&self, spec: &Fetch, place: (DialRole, Reach)) -> Fetched {
        let mut answer = self.send_request(spec, place).await?;
        let mut body = BytesMut::new();
        while let Some(piece) = answer.chunk().await.map_err(unreachable_failure)? {
            body.extend_from_slice(&piece);
            if body.len() > spec.limit {
                return Err(FetchFailed::TooLong);
            }
        }
        let mut response = Response::new(body.freeze());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok(response)
    }

    async fn send_request(
        &self,
        spec: &Fetch,
        place: (DialRole, Reach),
    ) -> Result<reqwest::Response, FetchFailed> {
        let client = self.outbound_client(place)?;
        let request =
            client.request(spec.method.clone(), &spec.url).await.map_err(unsent_failure)?;
        let request = request.headers(spec.headers.clone()).body(spec.body.clone());
        request.send().await.map_err(unreachable_failure)
    }

    fn outbound_client(
        &self,
        place: (DialRole, Reach),
    ) -> Result<Arc<OutboundClient>, FetchFailed> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&place) {
            return Ok(client.clone());
        }
        let tls = tls::client_config(tls::system_roots())
            .map_err(|problem| FetchFailed::Unreachable(problem.to_string()))?;
        let client = Arc::new(OutboundClient::new(OutboundOptions {
            role: place.0,
            reach: place.1,
            tls,
            timeout: None,
            uses_proxy: false,
        }));
        clients.insert(place, client.clone());
        Ok(client)
    }
}

/// The failure of a request that was not sent.
fn unsent_failure(problem: OutboundError) -> FetchFailed {
    match problem {
        OutboundError::Refused(DialRefusal::OutOfReach(OutOfReach(address))) => {
            FetchFailed::OutOfReach(address)
        }
        problem => FetchFailed::Unreachable(problem.to_string()),
    }
}

/// The failure with its causes, and without the URL, which may contain what only its receiver should know.
fn unreachable_failure(problem: reqwest::Error) -> FetchFailed {
    let problem = problem.without_url();
    if let Some(DialRefusal::OutOfReach(OutOfReach(address))) = find_refusal(&problem) {
        return FetchFailed::OutOfReach(address);
    }
    let mut text = problem.to_string();
    let mut cause = std::error::Error::source(&problem);
    while let Some(problem) = cause {
        text = format!("{text}: {problem}");
        cause = problem.source();
    }
    FetchFailed::Unreachable(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use std::net::SocketAddr;

    use super::*;
    use ginnel_base::address::WebUrl;
    use ginnel_net::private::PrivateListener;

    fn spec(url: &str) -> Fetch {
        Fetch {
            method: Method::GET,
            url: WebUrl::parse(url).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: Duration::from_secs(20),
            limit: 1024,
            max_redirects: 0,
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
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"] {
            let url = format!("http://{host}:{port}/");
            let fetcher = Fetcher::default();
            let fetched = fetcher.fetch(&spec(&url), DialRole::Policy, Reach::Any).await;
            let problem = fetched.unwrap_err().to_string();
            assert!(problem.contains("own API"), "{url}: {problem}");
        }
        let nobody = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody.is_err());
    }

    #[tokio::test]
    async fn a_redirect_is_the_response() {
        let redirect =
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n";
        let url = format!("http://{}/", answering(redirect.to_owned()).await);
        let spec = Fetch { max_redirects: 3, ..spec(&url) };

        let fetched = Fetcher::default().fetch(&spec, DialRole::Policy, Reach::Any).await;

        assert_eq!(fetched.unwrap().status(), 302);
    }

    #[tokio::test]
    async fn another_machine_may_have_the_port_of_a_private_listener() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_owned();
        let address = answering(ok).await;
        // Nobody has an address that is kept for documentation.
        let _private = PrivateListener::new(SocketAddr::new([192, 0, 2, 1].into(), address.port()));

        let spec = spec(&format!("http://{address}/"));
        let fetched = Fetcher::default().fetch(&spec, DialRole::Policy, Reach::Any).await;

        assert_eq!(fetched.unwrap().body(), "hi");
    }

    #[tokio::test]
    async fn what_may_reach_public_addresses_alone_reaches_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
            let url = format!("http://{host}:{port}/");
            let fetcher = Fetcher::default();
            let fetched = fetcher.fetch(&spec(&url), DialRole::Policy, Reach::Public).await;
            let failure = fetched.unwrap_err();
            assert!(matches!(failure, FetchFailed::OutOfReach(_)), "{host}: {failure}");
        }
        let nobody = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody.is_err());
    }
}
