//! The header of the PROXY protocol, with which a proxy names the client before the client's first byte.
//!
//! Both versions are read. The first bytes tell them apart: the signature of version 2 cannot begin a line of
//! version 1. The format is <https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>. The crate that reads it
//! (`ppp`) reads from a buffer, but the bytes behind the header must stay in the socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
const TEXT_START: &[u8] = b"PROXY ";
/// Maximum size of version 2 behind its first 16 bytes: addresses, and fields that a proxy may add.
const MAX_BINARY_BYTES: u16 = 4096;
/// Maximum size of version 1 with its line end (section 2.1).
const MAX_TEXT_BYTES: usize = 107;
/// Maximum time for the whole header. Proxies send it with the first byte.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Which connections begin with a header: those of the proxies that are trusted.
#[derive(Clone, Default)]
pub struct ProxyProtocol(Option<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

/// The two ends of a client's connection to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProxiedAddresses {
    pub client: SocketAddr,
    pub destination: SocketAddr,
}

impl ProxyProtocol {
    /// Expected of the addresses that this says yes to.
    pub fn expected_from(is_proxy: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_proxy)))
    }

    /// Whether a connection from here begins with a header.
    pub(super) fn is_expected(&self, address: IpAddr) -> bool {
        self.0.as_ref().is_some_and(|is_proxy| is_proxy(address.to_canonical()))
    }
}

/// Reads the header, and nothing behind it. Returns no addresses if the proxy speaks for itself, as in health checks.
///
/// # Errors
/// When the header is missing, malformed or too long, or takes more than five seconds.
pub(super) async fn read_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<ProxiedAddresses>> {
    read_within(stream, HEADER_TIMEOUT).await
}

async fn read_within(
    stream: &mut (impl AsyncRead + Unpin),
    limit: Duration,
) -> io::Result<Option<ProxiedAddresses>> {
    timeout(limit, read_either_version(stream)).await?
}

async fn read_either_version(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<ProxiedAddresses>> {
    // The shortest header of version 1 is longer than the signature.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    match start {
        SIGNATURE => read_binary(stream).await,
        start if start.starts_with(TEXT_START) => {
            let line = read_line(stream, &start).await?;
            parse_text(&line).ok_or_else(|| refuse_header("version 1 is malformed"))
        }
        _ => Err(refuse_header("a connection of a trusted proxy must begin with version 1 or 2")),
    }
}

fn refuse_header(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("PROXY protocol: {problem}"))
}

/// Reads version 1 up to its line end, which is not returned. A longer read could take bytes of the client.
async fn read_line(stream: &mut (impl AsyncRead + Unpin), start: &[u8]) -> io::Result<Vec<u8>> {
    let mut line = start.to_vec();
    while !line.ends_with(b"\n") {
        if line.len() == MAX_TEXT_BYTES {
            return Err(refuse_header("version 1 is longer than 107 bytes"));
        }
        line.push(stream.read_u8().await?);
    }
    let line = line.strip_suffix(b"\r\n");
    line.map(<[u8]>::to_vec).ok_or_else(|| refuse_header("version 1 does not end with CR LF"))
}

/// Parses a line of version 1; the inner value is `None` if the line has no addresses (`UNKNOWN`).
fn parse_text(line: &[u8]) -> Option<Option<ProxiedAddresses>> {
    let line = line.strip_prefix(TEXT_START)?;
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Some(None);
    }
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let parse_address = match words.next()? {
        "TCP4" => |text| Ipv4Addr::from_str(text).ok().map(IpAddr::from),
        "TCP6" => |text| Ipv6Addr::from_str(text).ok().map(IpAddr::from),
        _ => return None,
    };
    let (client, destination) = (parse_address(words.next()?)?, parse_address(words.next()?)?);
    let (from, to) = (parse_port(words.next()?)?, parse_port(words.next()?)?);
    words.next().is_none().then_some(Some(ProxiedAddresses {
        client: SocketAddr::new(client, from),
        destination: SocketAddr::new(destination, to),
    }))
}

/// Parses a port, which has no sign and no leading zero.
fn parse_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_plain && (text == "0" || !text.starts_with('0'));
    is_plain.then(|| text.parse().ok())?
}

/// Reads version 2 behind its signature.
async fn read_binary(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<ProxiedAddresses>> {
    let mut fields = [0; 4];
    stream.read_exact(&mut fields).await?;
    let [version_and_command, family_and_protocol, high, low] = fields;
    let length = u16::from_be_bytes([high, low]);
    if length > MAX_BINARY_BYTES {
        return Err(refuse_header("version 2 is longer than 4096 bytes"));
    }
    let mut addresses = vec![0; length.into()];
    stream.read_exact(&mut addresses).await?;
    let is_known = family_and_protocol >> 4 <= 3 && family_and_protocol & 0xf <= 2;
    let parsed = match (version_and_command, family_and_protocol) {
        // Health checks have the command LOCAL, whose other fields have no meaning.
        (0x20, _) => Some(None),
        // The command PROXY, for TCP over IPv4 or IPv6.
        (0x21, 0x11) => parse_ipv4(&addresses).map(Some),
        (0x21, 0x21) => parse_ipv6(&addresses).map(Some),
        (0x21, _) if is_known => Some(None),
        _ => None,
    };
    parsed.ok_or_else(|| refuse_header("version 2 is malformed"))
}

fn parse_ipv4(bytes: &[u8]) -> Option<ProxiedAddresses> {
    let [client, destination] = [0, 4].map(|at| -> Option<IpAddr> {
        let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets).into())
    });
    with_ports(client?, destination?, bytes.get(8..12)?)
}

