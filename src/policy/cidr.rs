//! Ranges of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// How many bits stand before the IPv4 address in an IPv6 address that maps one, `::ffff:0:0/96`.
const MAPPED_BITS: u8 = 96;

/// A range of addresses, such as `10.0.0.0/8`; an address alone is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    bits: u8,
}

/// The text is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a CIDR or an address")]
pub struct NotCidr;

impl Cidr {
    /// Whether the address is in the range.
    ///
    /// An IPv4 address in the clothes of an IPv6 address is compared as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                same_start(network.to_bits().into(), address.to_bits().into(), self.bits, 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                same_start(network.to_bits(), address.to_bits(), self.bits, 128)
            }
            _ => false,
        }
    }

    /// The range of so many leading bits that an address is in.
    pub fn around(address: IpAddr, bits: u8) -> Option<Self> {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => {
                let rest = 32_u32.checked_sub(bits.into())?;
                let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let rest = 128_u32.checked_sub(bits.into())?;
                let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Some(Self { network, bits })
    }

    /// The same range, named by its first address.
    pub fn network(self) -> Self {
        Self::around(self.network, self.bits).unwrap_or(self)
    }

    /// A range of IPv4 addresses in the clothes of IPv6 addresses is one of IPv4 addresses.
    fn canonical(network: IpAddr, bits: u8) -> Self {
        match (network.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
            (plain @ IpAddr::V4(_), Some(bits)) if network.is_ipv6() => {
                Self { network: plain, bits }
            }
            _ => Self { network, bits },
        }
    }

    /// How many leading bits the addresses share; the most specific range has most.
    pub fn bits(&self) -> u8 {
        self.bits
    }
}

impl FromStr for Cidr {
    type Err = NotCidr;

    fn from_str(text: &str) -> Result<Self, NotCidr> {
        let (network, bits) = match text.split_once('/') {
            Some((network, bits)) => (network, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| NotCidr)?;
        let width = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(width), length).filter(|bits| *bits <= width);
        bits.map(|bits| Self::canonical(network, bits)).ok_or(NotCidr)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.bits)
    }
}

/// Whether an address is for use inside a network only: private, loopback or link-local.
pub(super) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_private() || address.is_loopback() || address.is_link_local()
        }
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
}

/// The length of a prefix: digits alone, since `parse` would take `+8` as well.
fn length(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn same_start(one: u128, other: u128, bits: u8, width: u8) -> bool {
    let rest = u32::from(width - bits);
    (one ^ other).checked_shr(rest).unwrap_or(0) == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn contains(range: &str, address: &str) -> bool {
        range.parse::<Cidr>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_range_holds_what_starts_like_it() {
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
    fn nonsense_is_no_range() {
        for text in ["", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "10.0.0/8", "x/8", "::/129"] {
            assert_eq!(text.parse::<Cidr>(), Err(NotCidr), "{text}");
        }
    }
}
