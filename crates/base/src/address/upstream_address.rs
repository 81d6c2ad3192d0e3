//! Places that tunnels forward to.

use std::fmt;
use std::path::{Path, PathBuf};

use super::authority::reject_rest;
use super::host_name::has_blank;
use super::host_port::{parse_port_to_connect, split_port};
use super::{AddressError, Host, HostPort, Scheme, parse_port};

/// The longest path of a Unix socket in bytes: `sun_path` of Linux without its final NUL.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The address of a Unix socket, for messages.
const SOCKET_EXAMPLE: &str = "unix:/run/app.sock";

/// The place that a tunnel forwards to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamAddress {
    /// A host and a port, reached in the clear.
    Tcp(HostPort),
    /// A host and a port, reached by TLS.
    Tls(HostPort),
    /// A Unix socket, reached in the clear.
    Unix(UnixPath),
    /// A folder whose files are served.
    Files(PathBuf),
}

/// The absolute path of a Unix socket: without `..`, at most [`MAX_SOCKET_PATH_BYTES`] long.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnixPath(String);

/// The protocol of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressProtocol {
    /// Requests.
    Http,
    /// Bytes.
    Tcp,
    /// Bytes of TLS.
    Tls,
}

impl UpstreamAddress {
    /// Parses a port, `host:port`, a host, a URL, `unix:/path` or `file:///path`.
    ///
    /// A host without a port has the port of the protocol: 80 for HTTP, 443 for TLS. Port 443 without a scheme stands
    /// for TLS.
    ///
    /// # Errors
    /// If the text has another form, or one that the protocol does not support.
    pub fn parse(text: &str, protocol: AddressProtocol) -> Result<Self, AddressError> {
        // A host can have the name `unix`. Sockets have absolute paths, so digits are a port.
        if let Some(path) = text.strip_prefix("unix:")
            && parse_port(path).is_err()
        {
            return parse_unix(path, protocol);
        }
        if let Some(path) = text.strip_prefix("file://") {
            return parse_folder(path, protocol);
        }
        if has_blank(text) {
            return Err(AddressError::Blank);
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return parse_url(scheme, rest, protocol);
        }
        parse_place(text, protocol)
    }

    /// The host and the port, unless the address is a path.
    pub fn host_port(&self) -> Option<&HostPort> {
        match self {
            Self::Tcp(place) | Self::Tls(place) => Some(place),
            Self::Unix(_) | Self::Files(_) => None,
        }
    }

    /// The value of a `Host` header for the address.
    pub fn host_header(&self) -> String {
        match self {
            Self::Tcp(HostPort { host, port: 80 }) | Self::Tls(HostPort { host, port: 443 }) => {
                host.to_string()
            }
            Self::Tcp(place) | Self::Tls(place) => place.to_string(),
            Self::Unix(_) | Self::Files(_) => "localhost".to_owned(),
        }
    }
}

