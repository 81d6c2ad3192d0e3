//! Requests that go through a proxy: reqwest's work.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::proxy::matcher::Matcher;

use super::options::{Options, Origin};
use super::{Cause, ConfigError, Settings};
use crate::api::mask;

/// The proxy that requests go through.
#[derive(Clone)]
pub(super) struct Proxy(reqwest::Proxy);

impl Proxy {
    /// The user's proxy; else the environment's or the system's, for other machines only.
    pub(super) fn choose(options: &Options, origin: &Origin) -> Result<Option<Self>, ConfigError> {
        // Its address may have a password.
        let wrong = |error: reqwest::Error| {
            ConfigError::new("proxy", format!("is not usable: {}", error.without_url()))
        };
        if let Some(address) = &options.proxy {
            return Ok(Some(Self(reqwest::Proxy::all(address).map_err(wrong)?)));
        }
        if options.ignore_environment || origin.is_loopback() {
            return Ok(None);
        }
        let Ok(address) = Uri::try_from(origin.to_string()) else { return Ok(None) };
        let Some(found) = Matcher::from_system().intercept(&address) else { return Ok(None) };
        let mut proxy = reqwest::Proxy::all(found.uri().to_string()).map_err(wrong)?;
        if let Some(authorization) = found.basic_auth() {
            proxy = proxy.custom_http_auth(authorization.clone());
        } else if let Some((user, password)) = found.raw_auth() {
            proxy = proxy.basic_auth(user, password);
        }
        Ok(Some(Self(proxy)))
    }
}

/// Sends a request through the proxy and takes the whole answer.
pub(super) async fn exchange(
    client: &OnceLock<reqwest::Client>,
    proxy: &Proxy,
    settings: &Settings,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, Cause> {
    let client = match client.get() {
        Some(client) => client,
        None => {
            let made = make(proxy, settings)?;
            client.get_or_init(|| made)
        }
    };
    let (mut head, body) = request.into_parts();
    // reqwest writes its own, from the whole address.
    head.headers.remove(header::HOST);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let response = client
        .request(head.method, settings.origin.absolute(path))
        .headers(head.headers)
        .body(body)
        .send()
        .await
        .map_err(failed)?;
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = response.status();
    *answer.headers_mut() = response.headers().clone();
    *answer.body_mut() = response.bytes().await.map_err(failed)?;
    Ok(answer)
}

fn make(proxy: &Proxy, settings: &Settings) -> Result<reqwest::Client, Cause> {
    let tls = settings.roots.config().map_err(Cause::Connect)?;
    reqwest::Client::builder()
        .proxy(proxy.0.clone())
        .tls_backend_preconfigured(rustls::ClientConfig::clone(&tls))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .build()
        .map_err(failed)
}

fn failed(error: reqwest::Error) -> Cause {
    if error.is_connect() {
        let text = chain(&error.without_url());
        return Cause::Connect(std::io::Error::other(text));
    }
    Cause::Proxy(chain(&error.without_url()))
}

/// An error with its causes: the first line alone says only that something failed.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let text = causes.map(|error| error.to_string()).collect::<Vec<_>>().join(": ");
    // A proxy may have a password.
    mask::text(&text).into_owned()
}
