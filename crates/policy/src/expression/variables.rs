//! The variables that expressions may name, and the phases that have them.
//!
//! Traffic policy sheet, section 7.

use super::super::Phase;
use super::super::fields::is_field;

/// One variable, or one family of variables.
struct Variable {
    /// The dotted name.
    name: &'static str,
    /// Whether further names may follow, as they do on a map.
    open: bool,
    /// The phases that have it.
    phases: &'static [Phase],
}

const ALWAYS: &[Phase] = &[Phase::Connect, Phase::Request, Phase::Response, Phase::Close];
const HTTP: &[Phase] = &[Phase::Request, Phase::Response];
const RESPONSE: &[Phase] = &[Phase::Response];
const CLOSE: &[Phase] = &[Phase::Close];
const COUNTED: &[Phase] = &[Phase::Request, Phase::Response, Phase::Close];

const fn plain(name: &'static str, phases: &'static [Phase]) -> Variable {
    Variable { name, open: false, phases }
}

const fn open(name: &'static str, phases: &'static [Phase]) -> Variable {
    Variable { name, open: true, phases }
}

const VARIABLES: &[Variable] = &[
    plain("conn.client_ip", ALWAYS),
    plain("conn.client_ip.as.number", ALWAYS),
    plain("conn.client_ip.as.organization", ALWAYS),
    plain("conn.client_ip.categories", ALWAYS),
    plain("conn.client_ip.geo.location.city", ALWAYS),
    plain("conn.client_ip.geo.location.continent", ALWAYS),
    plain("conn.client_ip.geo.location.country", ALWAYS),
    plain("conn.client_ip.geo.location.country_code", ALWAYS),
    plain("conn.client_ip.geo.location.is_eu", ALWAYS),
    plain("conn.client_ip.geo.location.latitude", ALWAYS),
    plain("conn.client_ip.geo.location.longitude", ALWAYS),
    plain("conn.client_ip.geo.location.metro_code", ALWAYS),
    plain("conn.client_ip.geo.location.postal_code", ALWAYS),
    plain("conn.client_ip.geo.location.radius", ALWAYS),
    plain("conn.client_ip.geo.location.subdivision", ALWAYS),
    plain("conn.client_ip.geo.location.timezone", ALWAYS),
    plain("conn.client_ip.is_on_blocklist", ALWAYS),
    plain("conn.client_ip.is_tor_node", ALWAYS),
    plain("conn.client_port", ALWAYS),
    plain("conn.server_ip", ALWAYS),
    plain("conn.server_port", ALWAYS),
    plain("conn.server_region", ALWAYS),
    plain("conn.ts.start", ALWAYS),
    plain("conn.start_ts", ALWAYS),
    plain("conn.ts.end", CLOSE),
    plain("conn.end_ts", CLOSE),
    plain("conn.bytes_in", COUNTED),
    plain("conn.bytes_out", COUNTED),
    plain("conn.geo.city", ALWAYS),
    plain("conn.geo.country", ALWAYS),
    plain("conn.geo.country_code", ALWAYS),
    plain("conn.geo.subdivision", ALWAYS),
    plain("conn.geo.latitude", ALWAYS),
    plain("conn.geo.longitude", ALWAYS),
    plain("conn.geo.radius", ALWAYS),
    plain("conn.tls.version", ALWAYS),
    plain("conn.tls.cipher_suite", ALWAYS),
    plain("conn.tls.sni", ALWAYS),
    plain("conn.tls.negotiated_alpn", ALWAYS),
    plain("conn.tls.session_resumed", ALWAYS),
    plain("conn.tls.client.extensions", ALWAYS),
    plain("conn.tls.client.issuer", ALWAYS),
    plain("conn.tls.client.issuer.common_name", ALWAYS),
    plain("conn.tls.client.issuer.country", ALWAYS),
    plain("conn.tls.client.issuer.locality", ALWAYS),
    plain("conn.tls.client.issuer.organization", ALWAYS),
    plain("conn.tls.client.issuer.organizational_unit", ALWAYS),
    plain("conn.tls.client.issuer.postal_code", ALWAYS),
    plain("conn.tls.client.issuer.province", ALWAYS),
    plain("conn.tls.client.issuer.street_address", ALWAYS),
    plain("conn.tls.client.pem", ALWAYS),
    plain("conn.tls.client.san", ALWAYS),
    plain("conn.tls.client.san.dns_names", ALWAYS),
    plain("conn.tls.client.san.email_addresses", ALWAYS),
    plain("conn.tls.client.san.ip_addresses", ALWAYS),
    plain("conn.tls.client.san.uris", ALWAYS),
    plain("conn.tls.client.serial_number", ALWAYS),
    plain("conn.tls.client.signature_algorithm", ALWAYS),
    plain("conn.tls.client.subject", ALWAYS),
    plain("conn.tls.client.subject.common_name", ALWAYS),
    plain("conn.tls.client.subject.country", ALWAYS),
    plain("conn.tls.client.subject.locality", ALWAYS),
    plain("conn.tls.client.subject.organization", ALWAYS),
    plain("conn.tls.client.subject.organizational_unit", ALWAYS),
    plain("conn.tls.client.subject.postal_code", ALWAYS),
    plain("conn.tls.client.subject.province", ALWAYS),
    plain("conn.tls.client.subject.street_address", ALWAYS),
    plain("conn.tls.client.validity.not_after", ALWAYS),
    plain("conn.tls.client.validity.not_before", ALWAYS),
    plain("endpoint.id", ALWAYS),
    plain("endpoint.url", ALWAYS),
    plain("endpoint.host", ALWAYS),
    plain("endpoint.addr", ALWAYS),
    plain("endpoint.protocol", ALWAYS),
    plain("endpoint.port", ALWAYS),
    plain("req.method", HTTP),
    plain("req.host", HTTP),
    plain("req.version", HTTP),
    plain("req.location", HTTP),
    plain("req.user_agent", HTTP),
    plain("req.user_agent.device", HTTP),
    plain("req.user_agent.is_bot", HTTP),
    plain("req.user_agent.is_desktop", HTTP),
    plain("req.user_agent.is_mobile", HTTP),
    plain("req.user_agent.is_tablet", HTTP),
    plain("req.user_agent.name", HTTP),
    plain("req.user_agent.os", HTTP),
    plain("req.user_agent.os_version", HTTP),
    plain("req.user_agent.url", HTTP),
    plain("req.user_agent.version", HTTP),
    plain("req.url", HTTP),
    plain("req.url.path", HTTP),
    plain("req.url.raw_path", HTTP),
    plain("req.url.raw", HTTP),
    plain("req.url.scheme", HTTP),
    plain("req.url.host", HTTP),
    plain("req.url.port", HTTP),
    plain("req.url.authority", HTTP),
    plain("req.url.query", HTTP),
    plain("req.url.uri", HTTP),
    plain("req.url.user_password", HTTP),
    open("req.url.query_params", HTTP),
    open("req.headers", HTTP),
    open("req.trailers", HTTP),
    open("req.cookies", HTTP),
    plain("req.content_length", HTTP),
    plain("req.content_encoding", HTTP),
    plain("req.content_type", HTTP),
    plain("req.content_type.raw", HTTP),
    open("req.content_type.parameters", HTTP),
    plain("req.ts.header_received", HTTP),
    plain("req.ts.body_received", HTTP),
    plain("res.status_code", RESPONSE),
    plain("res.location", RESPONSE),
    open("res.headers", RESPONSE),
    open("res.trailers", RESPONSE),
    open("res.cookies", RESPONSE),
    plain("res.content_length", RESPONSE),
    plain("res.content_encoding", RESPONSE),
    plain("res.content_type", RESPONSE),
    plain("res.content_type.raw", RESPONSE),
    open("res.content_type.parameters", RESPONSE),
    plain("time.now", ALWAYS),
    open("actions.ngrok", ALWAYS),
    open("vars", ALWAYS),
];

