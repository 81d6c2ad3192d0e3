//! One attempt to deliver events to a destination, and what its failure means.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use ginnel_api::remote::event_destinations::EventDestination;
use ginnel_base::address::{AddressError, HostName, WebUrl, with_ascii_host};
use ginnel_gateway::Gateway;
use ginnel_http1::retry_after;
use ginnel_net::{DialRefusal, Reach, private};
use ginnel_policy::Fetch;

use super::payload::OutgoingEvent;
use super::secret::DestinationSecret;
use super::{file, otlp, webhook};

/// The longest URL, in bytes.
const MAX_URL_BYTES: usize = 2048;
/// How often an event is sent to somebody who answers that the event is wrong.
const MAX_REFUSED_ATTEMPTS: u32 = 3;
/// How much is read of a response: collectors say there what they have not taken, and a connection can be
/// used again when it was read to its end.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The longest pause that a receiver may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// A kind of destination, for those who count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetKind {
    Webhook,
    File,
    Otlp,
}

impl TargetKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::File, Self::Otlp];

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::File => "file",
            Self::Otlp => "otlp",
        }
    }
}

/// Where events of one destination go.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DeliveryTarget {
    Webhook { url: String, secret: Option<DestinationSecret> },
    File { name: String },
    Otlp { url: String },
}

impl DeliveryTarget {
    /// What a stored destination says; none where it says nothing that is known. A webhook without a secret is
    /// not delivered to, and what waits for it is bounded as elsewhere.
    pub fn from_destination(
        destination: &EventDestination,
        secret: Option<DestinationSecret>,
    ) -> Option<Self> {
        let target = destination.target.clone()?;
        if let Some(webhook) = target.webhook {
            return Some(Self::Webhook { url: webhook.url?, secret });
        }
        if let Some(file) = target.file {
            return Some(Self::File { name: file.name? });
        }
        Some(Self::Otlp { url: target.otlp?.url? })
    }

    /// Its kind.
    pub fn kind(&self) -> TargetKind {
        match self {
            Self::Webhook { .. } => TargetKind::Webhook,
            Self::File { .. } => TargetKind::File,
            Self::Otlp { .. } => TargetKind::Otlp,
        }
    }

    /// How many events one attempt carries.
    pub fn max_batch_events(&self) -> usize {
        match self {
            Self::Webhook { .. } => 1,
            Self::File { .. } | Self::Otlp { .. } => 100,
        }
    }
}

/// What became of events that a receiver took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryReport {
    pub delivered: u64,
    /// How many it has dropped, and does not want again.
    pub rejected: u64,
}

/// How events leave this process.
#[derive(Clone)]
pub(super) struct EventSender {
    pub gateway: Gateway,
    /// The folder of files.
    pub folder: Option<PathBuf>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Where URLs of destinations may lead.
    pub reach: Reach,
}

impl EventSender {
    /// Delivers events, as many as the target takes at once. Secrets that were replaced count if they last at
    /// `age_second`.
    pub async fn send_events(
        &self,
        target: &DeliveryTarget,
        events: &[OutgoingEvent],
        age_second: i64,
    ) -> Result<DeliveryReport, DeliveryError> {
        let mut rejected = 0;
        match target {
            DeliveryTarget::Webhook { url, secret } => {
                for event in events {
                    let headers = webhook::signed_headers(event, secret.as_ref(), age_second)?;
                    self.post_request(url, headers, event.body.clone().into()).await?;
                }
            }
            DeliveryTarget::File { name } => {
                let folder = self.folder.clone().ok_or(DeliveryError::NoFolder)?;
                let lines = events.iter().map(|event| format!("{}\n", event.body)).collect();
                file::append_lines(folder, name.clone(), lines).await?;
            }
            DeliveryTarget::Otlp { url } => {
                let (headers, body) = otlp::export_request(events);
                let response = self.post_request(url, headers, body.into()).await?;
                rejected = otlp::rejected_records(&response).min(events.len() as u64);
            }
        }
        Ok(DeliveryReport { delivered: events.len() as u64 - rejected, rejected })
    }

