//! What is noted of the browser that a visitor logs in with.

use http::HeaderMap;
use http::header::USER_AGENT;

use super::super::address::AddressFacts;
use super::super::user_agent_facts::UserAgentFacts;

/// How much of what a browser calls itself is noted, in bytes.
const MAX_USER_AGENT_BYTES: usize = 512;

/// The browser that a visitor logs in with, as it calls itself; what is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginBrowser {
    /// What it calls itself.
    pub user_agent: String,
    /// The name of the program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `Desktop`, `Mobile`, `Tablet` or `Bot`.
    pub device: &'static str,
    /// The operating system.
    pub os: String,
    /// The version of the operating system.
    pub os_version: String,
}

impl LoginBrowser {
    /// Reads the header `User-Agent` of a request.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(USER_AGENT) else { return Self::default() };
        let start = value.as_bytes().get(..MAX_USER_AGENT_BYTES).unwrap_or(value.as_bytes());
        let user_agent = String::from_utf8_lossy(start).into_owned();
        let facts = UserAgentFacts::from_header(&user_agent);
        let devices = [
            (facts.is_bot, "Bot"),
            (facts.is_tablet, "Tablet"),
            (facts.is_mobile, "Mobile"),
            (facts.is_desktop, "Desktop"),
        ];
        let device = devices.into_iter().find(|(is_it, _)| *is_it).map_or("", |(_, name)| name);
        let UserAgentFacts { name, version, os, os_version, .. } = facts;
        Self { user_agent, name, version, device, os, os_version }
    }
}

/// Where a visitor is who logs in, as far as the address database knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoginLocation {
    /// ISO code of the country.
    pub country_code: Option<String>,
    /// The latitude.
    pub latitude: Option<f64>,
    /// The longitude.
    pub longitude: Option<f64>,
    /// How exact that is, in kilometres.
    pub radius: Option<i64>,
}

impl LoginLocation {
    /// What is known of an address; none where that is nothing.
    pub fn from_facts(facts: &AddressFacts) -> Option<Self> {
        let place = &facts.place;
        let country_code = place.pointer("/country/iso_code").and_then(|it| it.as_str());
        let number = |pointer: &str| place.pointer(pointer).and_then(|it| it.as_f64());
        let location = Self {
            country_code: country_code.map(str::to_owned),
            latitude: number("/location/latitude"),
            longitude: number("/location/longitude"),
            radius: place.pointer("/location/accuracy_radius").and_then(|it| it.as_i64()),
        };
        (location != Self::default()).then_some(location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(user_agent: &str) -> LoginBrowser {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, user_agent.parse().unwrap());
        LoginBrowser::from_headers(&headers)
    }

    #[test]
    fn a_browser_is_known_by_what_it_calls_itself() {
        let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

        let browser = read(firefox);

        assert_eq!((browser.name.as_str(), browser.version.as_str()), ("Firefox", "128.0"));
        assert_eq!((browser.device, browser.os.as_str()), ("Desktop", "Linux"));
        assert_eq!(browser.user_agent, firefox);
        assert_eq!(read(&"x".repeat(2000)).user_agent.len(), MAX_USER_AGENT_BYTES);
        assert_eq!(LoginBrowser::from_headers(&HeaderMap::new()), LoginBrowser::default());
    }
}