/// The name of a variable that is spelled in another way, such as `req.StatusCode`; none where the
/// spelling is ours, or where there is no such variable.
pub(super) fn correct_spelling(spelled: &str) -> Option<String> {
    if VARIABLES.iter().any(|variable| variable.covers(spelled)) {
        return None;
    }
    let longest = VARIABLES.iter().filter_map(|variable| variable.match_spelling(spelled));
    longest.max_by_key(|(name, _)| name.len()).map(|(name, rest)| format!("{name}{rest}"))
}

/// Says what is wrong with naming `name` in `phase`, if something is.
pub(super) fn check_variable(name: &str, phase: Phase) -> Result<(), String> {
    let Some(variable) = VARIABLES.iter().find(|variable| variable.covers(name)) else {
        return Err(format!("unknown variable {name}"));
    };
    if variable.phases.contains(&phase) {
        return Ok(());
    }
    Err(format!("{} is not available in {}", variable.name, phase.name()))
}

/// Whether a variable tells of the path of a request.
pub(super) fn reads_path(name: &str) -> bool {
    ["req.url", "req.url.path", "req.url.raw_path", "req.url.raw", "req.url.uri"].contains(&name)
}

impl Variable {
    /// Its own name, and what follows it in a name that is spelled in another way.
    fn match_spelling<'s>(&self, spelled: &'s str) -> Option<(&'static str, &'s str)> {
        let dots = self.name.matches('.').count();
        let end = spelled.match_indices('.').nth(dots).map_or(spelled.len(), |(dot, _)| dot);
        let (head, rest) = spelled.split_at(end);
        let own = self.name.split('.');
        let is_same = head.matches('.').count() == dots
            && head.split('.').zip(own).all(|(one, other)| is_field(one, other));
        (is_same && (rest.is_empty() || self.open)).then_some((self.name, rest))
    }

    fn covers(&self, name: &str) -> bool {
        match name.strip_prefix(self.name) {
            Some("") => true,
            Some(rest) => self.open && rest.starts_with('.'),
            None => false,
        }
    }
}
