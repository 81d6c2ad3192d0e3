//! The address of the management API, and its limits that hold for all clients together.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

use ginnel_api::mask;
use ginnel_base::address::{AddressError, Authority, Scheme, with_ascii_host};
use ginnel_net::descriptors::{self, DescriptorLimit};
use ginnel_net::{self as net, ConnectionCaps};
use ginnel_settings::settings;

use super::Error;

/// The connections that the management API holds by default.
const AN_EIGHTH: &str = "an eighth of the limit of open files, at most 4,096";

settings! {
    /// How the management API is offered.
    #[derive(Debug, Clone)]
    pub struct ManagementSettings {
    }

    /// The settings of the listener.
    listener {
        host: String = "127.0.0.1".to_owned(),
            "host", "HOST",
            "The name or address of the listener",
            listed_in_help(), with_keyword();
        port: u16 = 0,
            "port", "PORT",
            "The port of the listener; 0 picks a free port",
            listed_in_help(), with_keyword();
    }

    /// The settings of its address and its pages.
    offers {
        public_url: Option<String> = None,
            "public_url", "URL",
            "The URL to put into responses, if clients reach the API at another one",
            with_keyword();
        console: bool = true,
            "console", "BOOL",
            "Serve a console for people at /console of the management address",
            listed_in_help();
        rate_limit: Option<(u32, Duration)> = None,
            "rate_limit", "N/60s",
            "Allow this many requests per account in a rolling window of seconds",
            live(), with_keyword();
    }

    /// The limit of connections.
    connections {
        connections: Option<usize> = None,
            "max_api_connections", "N",
            "The most connections to the management API that may be open",
            with_bounds(1, u32::MAX as u64), live(), when_unset(AN_EIGHTH), with_keyword();
    }
}

impl ManagementSettings {
    /// Returns an error if the public URL cannot be used.
    pub(super) fn check_public_url(&self) -> Result<(), Error> {
        self.public_url.as_deref().map_or(Ok(()), check_url)
    }

    /// A rate limit allows some requests in some time.
    pub(super) fn check_rate_limit(&self) -> Result<(), Error> {
        let is_wrong = |(requests, window): (u32, Duration)| requests == 0 || window.is_zero();
        if self.rate_limit.is_some_and(is_wrong) { Err(Error::RateLimit) } else { Ok(()) }
    }

    /// The public address with its host in the `xn--` form.
    pub(super) fn own_url(&self) -> Option<String> {
        let url = self.public_url.as_deref()?;
        Some(with_ascii_host(url).map_or_else(|_| url.to_owned(), Cow::into_owned))
    }

    /// The host of the public address, without brackets.
    pub(super) fn public_host(&self) -> Option<String> {
        let authority = Authority::split_url(self.public_url.as_deref()?).ok();
        authority.map(|(authority, _)| authority.host.unbracketed())
    }

    /// Maximum numbers of connections.
    pub(super) fn connection_caps(&self) -> ConnectionCaps {
        let total = self
            .connections
            .unwrap_or_else(|| DescriptorLimit::read_current().management_connections());
        let per_address = descriptors::share_per_address(total);
        ConnectionCaps { total, per_address, reserved: 0 }
    }

    /// Listens on the address.
    pub(super) async fn bind(&self) -> Result<(TcpListener, SocketAddr), Error> {
        let bound = net::listen_on(&self.host, self.port).await;
        let bound = bound.and_then(|socket| socket.local_addr().map(|address| (socket, address)));
        bound.map_err(|source| {
            let address = format!("{}:{}", self.host, self.port);
            match source.kind() {
                ErrorKind::AddrInUse => Error::AddressInUse(address),
                _ => Error::Bind { address, source },
            }
        })
    }
}

fn check_url(url: &str) -> Result<(), Error> {
    let invalid = |cause: String| {
        let form = "is not an http:// or https:// address";
        Error::invalid_setting("public_url", format!("{:?} {form}{cause}", mask::url(url)))
    };
    // The form shows the cause if it is the scheme.
    let (authority, rest) = Authority::split_url(url).map_err(|problem| match problem {
        AddressError::Scheme(_) => invalid(String::new()),
        problem => invalid(format!(": it {problem}")),
    })?;
    if !matches!(authority.scheme, Scheme::Http | Scheme::Https) {
        return Err(invalid(String::new()));
    }
    let problem = match rest {
        "" => return Ok(()),
        rest if rest.contains('#') => AddressError::Fragment,
        rest if rest.contains('?') => AddressError::Query,
        rest if rest.parse::<http::uri::PathAndQuery>().is_err() => AddressError::PathCharacter,
        _ => return Ok(()),
    };
    Err(invalid(format!(": it {problem}")))
}
