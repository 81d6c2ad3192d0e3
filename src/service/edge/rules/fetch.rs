//! What actions want to know from elsewhere, such as the keys of an issuer.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use http::Response;
use reqwest::Client;
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};

use crate::policy::{Fetch, FetchFailed, Fetched};

/// How many redirects are followed at most, whatever an action says.
const REDIRECTS: u8 = 10;

/// The client that fetches for actions; made when it is first needed.
#[derive(Default)]
pub(in crate::service::edge) struct Fetcher(OnceLock<Client>);

impl Fetcher {
    /// Does what an action asks for.
    pub(super) async fn fetch(&self, wanted: &Fetch) -> Fetched {
        let url = wanted.url.clone();
        let mut left = wanted.max_redirects.min(REDIRECTS);
        let fetched = async {
            let mut next = url;
            loop {
                let (answer, location) = self.once(wanted, &next).await?;
                match location.filter(|_| left > 0) {
                    Some(location) => {
                        left -= 1;
                        next = location;
                    }
                    None => return Ok(answer),
                }
            }
        };
        tokio::time::timeout(wanted.timeout, fetched).await.unwrap_or(Err(FetchFailed::Late))
    }

    /// Sends one request; gives the answer, and where it leads.
    async fn once(
        &self,
        wanted: &Fetch,
        url: &str,
    ) -> Result<(Response<Bytes>, Option<String>), FetchFailed> {
        let unreachable = |problem: reqwest::Error| FetchFailed::Unreachable(problem.to_string());
        let request = self.client()?.request(wanted.method.clone(), url);
        let request = request.headers(wanted.headers.clone()).body(wanted.body.clone());
        let mut answer = request.send().await.map_err(unreachable)?;
        let leads = answer.status().is_redirection();
        let location = answer.headers().get(http::header::LOCATION).filter(|_| leads);
        let location = location
            .and_then(|location| location.to_str().ok())
            .and_then(|location| answer.url().join(location).ok())
            .map(String::from);
        let mut body = BytesMut::new();
        while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&piece);
            if body.len() > wanted.limit {
                return Err(FetchFailed::TooLong);
            }
        }
        let mut response = Response::new(body.freeze());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok((response, location))
    }

    fn client(&self) -> Result<&Client, FetchFailed> {
        if let Some(client) = self.0.get() {
            return Ok(client);
        }
        let made = make().map_err(|problem| FetchFailed::Unreachable(problem.to_string()))?;
        Ok(self.0.get_or_init(|| made))
    }
}

fn make() -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    // Damaged entries of a system's store are common and concern nobody else.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Client::builder()
        .tls_backend_preconfigured(config)
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy();
    Ok(client.build()?)
}