impl UnixPath {
    /// Parses an absolute path.
    ///
    /// # Errors
    /// If the path is relative, too long, contains `..` or a NUL, or the system has no Unix sockets.
    pub fn parse(path: &str) -> Result<Self, AddressError> {
        if cfg!(not(unix)) {
            return Err(AddressError::NoUnixSockets);
        }
        if path.is_empty() {
            return Err(AddressError::NoPath(SOCKET_EXAMPLE));
        }
        if path.chars().any(char::is_control) {
            return Err(AddressError::Blank);
        }
        if path.len() > MAX_SOCKET_PATH_BYTES {
            return Err(AddressError::SocketPath(MAX_SOCKET_PATH_BYTES));
        }
        match () {
            () if !path.starts_with('/') => Err(AddressError::RelativePath(SOCKET_EXAMPLE)),
            () if path.split('/').any(|segment| segment == "..") => Err(AddressError::ParentFolder),
            () if path.ends_with('/') || path.starts_with("//") => {
                Err(AddressError::EmptySegment(SOCKET_EXAMPLE))
            }
            () => Ok(Self(path.to_owned())),
        }
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

fn parse_unix(path: &str, protocol: AddressProtocol) -> Result<UpstreamAddress, AddressError> {
    // `unix:///path` is a URL with an empty authority.
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = UnixPath::parse(path)?;
    match protocol {
        AddressProtocol::Http | AddressProtocol::Tcp => Ok(UpstreamAddress::Unix(path)),
        AddressProtocol::Tls => Err(AddressError::Protocol("Unix socket", "http and tcp")),
    }
}

fn parse_folder(path: &str, protocol: AddressProtocol) -> Result<UpstreamAddress, AddressError> {
    let folder = PathBuf::from(path);
    if protocol != AddressProtocol::Http {
        return Err(AddressError::Protocol("folder", "http"));
    }
    match folder.is_absolute() {
        true => Ok(UpstreamAddress::Files(folder)),
        false => Err(AddressError::RelativePath("file:///srv/www")),
    }
}

fn parse_url(
    scheme: &str,
    rest: &str,
    protocol: AddressProtocol,
) -> Result<UpstreamAddress, AddressError> {
    let schemes = match protocol {
        AddressProtocol::Http => "http:// or https://",
        AddressProtocol::Tcp | AddressProtocol::Tls => "tcp://, tls://, http:// or https://",
    };
    let scheme = Scheme::from_name(scheme).ok_or(AddressError::Scheme(schemes))?;
    let is_http = protocol == AddressProtocol::Http;
    let is_supported = match scheme {
        Scheme::Http | Scheme::Https => true,
        Scheme::Tcp | Scheme::Tls => !is_http,
        Scheme::Ws | Scheme::Wss => false,
    };
    if !is_supported {
        return Err(AddressError::Scheme(schemes));
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    if place.contains('@') {
        return Err(AddressError::Login);
    }
    let place = parse_host(place, scheme.default_port())?;
    reject_rest(rest)?;
    Ok(match scheme {
        Scheme::Https => UpstreamAddress::Tls(place),
        _ => UpstreamAddress::Tcp(place),
    })
}

fn parse_place(text: &str, protocol: AddressProtocol) -> Result<UpstreamAddress, AddressError> {
    let (before, rest) = text
        .split_at_checked(text.find(['/', '?', '#']).unwrap_or(text.len()))
        .unwrap_or((text, ""));
    if before.contains('@') {
        return Err(AddressError::Login);
    }
    // Without a scheme, even a slash is an error: URL parsers read `80/` as an IPv4 address.
    if !rest.is_empty() {
        reject_rest(rest)?;
        return Err(AddressError::Path);
    }
    let is_port = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let place = match is_port {
        true => HostPort::parse(&format!("localhost:{text}"))?,
        false => {
            let usual = match protocol {
                AddressProtocol::Http => Some(80),
                AddressProtocol::Tls => Some(443),
                AddressProtocol::Tcp => None,
            };
            parse_host(text, usual)?
        }
    };
    Ok(match place.port {
        443 => UpstreamAddress::Tls(place),
        _ => UpstreamAddress::Tcp(place),
    })
}

/// Parses a host and its port, which may only be left out if there is a default. An empty port is an error.
fn parse_host(text: &str, default_port: Option<u16>) -> Result<HostPort, AddressError> {
    let (host, port) = split_port(text)?;
    let host = Host::parse(host)?;
    let port = match port {
        Some(port) => parse_port_to_connect(port)?,
        None => default_port.ok_or(AddressError::NoPort)?,
    };
    Ok(HostPort { host, port })
}

/// Prints the address as the agent API shows it.
impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without a scheme, port 443 would mean TLS.
            Self::Tcp(place) if place.port == 443 => write!(f, "http://{place}"),
            Self::Tcp(place) => place.fmt(f),
            Self::Tls(place) => write!(f, "https://{place}"),
            Self::Unix(path) => write!(f, "unix:{}", path.0),
            Self::Files(folder) => write!(f, "file://{}", folder.display()),
        }
    }
}
