//! The addresses that this machine has.

use std::net::IpAddr;

/// The addresses of all interfaces; none where the system does not say.
#[cfg(unix)]
pub fn addresses() -> Vec<IpAddr> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the system writes a list there, or fails; the list is ours until it is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: each entry is valid until the list is freed, and the last one leads to null.
    while let Some(entry) = unsafe { next.as_ref() } {
        found.extend(address_of(entry.ifa_addr));
        next = entry.ifa_next;
    }
    // SAFETY: nothing refers to the list any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

#[cfg(not(unix))]
pub fn addresses() -> Vec<IpAddr> {
    Vec::new()
}

/// The address in an entry; none where it has another kind of address, or none at all.
#[cfg(unix)]
fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: it is null or valid, and what comes after the family is what the family says.
    unsafe {
        match libc::c_int::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let four = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(four.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let six = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(six.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_its_own_address() {
        assert!(addresses().iter().any(IpAddr::is_loopback));
    }
}
