//! The address of a proxy, as users and the environment write it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::base::address::{AddressError, Host};
use crate::client::config_error::ConfigError;
use crate::client::redaction::mask_login;

/// How long user name and password of SOCKS5 may be, in bytes (RFC 1929).
const MAX_LOGIN_BYTES: usize = 255;
/// What an address looks like.
const FORM: &str =
    "must be http, https, socks5 or socks5h://[user:password@]host[:port]; without a scheme, http";

/// What a proxy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyScheme {
    Http,
    Https,
    /// Names are resolved here.
    Socks5,
    /// Names are resolved by the proxy.
    Socks5h,
}

/// A user and a password.
pub(super) type ProxyLogin = (Vec<u8>, Vec<u8>);

/// Where a proxy is, and what it knows us by.
pub(super) struct ProxyAddress {
    pub(super) scheme: ProxyScheme,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Option<ProxyLogin>,
    /// The same, as a header.
    pub(super) authorization: Option<HeaderValue>,
}

impl ProxyScheme {
    fn of(name: &str) -> Option<Self> {
        match name {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            "socks5" => Some(Self::Socks5),
            "socks5h" => Some(Self::Socks5h),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
            Self::Socks5h => "socks5h",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks5 | Self::Socks5h => 1080,
        }
    }

    pub(super) fn is_socks(self) -> bool {
        matches!(self, Self::Socks5 | Self::Socks5h)
    }
}

impl ProxyAddress {
    /// Reads an address that `option` gave. Without a scheme it is that of an HTTP proxy, as for curl.
    pub(super) fn parse(option: &'static str, address: &str) -> Result<Self, ConfigError> {
        let parsed = parse(address.trim());
        parsed.map_err(|problem| {
            let shown = format!("{:?}", mask_login(address));
            ConfigError::invalid(option, shown, format!("{problem}; {FORM}"))
        })
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{}{close}:{}", self.scheme.name(), self.host, self.port)
    }
}

fn parse(address: &str) -> Result<ProxyAddress, String> {
    if address.contains(|letter: char| letter.is_control() || letter == '\\') {
        return Err("it may hold no white space, control character or backslash".to_owned());
    }
    let address = match address.contains("://") {
        true => address.to_owned(),
        false => format!("http://{address}"),
    };
    // The name of the scheme first: of an unknown one, the rest may be written in any way.
    let name = address.split("://").next().unwrap_or_default().to_ascii_lowercase();
    let scheme =
        ProxyScheme::of(&name).ok_or_else(|| format!("the scheme {name} is not supported"))?;
    let written_host = written_host(&address)?;
    let url = Url::parse(&address).map_err(|error| error.to_string())?;
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("something follows the host and the port".to_owned());
    }
    if url.port() == Some(0) {
        return Err("nothing listens on port 0".to_owned());
    }
    let login = login(&url);
    let sizes = login.as_ref().map(|(user, password)| (user.len(), password.len()));
    if scheme.is_socks() && sizes.is_some_and(|(user, password)| !fits(user, password)) {
        return Err(
            "SOCKS5 takes a user of 1 to 255 bytes and a password of at most 255".to_owned()
        );
    }
    Ok(ProxyAddress {
        scheme,
        host: host(written_host)?,
        port: url.port().unwrap_or(scheme.default_port()),
        authorization: login.as_ref().and_then(basic),
        login,
    })
}

/// The host as it is written.
///
/// # Errors
/// Where the parser of addresses would read something else than what is written.
fn written_host(address: &str) -> Result<&str, String> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    let host = match host_and_port.rsplit_once(':') {
        Some((host, port)) if !host_and_port.ends_with(']') => {
            if port.is_empty() && !host.is_empty() {
                return Err("no port follows the colon".to_owned());
            }
            host
        }
        _ => host_and_port,
    };
    if host.is_empty() { Err("empty host".to_owned()) } else { Ok(host) }
}

fn fits(user: usize, password: usize) -> bool {
    (1..=MAX_LOGIN_BYTES).contains(&user) && password <= MAX_LOGIN_BYTES
}

/// Returns the host without brackets.
fn host(written: &str) -> Result<String, String> {
    let parsed = Host::parse(written).map_err(|problem| match problem {
        // For example a port without its host.
        AddressError::Number => format!("{written} is a number, not a host"),
        problem => format!("the host {written:?} {problem}"),
    });
    Ok(parsed?.unbracketed())
}

fn login(url: &Url) -> Option<ProxyLogin> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    Some((decoded(url.username()), decoded(url.password().unwrap_or_default())))
}

/// The credentials as RFC 7617 writes them.
fn basic((user, password): &ProxyLogin) -> Option<HeaderValue> {
    let login = [user.as_slice(), b":", password.as_slice()].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(login))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
