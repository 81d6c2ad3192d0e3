//! How requests reach the directory: over the provider of TLS that everything here uses.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use ginnel_base::address::WebUrl;
use ginnel_net::tls::{self, certificate};
use ginnel_net::{DialRole, OutboundClient, OutboundError, OutboundOptions, Reach};

use crate::acme::AcmeOptions;

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of redirects that are followed, for requests that are not signed for one URL.
const MAX_REDIRECTS: usize = 3;
/// The largest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Sends the requests of ACME.
#[derive(Clone)]
pub(super) struct AcmeTransport(Arc<OutboundClient>);

impl AcmeTransport {
    /// How a directory is reached.
    ///
    /// # Errors
    /// With what is wrong with the certificates to trust.
    pub fn new(options: &AcmeOptions) -> Result<Self, String> {
        let roots = match &options.ca {
            None => tls::system_roots(),
            Some(path) => {
                let failed = |problem: String| format!("{}: {problem}", path.display());
                let pem = certificate::read_file(path).map_err(|it| failed(it.to_string()))?;
                tls::parse_roots(&pem).map_err(failed)?
            }
        };
        let tls = tls::client_config(roots).map_err(|problem| problem.to_string())?;
        let client = OutboundClient::new(OutboundOptions {
            role: DialRole::Acme,
            reach: Reach::Any,
            tls,
            timeout: Some(REQUEST_TIMEOUT),
            uses_proxy: true,
        });
        Ok(Self(Arc::new(client)))
    }

    async fn send_request(
        self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, Error> {
        let other = |problem: reqwest::Error| Error::Other(problem.into());
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_or_else(|never| match never {}, |it| it.to_bytes());
        let url = WebUrl::parse(&parts.uri.to_string());
        let url = url.map_err(|problem| Error::Other(problem.into()))?;
        let sent = match parts.method {
            method @ (Method::GET | Method::HEAD) => {
                self.0.send_and_follow(method, &url, &parts.headers, MAX_REDIRECTS).await
            }
            method => match self.0.request(method, &url).await {
                Ok(request) => {
                    let sent = request.headers(parts.headers).body(body).send().await;
                    sent.map_err(OutboundError::Failed)
                }
                Err(problem) => Err(problem),
            },
        };
        let mut received = sent.map_err(|problem| Error::Other(problem.into()))?;
        let mut body = BytesMut::new();
        while let Some(piece) = received.chunk().await.map_err(other)? {
            body.extend_from_slice(&piece);
            if body.len() > MAX_RESPONSE_BYTES {
                return Err(Error::Str("a response of the directory is too long"));
            }
        }
        let mut response = http::Response::new(Full::new(body.freeze()));
        *response.status_mut() = received.status();
        *response.headers_mut() = std::mem::take(received.headers_mut());
        Ok(BytesResponse::from(response))
    }
}

impl HttpClient for AcmeTransport {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send_request(request))
    }
}
