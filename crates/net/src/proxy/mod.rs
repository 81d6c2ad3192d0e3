//! The proxy of a connection, and the exchange with it before the connection is open.
//!
//! An HTTP proxy carries requests to an origin without TLS as they are, with the whole address in the
//! request line. Everything else goes through a tunnel that the proxy opens first: with CONNECT
//! (`connect.rs`) or SOCKS5 (`socks.rs`). Both are blocking code over any stream, whose deadlines
//! belong to the caller.

mod address;
mod connect;
mod exempt;
mod socks;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use http::header::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;

use ginnel_base::address::{Host, HostPort};

use address::{ProxyAddress, ProxyScheme};
use exempt::is_exempt;
pub use stream::{ProxyStream, dial_through_proxy};

/// The proxy that connections go through.
#[derive(Clone)]
pub struct Proxy(Arc<ProxyAddress>);

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {}", self.0)
    }
}

/// The place that a proxy leads to.
#[derive(Debug, Clone, Copy)]
pub struct ProxyTarget<'a> {
    /// The host.
    pub host: &'a Host,
    /// The port.
    pub port: u16,
    /// True if TLS is spoken there.
    pub is_tls: bool,
}

/// The address of a proxy that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{option}={value}: {problem}")]
pub struct ProxyConfigError {
    /// The name of the option, or of the variable of the environment.
    pub option: &'static str,
    /// The value, quoted and without its login.
    pub value: String,
    /// The problem with the value, and the forms that can be used.
    pub problem: String,
}

/// Why a proxy opened no tunnel. The request behind it was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The connection to the proxy failed, or its deadline is over.
    #[error("the connection to the proxy broke: {0}")]
    Io(#[source] io::Error),
    /// The proxy closed the connection within its answer, or before it.
    #[error("the proxy closed the connection without a response")]
    Closed,
    /// The proxy answered with an error.
    #[error("the proxy refused the tunnel: {reason}")]
    Refused {
        /// What it says.
        reason: String,
        /// True where another attempt may have more success.
        is_transient: bool,
    },
    /// The answer is not that of such a proxy.
    #[error("the response of the proxy is not {protocol}: {problem}")]
    Malformed {
        /// What the proxy should speak.
        protocol: &'static str,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The name of the origin has no address here.
    #[error("cannot resolve {host}: {source}")]
    Name {
        /// The host of the origin.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
}

impl ProxyError {
    /// True where another attempt may have more success: a proxy that wants other credentials, or is
    /// none, will not change its mind.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Io(_) | Self::Closed | Self::Name { .. } => true,
            Self::Refused { is_transient, .. } => *is_transient,
            Self::Malformed { .. } => false,
        }
    }
}

impl From<io::Error> for ProxyError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl Proxy {
    /// The proxy that the environment names for a target; else the system's.
    ///
    /// # Errors
    /// When the address is not that of a proxy that can be used; the message names the variable. An address that cannot be
    /// used never means a direct connection.
    pub fn from_environment(target: &ProxyTarget<'_>) -> Result<Option<Self>, ProxyConfigError> {
        Self::from_variables(target, |name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// The same with these variables. As with curl and Python, names in lower case go first, and an empty variable is
    /// none.
    fn from_variables(
        target: &ProxyTarget<'_>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ProxyConfigError> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let names: [&'static str; 4] = match target.is_tls {
            true => ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
            false => ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
        };
        // In a CGI program, the header `Proxy` of a visitor sets HTTP_PROXY.
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let mut names = names.iter().filter(|name| !(is_cgi && **name == "HTTP_PROXY"));
        let exempt = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
        match names.find_map(|name| Some((*name, variable(name)?))) {
            Some(_) if is_exempt(target, &exempt) => Ok(None),
            Some((name, address)) => Self::parse(name, &address).map(Some),
            None => Self::from_system(target),
        }
    }

    /// The proxy in the settings of macOS or Windows.
    fn from_system(target: &ProxyTarget<'_>) -> Result<Option<Self>, ProxyConfigError> {
        // Elsewhere there is only the environment, which was looked at.
        if !cfg!(any(target_os = "macos", windows)) {
            return Ok(None);
        }
        let scheme = if target.is_tls { "https" } else { "http" };
        let address = format!("{scheme}://{}:{}", target.host, target.port);
        let Ok(uri) = Uri::try_from(address) else { return Ok(None) };
        let Some(found) = Matcher::from_system().intercept(&uri) else { return Ok(None) };
        let mut address = ProxyAddress::parse("the system's proxy", &found.uri().to_string())?;
        address.authorization = found.basic_auth().cloned();
        let login = found.raw_auth();
        address.login = login.map(|(user, password)| (user.into(), password.into()));
        Ok(Some(Self(Arc::new(address))))
    }

    /// Parses the address of a proxy that `option` gave.
    ///
    /// # Errors
    /// When it is not that of a proxy that can be used.
    pub fn parse(option: &'static str, address: &str) -> Result<Self, ProxyConfigError> {
        Ok(Self(Arc::new(ProxyAddress::parse(option, address)?)))
    }

    /// The host and the port of the proxy.
    pub fn place(&self) -> HostPort {
        HostPort { host: self.0.host.clone(), port: self.0.port }
    }

    /// The proxy's host, without brackets.
    pub fn host(&self) -> &str {
        &self.0.host_text
    }

    /// The proxy's port, also where its address leaves it out.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// True when the proxy itself is spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.0.scheme == ProxyScheme::Https
    }

    /// True when requests are sent to the proxy with the whole address in the request line.
    pub fn uses_absolute_form(&self, target: &ProxyTarget<'_>) -> bool {
        !self.0.scheme.is_socks() && !target.is_tls
    }

    /// The value of `Proxy-Authorization`, for requests in absolute form. Inside a tunnel it has no
    /// place: the origin would read it.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.0.authorization.as_ref()
    }

    /// True when the origin's name is to be resolved here, and not by the proxy.
    pub fn needs_address(&self, target: &ProxyTarget<'_>) -> bool {
        self.0.scheme == ProxyScheme::Socks5 && target.host.ip().is_none()
    }

    /// Asks the proxy for a connection to the origin, at its address where [`Proxy::needs_address`];
    /// does nothing where requests are in absolute form. No byte of the origin's is taken from the
    /// stream. After an error the stream cannot be used.
    ///
    /// # Errors
    /// When the proxy refuses, breaks off, or is none. Errors of the stream come through as they are.
    pub fn open_tunnel(
        &self,
        stream: &mut (impl Read + Write),
        target: &ProxyTarget<'_>,
        address: Option<IpAddr>,
    ) -> Result<(), ProxyError> {
        if self.uses_absolute_form(target) {
            return Ok(());
        }
        let (name, port) = (target.host.unbracketed(), target.port);
        let address = address.or_else(|| target.host.ip());
        let destination = address.map_or_else(|| TunnelTarget::Name(&name), TunnelTarget::Address);
        match self.0.scheme.is_socks() {
            true => socks::open_tunnel(stream, &destination, port, self.0.login.as_ref()),
            false => connect::open_tunnel(stream, &destination, port, self.authorization()),
        }
    }
}

/// What a tunnel leads to.
enum TunnelTarget<'a> {
    Name(&'a str),
    Address(IpAddr),
}
