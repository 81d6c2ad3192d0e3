//! `terminate-tls`: how TLS ends at the service, said once for an endpoint.

use std::fmt;

use super::prelude::*;

/// How many authorities there may be.
const AUTHORITIES: usize = 20;

/// How TLS is spoken with visitors. Whoever makes an endpoint of a policy reads it; nothing is left to
/// be done when a connection arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminateTls {
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
    /// The certificates and the key, both PEM; without them the service uses its own.
    pub certificate: Option<(String, PrivateKey)>,
    /// Who signs the certificates that visitors must show, PEM; without any, nobody must.
    pub authorities: Vec<String>,
}

/// A private key, PEM, which is kept out of debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(pub String);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PrivateKey(…)")
    }
}

/// Versions of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersions {
    /// 1.2 and 1.3.
    #[default]
    All,
    /// 1.2 alone.
    Only12,
    /// 1.3 alone.
    Only13,
}

impl Action for TerminateTls {
    fn run(&self, _: &mut Turn<'_>) -> ActionResult<Flow> {
        Ok(Flow::Continue)
    }

    fn tls_termination(&self) -> Option<&TerminateTls> {
        Some(self)
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    // There is one way to be strict; the other ways would let visitors in who show nothing.
    let strict = [("require-and-verify", ())];
    let strategy = config.choice_field("mutual_tls_verification_strategy", code::CHOICE, &strict);
    let (versions, certificate) = (read_versions(config), read_certificate(config));
    let authorities = read_authorities(config);
    if strategy.is_some() && authorities.is_empty() {
        let message = "nobody could be verified without mutual_tls_certificate_authorities";
        config.record_problem("mutual_tls_verification_strategy", code::EMPTY, message);
    }
    Box::new(TerminateTls { versions, certificate, authorities })
}

fn read_versions(config: &mut Config<'_>) -> TlsVersions {
    const WORDS: &[(&str, u8)] = &[("1.2", 2), ("1.3", 3)];
    let least = config.choice_field("min_version", code::CHOICE, WORDS).unwrap_or(2);
    let most = config.choice_field("max_version", code::CHOICE, WORDS).unwrap_or(3);
    match (least, most) {
        (2, 3) => TlsVersions::All,
        (2, _) => TlsVersions::Only12,
        (_, 3) => TlsVersions::Only13,
        _ => {
            config.record_problem("max_version", code::RANGE, "max_version is below min_version");
            TlsVersions::All
        }
    }
}

fn read_certificate(config: &mut Config<'_>) -> Option<(String, PrivateKey)> {
    let chain = read_pem(config, "server_certificate");
    let key = read_pem(config, "server_private_key");
    if chain.is_some() != key.is_some() {
        let message = "server_certificate and server_private_key belong together";
        config.record_problem("server_certificate", code::EMPTY, message);
    }
    chain.zip(key.map(PrivateKey))
}

fn read_pem(config: &mut Config<'_>, name: &'static str) -> Option<String> {
    let text = config.text_field(name)?;
    if let Err(reason) = check_pem(text) {
        config.record_problem(name, code::VALUE, reason);
    }
    Some(text.to_owned())
}

fn read_authorities(config: &mut Config<'_>) -> Vec<String> {
    const NAME: &str = "mutual_tls_certificate_authorities";
    // With an empty list nobody would be asked for a certificate.
    let least = usize::from(config.field_value(NAME).is_some());
    let texts = config.text_entries(NAME, least..=AUTHORITIES);
    for (place, text) in &texts {
        if let Err(reason) = check_pem(text) {
            config.record_problem_at(place, code::VALUE, reason);
        }
    }
    texts.into_iter().map(|(_, text)| text.to_owned()).collect()
}

/// Whether a text may be PEM; whoever makes an endpoint of it says what is wrong with it otherwise.
fn check_pem(text: &str) -> Result<(), &'static str> {
    if text.contains("${") {
        return Err("must be PEM: there is nothing to evaluate before the handshake");
    }
    let is_pem = text.trim_start().starts_with("-----BEGIN ");
    if is_pem { Ok(()) } else { Err("must be PEM, not the identifier of something else") }
}
