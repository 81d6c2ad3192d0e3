//! Who has connected to a proxy in front, as version 2 of the PROXY protocol says it before the first byte.
//!
//! The header is a few numbers at fixed places. The crate that reads it (`ppp`) brings a second version of
//! another one along, and reads from a buffer: how much to take off a socket is decided here anyway.
//! Version 1 is text of unknown length, which HAProxy sends only where that is configured.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// What the header begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header: addresses, and what else a proxy may add.
const MAX_LENGTH: u16 = 4096;
/// How long the header may take; proxies send it with the first byte.
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

/// Reads the header, and nothing behind it; none where the proxy speaks for itself.
///
/// # Errors
/// When there is none, or none within five seconds.
pub(super) async fn read_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<ProxiedAddresses>> {
    timeout(HEADER_TIMEOUT, read_now(stream)).await?
}

async fn read_now(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<ProxiedAddresses>> {
    let mut start = [0; 16];
    stream.read_exact(&mut start).await?;
    let [version_and_command, family_and_protocol, high, low] =
        [start[12], start[13], start[14], start[15]];
    let length = u16::from_be_bytes([high, low]);
    if start[..12] != SIGNATURE || version_and_command >> 4 != 2 || length > MAX_LENGTH {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a connection of a trusted proxy does not begin with version 2 of the PROXY protocol",
        ));
    }
    let mut addresses = vec![0; length.into()];
    stream.read_exact(&mut addresses).await?;
    Ok(match (version_and_command & 0xf, family_and_protocol) {
        // The command PROXY, for TCP over IPv4 or IPv6; health checks come with LOCAL.
        (1, 0x11) => parse_ipv4(&addresses),
        (1, 0x21) => parse_ipv6(&addresses),
        _ => None,
    })
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
    async fn a_health_check_is_the_proxys_own() {
        for bytes in [header(0x20, 0, &[]), header(0x21, 0x31, &[0; 216]), header(0x21, 0x11, &[1])]
        {
            assert!(matches!(read_all(&bytes).await, (Ok(None), 0)));
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let too_long = [&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat();
        for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), header(0x11, 0x11, &[0; 12]), too_long] {
            assert!(read_all(&bytes).await.0.is_err());
        }
        assert!(read_all(&header(0x21, 0x11, &[0; 12])[..20]).await.0.is_err());
    }
}
