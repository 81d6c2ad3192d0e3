//! Variables of the environment whose names begin with `GINNEL_` and that no part of the program reads.

use std::ffi::OsString;

use ginnel_agent::config as agent;
use ginnel_api::spelling::correct_misspelling;
use ginnel_service::config as service;
use ginnel_settings::{SettingSection, is_set_by_kubernetes};

use super::output::eprint_line;

const PREFIX: &str = "GINNEL_";
/// The variables that are not settings of a service or an agent: those of clients and of the log.
const OTHERS: [&str; 6] = [
    "GINNEL_AGENT_URL",
    "GINNEL_API_KEY",
    "GINNEL_BASE_URL",
    "GINNEL_CA_BUNDLE",
    "GINNEL_CLIENT_CERT",
    "GINNEL_LOG",
];

/// Reports the variables of this process that have no effect.
pub(super) fn report_unknown() {
    process_warnings().iter().for_each(|problem| eprint_line(problem));
}

/// Returns one warning for each variable of this process that has no effect.
pub(super) fn process_warnings() -> Vec<String> {
    unknown_warnings(std::env::vars_os())
}

/// Returns one warning for each variable that has no effect, with the nearest known name. Its value may be a secret and
/// is not shown.
fn unknown_warnings(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let known = known_names();
    let names = variables.filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(PREFIX))?;
        let is_known = known.contains(&name) || is_set_by_kubernetes(&name, &value);
        (!is_known).then_some(name)
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.iter().map(|name| warning_for(name, &known)).collect()
}

fn warning_for(name: &str, known: &[String]) -> String {
    // All names have the prefix, which makes them no more alike.
    let rest = |name: &'_ str| name.get(PREFIX.len()..).unwrap_or_default().to_owned();
    let rests: Vec<_> = known.iter().map(|name| rest(name)).collect();
    match correct_misspelling(&rest(name), rests.iter().map(String::as_str)) {
        Some(near) => format!("unknown variable {name}; did you mean {PREFIX}{near}?"),
        None => format!("unknown variable {name}; it has no effect"),
    }
}

fn known_names() -> Vec<String> {
    let of_service = service::SECTIONS.iter().flat_map(SettingSection::settings);
    let of_agent = agent::SECTIONS.iter().flat_map(SettingSection::settings);
    let of_service = of_service.filter_map(|setting| setting.variable_name());
    let of_agent = of_agent.filter_map(|setting| setting.variable_name());
    OTHERS.iter().map(ToString::to_string).chain(of_service).chain(of_agent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(variables: &[(&str, &str)]) -> Vec<String> {
        unknown_warnings(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn a_slip_is_named_with_the_nearest_name_and_without_its_value() {
        for (name, meant) in [
            ("GINNEL_BASEDOMAIN", "GINNEL_BASE_DOMAIN"),
            ("GINNEL_TRUSTED_PROXY", "GINNEL_TRUSTED_PROXIES"),
            ("GINNEL_ACME_AGREE_TERMS", "GINNEL_ACME_AGREE_TO_TERMS"),
            ("GINNEL_EDGE_IDLE_TIMOUT", "GINNEL_EDGE_IDLE_TIMEOUT"),
            ("GINNEL_APIKEY", "GINNEL_API_KEY"),
            ("GINNEL_AUTHTOKN", "GINNEL_AUTHTOKEN"),
        ] {
            let expected = format!("unknown variable {name}; did you mean {meant}?");
            assert_eq!(warnings(&[(name, "swordfish")]), [expected]);
        }
        let other = "unknown variable GINNEL_COLOUR_OF_THE_MOON; it has no effect";
        assert_eq!(warnings(&[("GINNEL_COLOUR_OF_THE_MOON", "x")]), [other]);
    }

    #[test]
    fn known_variables_and_those_of_kubernetes_and_of_others_are_no_slips() {
        let variables = [
            ("GINNEL_LOG", "debug"),
            ("GINNEL_SERVER_ADDR", "example.test:443"),
            ("GINNEL_SERVICE_HOST", "10.0.0.1"),
            ("GINNEL_SERVICE_PORT", "4000"),
            ("GINNEL_SERVICE_PORT_HTTPS", "443"),
            ("GINNEL_PORT", "tcp://10.0.0.1:4000"),
            ("GINNEL_PORT_4000_TCP", "tcp://10.0.0.1:4000"),
            ("GINNEL_PORT_4000_TCP_PROTO", "tcp"),
            ("GINNEL_PORT_4000_TCP_PORT", "4000"),
            ("GINNEL_PORT_4000_TCP_ADDR", "10.0.0.1"),
            ("GINNEL_AGENTS_SERVICE_HOST", "10.0.0.2"),
            ("GINNEL_AGENTS_PORT", "udp://10.0.0.2:53"),
            ("GINNEL_AGENTS_PORT_53_UDP_ADDR", "10.0.0.2"),
            ("GINNELS", "x"),
            ("PATH", "/bin"),
        ];

        assert_eq!(warnings(&variables), [""; 0]);
    }
}
