//! Ranges of IP addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// The number of bits before the IPv4 address in an IPv6 address that maps one, `::ffff:0:0/96`.
const MAPPED_BITS: u8 = 96;

/// A range of addresses, such as `10.0.0.0/8`. A single address is a range of one. Addresses with host bits, such as
/// `10.1.2.3/8`, are kept as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr(IpNet);

/// The text is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a CIDR or an address")]
pub struct NotCidr;

impl Cidr {
    /// Returns true if the address is in the range. IPv4-mapped IPv6 addresses are compared as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Returns the range of `bits` leading bits that contains an address, or `None` if the address has fewer bits.
    pub fn from_prefix(address: IpAddr, bits: u8) -> Option<Self> {
        let range = IpNet::new(address.to_canonical(), bits).ok()?;
        Some(Self(range.trunc()))
    }

    /// The same range, named by its first address.
    pub fn network(self) -> Self {
        Self(self.0.trunc())
    }

    /// The number of leading bits that the addresses share. The most specific range has the highest number.
    pub fn bits(&self) -> u8 {
        self.0.prefix_len()
    }

    /// A range of IPv4-mapped addresses is a range of IPv4 addresses.
    fn canonical_range(network: IpAddr, bits: u8) -> Option<Self> {
        let range = match (network.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
            (plain @ IpAddr::V4(_), Some(bits)) if network.is_ipv6() => IpNet::new(plain, bits),
            _ => IpNet::new(network, bits),
        };
        range.ok().map(Self)
    }
}

impl FromStr for Cidr {
    type Err = NotCidr;

    fn from_str(text: &str) -> Result<Self, NotCidr> {
        let (network, bits) = match text.split_once('/') {
            Some((network, bits)) => (network, Some(bits)),
            None => (text, None),
        };
        // `IpNet` would read 010.0.0.1, which other programs read as 8.0.0.1, as 10.0.0.1.
        let network: IpAddr = network.parse().map_err(|_| NotCidr)?;
        let width = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(width), parse_length);
        bits.and_then(|bits| Self::canonical_range(network, bits)).ok_or(NotCidr)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses the length of a prefix: only digits, because `parse` accepts `+8` as well.
fn parse_length(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(range: &str, address: &str) -> bool {
        range.parse::<Cidr>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_range_contains_addresses_with_the_same_start() {
        assert!(contains("10.0.0.0/8", "10.255.0.1"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(contains("0.0.0.0/0", "8.8.8.8"));
        assert!(!contains("::/0", "8.8.8.8"));
    }

    #[test]
    fn an_address_is_a_range_of_one() {
        assert!(contains("2001:db8::1", "2001:db8::1"));
        assert!(!contains("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn host_bits_are_kept_and_do_not_count() {
        for (range, network) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("10.1.2.3/08", "10.0.0.0/8"),
            ("10.1.2.3/0", "0.0.0.0/0"),
        ] {
            let parsed: Cidr = range.parse().unwrap();
            assert_eq!(parsed.network().to_string(), network, "{range}");
            assert_eq!(parsed.to_string(), range.replace("/08", "/8"), "{range}");
        }
        assert!(contains("10.1.2.3/8", "10.255.0.1"));
    }

    #[test]
    fn a_mapped_address_is_compared_as_ipv4() {
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.7"));
        for (range, plain) in [
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:a00:0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:0:0/95", "::ffff:0.0.0.0/95"),
            ("10.0.0.0/8", "10.0.0.0/8"),
        ] {
            assert_eq!(range.parse::<Cidr>().unwrap().to_string(), plain, "{range}");
        }
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.1.2.3"));
        assert!(contains("::ffff:127.0.0.2", "::ffff:127.0.0.2"));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "10.0.0/8",
            "10.0.0.0/255.0.0.0",
            "010.0.0.0/8",
            "10.0.0.0/8 ",
            "10.0.0.0/8/8",
            "x/8",
            "::/129",
            "fe80::1%eth0",
            "[::1]/128",
        ] {
            assert_eq!(text.parse::<Cidr>(), Err(NotCidr), "{text}");
        }
    }
}
