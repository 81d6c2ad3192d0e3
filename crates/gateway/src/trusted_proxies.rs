//! Proxies in front of the service, who say truly for whom they come.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::sync::Arc;

use ginnel_api::mask;
use ginnel_policy::Cidr;
use ginnel_settings::{Bounds, SettingValue, ValueKind};

/// The addresses of proxies in front of the service; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Arc<[Cidr]>);

/// One of `trusted_proxies` is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "trusted_proxies: {:?} is neither an address nor a CIDR such as 10.0.0.0/8",
    mask::url(.0)
)]
pub struct TrustedProxyError(String);

impl TrustedProxies {
    /// Reads ranges of addresses: CIDRs, or addresses alone.
    ///
    /// # Errors
    /// When one of them is no range.
    pub fn parse(
        ranges: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, TrustedProxyError> {
        let parse = |range: &str| range.parse().map_err(|_| TrustedProxyError(range.to_owned()));
        ranges.into_iter().map(|range| parse(range.as_ref())).collect()
    }

    /// Whether an address is that of a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// The ranges of addresses.
    pub fn ranges(&self) -> &[Cidr] {
        &self.0
    }

    /// True when no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Cidr> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = Cidr>>(ranges: I) -> Self {
        Self(ranges.into_iter().collect())
    }
}

impl SettingValue for TrustedProxies {
    const KIND: ValueKind = ValueKind::List;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let text = text.to_string_lossy();
        let range = text.parse::<Cidr>().map_err(|error| error.to_string())?;
        *self = self.ranges().iter().copied().chain([range]).collect();
        Ok(())
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn text(&self) -> Option<String> {
        let ranges: Vec<_> = self.ranges().iter().map(ToString::to_string).collect();
        (!ranges.is_empty()).then(|| ranges.join(","))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_ranges_or_addresses() {
        let proxies = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::1"]).unwrap();

        assert!(proxies.contains("10.1.2.3".parse().unwrap()));
        assert!(proxies.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(proxies.contains("2001:db8::1".parse().unwrap()));
        assert!(!proxies.contains("192.0.2.1".parse().unwrap()));
        assert!(!TrustedProxies::default().contains("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn an_error_names_the_option_and_the_value() {
        let error = TrustedProxies::parse(["10.0.0.0/8", "10.0.0.0/33"]).unwrap_err();

        assert_eq!(
            error.to_string(),
            "trusted_proxies: \"10.0.0.0/33\" is neither an address nor a CIDR such as 10.0.0.0/8"
        );
    }
}
