//! Where a request that somebody else has caused may lead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a request may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reach {
    /// Anywhere, as for those who run the service or have a key to it.
    #[default]
    Any,
    /// To addresses of the public internet alone: others may answer to nobody but their neighbours.
    Public,
}

/// An address that a request may not lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a public address")]
pub struct OutOfReach(pub IpAddr);

impl Reach {
    /// Refuses an address that is out of reach.
    ///
    /// # Errors
    /// When it is.
    pub fn check_address(self, address: IpAddr) -> Result<(), OutOfReach> {
        if self == Self::Any || is_public(address) {
            return Ok(());
        }
        Err(OutOfReach(address))
    }
}

/// Whether an address is one of the public internet (RFC 6890, with what has been added to its registries).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_v4(four),
        IpAddr::V6(six) => is_public_v6(six),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_special = match (first, second, third) {
        // The last one leads to whoever is the next relay of 6to4 (RFC 7526).
        (0, ..) | (240.., ..) | (192, 0, 0) | (192, 88, 99) => true,
        (100, 64..=127, _) | (198, 18..=19, _) => true,
        _ => address.is_multicast() || address.is_documentation(),
    };
    !is_special && !address.is_private() && !address.is_loopback() && !address.is_link_local()
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Addresses that lead to one of IPv4: as such, by a translator (RFC 6052), or by 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        [0x2002, high, low, ..] => embedded(high, low),
        // Tunnels and tests (RFC 2928), and documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Addresses of ISATAP (RFC 5214).
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => embedded(high, low),
        // All that is given to anybody for unicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for public in [
            "1.1.1.1",
            "100.128.0.1",
            "2001:200::1",
            "2606:4700::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            Reach::Public.check_address(public.parse().unwrap()).unwrap();
        }
        for private in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "fc00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "3fff:fff::1",
            "192.88.99.1",
            "2606:4700::5efe:a00:1",
            "2606:4700::200:5efe:a00:1",
        ] {
            let address = private.parse().unwrap();
            assert!(Reach::Public.check_address(address).is_err(), "{private}");
            Reach::Any.check_address(address).unwrap();
        }
    }
}
