//! The header of the PROXY protocol, which tells a local service who the visitor is.

use std::net::{IpAddr, SocketAddr};

/// What the binary form begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The version of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    Text,
    Binary,
}

impl ProxyVersion {
    /// The meaning of the number that agents send; none for 0.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Text),
            2 => Some(Self::Binary),
            _ => None,
        }
    }

    /// The header for a connection.
    pub fn encode_header(self, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        let (from, to) = (canonical_address(from), canonical_address(to));
        match self {
            Self::Text => encode_text(from, to),
            Self::Binary => encode_binary(from, to),
        }
    }
}

/// IPv4 in the form of IPv6 is IPv4.
fn canonical_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn encode_text(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let family = match (from.ip(), to.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => "TCP4",
        (IpAddr::V6(_), IpAddr::V6(_)) => "TCP6",
        _ => return b"PROXY UNKNOWN\r\n".to_vec(),
    };
    let (from_port, to_port) = (from.port(), to.port());
    format!("PROXY {family} {} {} {from_port} {to_port}\r\n", from.ip(), to.ip()).into_bytes()
}

fn encode_binary(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut addresses = Vec::with_capacity(36);
    let family = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            addresses.extend_from_slice(&from.octets());
            addresses.extend_from_slice(&to.octets());
            0x11
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            addresses.extend_from_slice(&from.octets());
            addresses.extend_from_slice(&to.octets());
            0x21
        }
        _ => 0,
    };
    if family != 0 {
        addresses.extend_from_slice(&from.port().to_be_bytes());
        addresses.extend_from_slice(&to.port().to_be_bytes());
    }
    let mut header = SIGNATURE.to_vec();
    // Version 2, a connection on behalf of another.
    header.extend_from_slice(&[0x21, family, 0, addresses.len() as u8]);
    header.extend_from_slice(&addresses);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_names_both_ends() {
        let header = |from: &str, to: &str| {
            String::from_utf8(
                ProxyVersion::Text.encode_header(from.parse().unwrap(), to.parse().unwrap()),
            )
        };

        assert_eq!(
            header("[::ffff:192.0.2.1]:5", "127.0.0.1:80").unwrap(),
            "PROXY TCP4 192.0.2.1 127.0.0.1 5 80\r\n"
        );
        assert_eq!(header("[::1]:5", "127.0.0.1:80").unwrap(), "PROXY UNKNOWN\r\n");
    }

    #[test]
    fn the_binary_form_has_a_length() {
        let header = ProxyVersion::Binary
            .encode_header("192.0.2.1:5".parse().unwrap(), "127.0.0.1:80".parse().unwrap());

        assert_eq!(header.len(), 16 + 12);
        assert_eq!(&header[12..16], &[0x21, 0x11, 0, 12]);
        assert_eq!(&header[16..20], &[192, 0, 2, 1]);
    }
}
