//! The address of a proxy, as users and the environment write it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use percent_encoding::percent_decode_str;

use ginnel_api::mask;
use ginnel_base::address::{AddressError, Host, parse_port};

use super::ProxyConfigError;

/// How long user name and password of SOCKS5 may be, in bytes (RFC 1929).
const MAX_LOGIN_BYTES: usize = 255;
/// What an address looks like.
const FORM: &str =
    "must be http, https, socks5 or socks5h://[user:password@]host[:port]; without a scheme, http";

const WRONG_PORT: &str =
    "invalid port: write a decimal number from 1 to 65535 without leading zeros";

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
    pub(super) host: Host,
    /// The host without brackets.
    pub(super) host_text: String,
    pub(super) port: u16,
    pub(super) login: Option<ProxyLogin>,
    /// The same, as a header.
    pub(super) authorization: Option<HeaderValue>,
}

impl ProxyScheme {
    fn from_name(name: &str) -> Option<Self> {
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
    pub(super) fn parse(option: &'static str, address: &str) -> Result<Self, ProxyConfigError> {
        let parsed = parse_address(address.trim());
        parsed.map_err(|problem| {
            let value = format!("{:?}", mask::login(address));
            ProxyConfigError { option, value, problem: format!("{problem}; {FORM}") }
        })
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.name(), self.host, self.port)
    }
}

fn parse_address(address: &str) -> Result<ProxyAddress, String> {
    if address.contains(|letter: char| letter.is_control() || letter == '\\') {
        return Err("it may hold no white space, control character or backslash".to_owned());
    }
    let (name, rest) = address.split_once("://").unwrap_or(("http", address));
    // The name of the scheme first: of an unknown one, the rest may be written in any way.
    let name = name.to_ascii_lowercase();
    let scheme = ProxyScheme::from_name(&name)
        .ok_or_else(|| format!("the scheme {name} is not supported"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let (login, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, authority),
    };
    let (host, port) = parse_place(place)?;
    if !matches!(rest, "" | "/") {
        return Err("something follows the host and the port".to_owned());
    }
    let login = login.and_then(decode_login);
    let sizes = login.as_ref().map(|(user, password)| (user.len(), password.len()));
    if scheme.is_socks() && sizes.is_some_and(|(user, password)| !has_valid_lengths(user, password))
    {
        return Err(
            "SOCKS5 takes a user of 1 to 255 bytes and a password of at most 255".to_owned()
        );
    }
    Ok(ProxyAddress {
        scheme,
        host_text: host.unbracketed(),
        host,
        port: port.unwrap_or(scheme.default_port()),
        authorization: login.as_ref().and_then(basic_authorization),
        login,
    })
}

/// Parses `host[:port]`.
fn parse_place(text: &str) -> Result<(Host, Option<u16>), String> {
    let end_of_host = match text.starts_with('[') {
        true => text.find(']').map_or(text.len(), |end| end + 1),
        false => 0,
    };
    let colon = text.get(end_of_host..).and_then(|rest| rest.find(':')).map(|at| end_of_host + at);
    let (host, port) = match colon.and_then(|colon| text.split_at_checked(colon)) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => (text, None),
    };
    if host.is_empty() {
        let is_address = port.is_some_and(|port| port.contains(':'));
        let problem = format!("the host {text:?} {}", AddressError::Brackets);
        return Err(if is_address { problem } else { "empty host".to_owned() });
    }
    let port = match port {
        None => None,
        Some("") => return Err("no port follows the colon".to_owned()),
        Some("0") => return Err("nothing listens on port 0".to_owned()),
        Some(port) => Some(parse_port(port).map_err(|_| WRONG_PORT.to_owned())?),
    };
    Ok((parse_host(host)?, port))
}

fn has_valid_lengths(user: usize, password: usize) -> bool {
    (1..=MAX_LOGIN_BYTES).contains(&user) && password <= MAX_LOGIN_BYTES
}

fn parse_host(written: &str) -> Result<Host, String> {
    Host::parse(written).map_err(|problem| match problem {
        // For example a port without its host.
        AddressError::Number => format!("{written} is a number, not a host"),
        problem => format!("the host {written:?} {problem}"),
    })
}

fn decode_login(login: &str) -> Option<ProxyLogin> {
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    if login.is_empty() || login == ":" {
        return None;
    }
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    Some((decoded(user), decoded(password)))
}

/// The credentials as RFC 7617 writes them.
fn basic_authorization((user, password): &ProxyLogin) -> Option<HeaderValue> {
    let login = [user.as_slice(), b":", password.as_slice()].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(login))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