fn parse_ipv6(bytes: &[u8]) -> Option<ProxiedAddresses> {
    let [client, destination] = [0, 16].map(|at| -> Option<IpAddr> {
        let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    });
    with_ports(client?, destination?, bytes.get(32..36)?)
}

fn with_ports(client: IpAddr, destination: IpAddr, ports: &[u8]) -> Option<ProxiedAddresses> {
    let &[high, low, to_high, to_low] = ports else { return None };
    Some(ProxiedAddresses {
        client: SocketAddr::new(client, u16::from_be_bytes([high, low])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([to_high, to_low])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version_and_command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[version_and_command, family], &length, addresses].concat()
    }

    async fn read_all(mut bytes: &[u8]) -> (io::Result<Option<ProxiedAddresses>>, usize) {
        let read = read_header(&mut bytes).await;
        (read, bytes.len())
    }

    #[tokio::test]
    async fn the_addresses_are_those_of_the_client_and_the_rest_is_left() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0x1f, 0x90, 0x01, 0xbb, 3, 0, 1, 7];
        let with_request = [header(0x21, 0x11, &v4), b"GET".to_vec()].concat();
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 80, 81);

        let (read, left) = read_all(&with_request).await;

        let addresses = read.unwrap().unwrap();
        assert_eq!(addresses.client, "192.0.2.1:8080".parse().unwrap());
        assert_eq!(addresses.destination, "198.51.100.2:443".parse().unwrap());
        assert_eq!(left, 3);
        let (read, _) = read_all(&header(0x21, 0x21, &v6)).await;
        assert_eq!(read.unwrap().unwrap().client, "[::1]:80".parse().unwrap());
    }

    #[tokio::test]
    async fn version_1_names_the_client_and_the_rest_is_left() {
        for (line, client, destination) in [
            ("TCP4 192.0.2.1 198.51.100.2 8080 443", "192.0.2.1:8080", "198.51.100.2:443"),
            ("TCP4 0.0.0.0 0.0.0.0 0 0", "0.0.0.0:0", "0.0.0.0:0"),
            ("TCP6 2001:db8::7 ::1 65535 1", "[2001:db8::7]:65535", "[::1]:1"),
        ] {
            let (read, left) = read_all(format!("PROXY {line}\r\n\r\nGET").as_bytes()).await;

            let addresses = read.unwrap().unwrap();
            assert_eq!(addresses.client, client.parse().unwrap());
            assert_eq!(addresses.destination, destination.parse().unwrap());
            assert_eq!(left, 5, "{line}");
        }
    }

    #[tokio::test]
    async fn a_health_check_is_the_proxys_own() {
        let longest_unknown = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91)).into_bytes();
        assert_eq!(longest_unknown.len(), MAX_TEXT_BYTES);
        for bytes in [
            header(0x20, 0, &[]),
            header(0x20, 0x11, &[1]),
            header(0x21, 0, &[]),
            header(0x21, 0x31, &[0; 216]),
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY UNKNOWN ffff::1 ::1 65535 65535\r\n".to_vec(),
            longest_unknown,
        ] {
            assert!(matches!(read_all(&bytes).await, (Ok(None), 0)));
        }
    }

    #[tokio::test]
    async fn malformed_and_oversized_headers_are_refused() {
        let too_long = [&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat();
        for bytes in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            header(0x11, 0x11, &[0; 12]),
            header(0x22, 0x11, &[0; 12]),
            header(0x21, 0x11, &[0; 11]),
            header(0x21, 0x21, &[0; 35]),
            header(0x21, 0x41, &[0; 36]),
            header(0x21, 0x13, &[0; 36]),
            too_long,
        ] {
            assert!(read_all(&bytes).await.0.is_err());
        }
        assert!(read_all(&header(0x21, 0x11, &[0; 12])[..20]).await.0.is_err());
    }

    #[tokio::test]
    async fn a_line_of_version_1_has_one_form() {
        for line in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP6 fe80::1%1 ::1 1 2\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2",
        ] {
            assert!(read_all(line.as_bytes()).await.0.is_err(), "{line:?}");
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
        let (read, left) = read_all(long.as_bytes()).await;
        assert!(read.is_err());
        assert_eq!(left, 1);
    }

    #[tokio::test]
    async fn a_header_that_takes_too_long_is_refused() {
        for bytes in [&b"PROXY TCP4 192.0.2.1 "[..], &SIGNATURE, b"PRO"] {
            let (mut proxy, mut accepted) = tokio::io::duplex(64);
            tokio::io::AsyncWriteExt::write_all(&mut proxy, bytes).await.unwrap();

            let read = read_within(&mut accepted, Duration::from_millis(20)).await;

            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }
}
