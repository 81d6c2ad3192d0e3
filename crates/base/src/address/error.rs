//! Reasons why a text is not an address.

/// Reason why a text is not an address, as a phrase that follows the field and the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text or its host is empty.
    #[error("has no host")]
    NoHost,
    /// A character that cannot be a part of an address.
    #[error("contains white space, a control character or a backslash")]
    Blank,
    /// The host is not a name.
    #[error(
        "is not a host name: labels have 1 to 63 letters, digits, hyphens or underscores, and a name at most 253"
    )]
    Name,
    /// The host is a name with nothing between two dots, or before the first.
    #[error(
        "has a dot at the start or two dots in a row; write a host name such as app.example.com"
    )]
    EmptyLabel,
    /// The host is a number in a notation that programs read differently.
    #[error("is not an IPv4 address: only four decimal numbers without leading zeros are")]
    Number,
    /// Letters outside ASCII that IDNA does not allow.
    #[error("is not a valid international host name")]
    International,
    /// Letters outside ASCII that are mapped to ASCII letters, such as full-width digits.
    #[error("contains letters that only look like ASCII; write it as {0:?}")]
    LookAlike(String),
    /// An IPv6 address that is malformed.
    #[error("is not an IPv6 address")]
    Ipv6,
    /// An IPv6 address with a zone.
    #[error("is an IPv6 address with a zone, which is not supported; use an address without one")]
    Zone,
    /// An IPv6 address without brackets, so that its last group could be a port.
    #[error("has more than one colon; write an IPv6 address in brackets, as in [::1]:80")]
    Brackets,
    /// An IP address where only a name belongs.
    #[error("is an IP address, which is not supported here; use a host name")]
    IpAddress,
    /// A port where only a host belongs.
    #[error("has a port, which is not supported here; write only the host")]
    HasPort,
    /// A URL where only a host belongs.
    #[error("is a URL; write only the host")]
    UrlOfHost,
    /// A URL where only a host and a port belong.
    #[error("is a URL; write only host:port")]
    Url,
    /// A required port is missing.
    #[error("has no port; write host:port")]
    NoPort,
    /// The port is not a number, or not a port.
    #[error("has a port that is not a decimal number from {lowest} to 65535 without leading zeros")]
    Port {
        /// The lowest port that is allowed.
        lowest: u16,
    },
    /// A URL has another scheme.
    #[error("has a scheme that is not supported here; use {0}")]
    Scheme(&'static str),
    /// A URL has a user or a password.
    #[error("contains a user or a password, which is not supported here; leave it out")]
    Login,
    /// A user or a password with a character that URLs do not have there.
    #[error("has a user or a password with a character that must be percent-encoded")]
    LoginCharacter,
    /// A URL has a path.
    #[error(
        "has a path, which is not supported here; leave out what follows the host and the port"
    )]
    Path,
    /// The path of a URL has a character that must be percent-encoded.
    #[error("has a path with a character that must be percent-encoded")]
    PathCharacter,
    /// A URL has a query.
    #[error(
        "has a query, which is not supported here; leave out what follows the host and the port"
    )]
    Query,
    /// A URL has a fragment.
    #[error(
        "has a fragment, which is not supported here; leave out what follows the host and the port"
    )]
    Fragment,
    /// A socket without a path.
    #[error("has no path; write {0}")]
    NoPath(&'static str),
    /// The path of a socket leads through `..`.
    #[error("has `..` in its path; write the path without it")]
    ParentFolder,
    /// The path of a socket ends with a slash, or begins with two.
    #[error("has an empty name in its path; write {0}")]
    EmptySegment(&'static str),
    /// A folder or socket without an absolute path.
    #[error("does not name an absolute path, as in {0}")]
    RelativePath(&'static str),
    /// A folder or socket for a protocol that cannot use it.
    #[error("is a {0}, which only {1} tunnels forward to")]
    Protocol(&'static str, &'static str),
    /// The path of a Unix socket is too long.
    #[error(
        "is the path of a Unix socket with more than {0} bytes; move the socket to a shorter path"
    )]
    SocketPath(usize),
    /// Unix sockets do not exist on this system.
    #[error("is a Unix socket, which this system does not support")]
    NoUnixSockets,
}

impl AddressError {
    /// Returns true if the port is missing or wrong, and the host is not.
    pub fn is_about_the_port(&self) -> bool {
        matches!(self, Self::NoPort | Self::Port { .. })
    }
}