    /// Sends a request; gives the beginning of the response's body.
    async fn post_request(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, DeliveryError> {
        let request = Fetch {
            method: Method::POST,
            url: WebUrl::parse(url).map_err(DeliveryError::Url)?,
            headers,
            body,
            timeout: self.timeout,
            limit: MAX_RESPONSE_BYTES,
            max_redirects: 0,
            attempt: 1,
        };
        let response = self.gateway.deliver_event(request, self.reach).await;
        let response =
            response.map_err(|failure| DeliveryError::Unanswered(failure.to_string()))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let asked = response.headers().get(RETRY_AFTER).map(HeaderValue::as_bytes);
        let retry_after = retry_after(asked).map(|pause| pause.min(MAX_RETRY_AFTER));
        Err(DeliveryError::Refused { status, retry_after })
    }
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    /// The URL is refused; an earlier version accepted it.
    #[error("the URL {0}")]
    Url(AddressError),
    /// There was no answer.
    #[error("{0}")]
    Unanswered(String),
    /// There was an answer, and it was not 2xx.
    #[error("the response was {status}")]
    Refused {
        /// Its status.
        status: StatusCode,
        /// How long the receiver asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The file cannot be written.
    #[error("cannot write {name}: {source}")]
    File {
        /// The name of the file in its folder.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// No folder is allowed any more.
    #[error("the setting event_delivery.folder allows no folder")]
    NoFolder,
    /// The secret cannot be used.
    #[error("the secret of the destination is unusable")]
    Secret,
}

impl DeliveryError {
    /// How often an event is sent before it is given up for such failures; none where only its age decides.
    /// A 404, a 401 or a redirect is about the receiver, who may be better tomorrow; only what is about the
    /// event itself would be the same then.
    pub fn max_attempts(&self) -> Option<u32> {
        let Self::Refused { status, .. } = self else { return None };
        match status.as_u16() {
            410 => Some(1),
            400 | 413 | 422 => Some(MAX_REFUSED_ATTEMPTS),
            _ => None,
        }
    }

    /// How long the receiver asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Returns the URL of a destination as it is stored, with its host in the `xn--` form. Where a name leads is seen
/// when an event is sent.
///
/// # Errors
/// With the problem, for a sentence behind the name of the field.
pub(crate) fn checked_url(text: &str, reach: Reach) -> Result<String, String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("is {} bytes long, the limit is {MAX_URL_BYTES}", text.len()));
    }
    let url = WebUrl::parse(text).map_err(|problem| match problem {
        AddressError::Login => "must not hold a user or a password".to_owned(),
        AddressError::Scheme(_) if text.contains("://") => {
            let scheme = text.split("://").next().unwrap_or_default();
            format!("invalid scheme {scheme:?}; expected \"http\" or \"https\"")
        }
        problem => format!("invalid URL; expected http:// or https:// and a host: it {problem}"),
    })?;
    let address = url.host().ip();
    let is_local = url.host().name().is_some_and(HostName::is_localhost);
    let place = address.or(is_local.then_some(Ipv4Addr::LOCALHOST.into()));
    if let Some(place) = place {
        let place = SocketAddr::new(place, url.port());
        if private::is_private(place) {
            return Err(format!("must lead elsewhere: {}", DialRefusal::OwnApi(place)));
        }
    }
    if let Some(problem) = address.and_then(|address| reach.check_address(address).err()) {
        return Err(format!(
            "{problem}: the service does not have event_delivery.private_receivers"
        ));
    }
    match url.fragment() {
        Some(_) => Err("must not have a fragment, which is never sent".to_owned()),
        // The host was parsed, so that there is such a form.
        None => Ok(with_ascii_host(text).map_or_else(|_| text.to_owned(), Cow::into_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_destinations_are_http_without_users() {
        for url in ["http://127.0.0.1:1/x", "https://a.test/hook?x=1", "http://[::1]:4318/v1/logs"]
        {
            assert_eq!(checked_url(url, Reach::Any).as_deref(), Ok(url));
        }
        let long = format!("http://a.test/{}", "x".repeat(MAX_URL_BYTES));
        for url in [
            "",
            "a.test",
            "ftp://a.test",
            "file:///etc/passwd",
            "http://",
            "http://me@a.test/",
            "http://:x@a.test/",
            "http://a.test/#x",
            &long,
        ] {
            assert!(checked_url(url, Reach::Any).is_err(), "{url}");
        }
        for (url, problem) in [
            ("ftp://a.test", "invalid scheme \"ftp\"; expected \"http\" or \"https\""),
            ("http://", "invalid URL; expected http:// or https:// and a host: it has no host"),
        ] {
            assert_eq!(checked_url(url, Reach::Any), Err(problem.to_owned()));
        }
    }

    #[test]
    fn what_the_receiver_says_decides_how_often_an_event_is_sent() {
        let attempts = |status| {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            DeliveryError::Refused { status, retry_after: None }.max_attempts()
        };

        assert_eq!([400, 410, 413, 422].map(attempts), [Some(3), Some(1), Some(3), Some(3)]);
        assert_eq!([301, 401, 403, 404, 408, 429, 500, 503].map(attempts), [None; 8]);
        assert_eq!(DeliveryError::Unanswered("late".into()).max_attempts(), None);
    }
}
