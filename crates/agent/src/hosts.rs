//! Which hosts the local API answers to: the guard against pages that point a name at this machine.

use std::net::IpAddr;

use ginnel_base::address::{Authority, Host, HostName, Scheme};

/// Hosts that are answered beside this machine's own names.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts {
    entries: Vec<HostRule>,
    /// Whether only this machine's loopback addresses are answered without an entry, not all addresses.
    local_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostRule {
    Host(Host),
    Network(IpAddr, u8),
    Suffix(HostName),
}

impl AllowedHosts {
    /// Reads the entries of `web_allow_hosts`: an address, a network, a name, or `.` and the end of
    /// names.
    ///
    /// # Errors
    /// With the entry that has none of these forms.
    pub fn parse_entries(entries: &[String]) -> Result<Self, String> {
        let entries =
            entries.iter().map(|entry| HostRule::parse_entry(entry).ok_or_else(|| entry.clone()));
        Ok(Self { entries: entries.collect::<Result<_, _>>()?, local_only: true })
    }

    /// The same for an API that listens on more than loopback, unless `local_only` is true.
    pub fn for_listener(self, local_only: bool) -> Self {
        Self { local_only, ..self }
    }

    /// Whether a `Host` header is answered; its port does not matter.
    ///
    /// Names must be listed, but for `localhost`: whoever owns a name can have it mean this machine. An
    /// address cannot be made to mean another machine, so all of them are answered where the API listens on
    /// more than loopback and nothing is listed.
    pub fn allows_header(&self, host: &str) -> bool {
        Authority::with_scheme(Scheme::Http, host).is_ok_and(|it| self.allows_host(&it.host))
    }

    /// As [`AllowedHosts::allows_header`], for a host without a port.
    pub fn allows_host(&self, host: &Host) -> bool {
        let takes_addresses = !self.local_only && self.entries.is_empty();
        if host.is_loopback() || takes_addresses && host.ip().is_some() {
            return true;
        }
        self.entries.iter().any(|entry| entry.matches_host(host))
    }
}

impl HostRule {
    fn parse_entry(text: &str) -> Option<Self> {
        if let Some((network, length)) = text.split_once('/') {
            let (network, length) = (network.parse::<IpAddr>().ok()?, length.parse().ok()?);
            let max_length = if network.is_ipv4() { 32 } else { 128 };
            return (length <= max_length).then_some(Self::Network(network, length));
        }
        if let Some(name) = text.strip_prefix('.') {
            return HostName::parse(name).ok().map(Self::Suffix);
        }
        Host::parse(text).ok().map(Self::Host)
    }

    fn matches_host(&self, host: &Host) -> bool {
        match self {
            Self::Host(entry) => entry == host,
            Self::Network(network, length) => {
                host.ip().is_some_and(|address| is_in_network(address, *network, *length))
            }
            Self::Suffix(suffix) => host.name().is_some_and(|name| name.is_below(suffix)),
        }
    }
}

fn is_in_network(address: IpAddr, network: IpAddr, length: u8) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, true),
        IpAddr::V6(ip) => (ip.to_bits(), false),
    };
    let ((address, one), (network, other)) = (bits(address), bits(network));
    one == other && (length == 0 || (address ^ network) >> (128 - u32::from(length)) == 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn allowed(entries: &[&str]) -> AllowedHosts {
        let entries = entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
        AllowedHosts::parse_entries(&entries).unwrap()
    }

    #[test]
    fn this_machine_is_always_answered() {
        for host in [
            "localhost",
            "LOCALHOST:4040",
            "localhost.",
            "a.localhost",
            "127.0.0.1",
            "127.8.9.1:1",
            "[::1]",
            "[::1]:4040",
        ] {
            assert!(allowed(&[]).allows_header(host), "{host}");
        }
    }

    #[test]
    fn names_that_only_look_local_are_not() {
        for host in [
            "",
            ":4040",
            "evil.test",
            "127.evil.test",
            "127.0.0.1.nip.test",
            "localhost.evil.test",
            "localhost..",
            "0.0.0.0",
            "2130706433",
            "0177.0.0.1",
            "127.1",
            "127.0.0.1:x",
            "::1",
            "[::1",
            "localhost:80:80",
            "[::1]x",
            "localhost@evil.test",
            "xlocalhost",
            "127.0.0.256",
            "[::2]",
            "192.168.0.1",
            "local host",
            "127.0.0.1,evil.test",
        ] {
            assert!(!allowed(&[]).allows_header(host), "{host}");
        }
    }

    #[test]
    fn entries_have_six_forms() {
        let hosts = allowed(&[
            "10.1.2.3",
            "192.168.0.0/16",
            "fd00::/8",
            "app.test",
            ".lan",
            "[2001:db8::1]",
        ]);

        for host in [
            "10.1.2.3:4040",
            "192.168.9.9",
            "[fd12::1]:4040",
            "APP.test",
            "a.lan",
            "a.b.lan:1",
            "[2001:db8::1]",
        ] {
            assert!(hosts.allows_header(host), "{host}");
        }
        for host in [
            "10.1.2.4",
            "192.169.0.1",
            "[fe00::1]",
            "x.app.test",
            "app.test.evil",
            "lan",
            ".lan",
            "evil-lan",
            "[2001:db8::2]",
            "10.1.2.3.evil.test",
        ] {
            assert!(!hosts.allows_header(host), "{host}");
        }
    }

    #[test]
    fn a_listener_for_all_answers_to_addresses_and_to_names_that_are_listed() {
        let hosts = |entries: &[&str]| {
            let entries = entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
            AllowedHosts::parse_entries(&entries).unwrap().for_listener(false)
        };

        for host in ["localhost", "127.0.0.1", "192.168.0.1:4040", "[2001:db8::1]:4040"] {
            assert!(hosts(&[]).allows_header(host), "{host}");
        }
        for host in ["evil.test", "192.168.0.1.nip.test:4040", "agent", ""] {
            assert!(!hosts(&[]).allows_header(host), "{host}");
        }
        let listed = hosts(&["agent"]);
        assert!(listed.allows_header("agent:4040") && listed.allows_header("localhost"));
        assert!(!listed.allows_header("192.168.0.1"), "an entry says all that is meant");
    }

    #[test]
    fn entries_of_no_form_are_refused() {
        for entry in ["", ".", "a b", "10.0.0.0/33", "10.0.0/8", "*.test", "a:80"] {
            assert_eq!(AllowedHosts::parse_entries(&[entry.to_owned()]).unwrap_err(), entry);
        }
    }
}
