//! Why there is no TLS with a server, in words that say what to do.

use std::io;

use chrono::{DateTime, Utc};
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::tls::{Roots, TlsPeer};

/// Whom a handshake is with.
#[derive(Clone, Copy)]
pub(super) struct Handshake<'a> {
    pub peer: TlsPeer,
    pub host: &'a str,
    pub port: u16,
    pub roots: &'a Roots,
}

/// A handshake that came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{problem} ({source})")]
pub(super) struct TlsError {
    problem: String,
    source: Error,
}

impl Handshake<'_> {
    /// What an error of the handshake means; those of the connection are what they are.
    pub(super) fn explain_error(self, error: io::Error) -> io::Error {
        let kind = error.kind();
        match error.downcast::<Error>() {
            Ok(source) => {
                let problem = self.describe_error(&source);
                io::Error::new(kind, TlsError { problem, source })
            }
            Err(error) if kind == io::ErrorKind::UnexpectedEof => {
                let text = "closed the connection when TLS was to begin; does it speak TLS there?";
                io::Error::new(kind, format!("{self} {text} ({error})"))
            }
            Err(error) => error,
        }
    }

    fn describe_error(self, error: &Error) -> String {
        match error {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                let address = format!("http://{}", self.authority());
                format!("{self} does not speak TLS: is its address {address}?")
            }
            Error::InvalidCertificate(problem) => {
                format!("the certificate of {self} {}", self.certificate_problem(problem))
            }
            Error::AlertReceived(alert) => alert_problem(*alert)
                .map_or_else(|| format!("{self} refuses TLS"), |why| format!("{self} {why}")),
            Error::PeerIncompatible(_) => format!("{self} speaks neither TLS 1.2 nor 1.3 as we do"),
            _ => format!("there is no TLS with {self}"),
        }
    }

    fn certificate_problem(self, problem: &CertificateError) -> String {
        match problem {
            CertificateError::UnknownIssuer if self.roots.is_bundle() => {
                "is not trusted: none of the authorities in ca_bundle has signed it".to_owned()
            }
            CertificateError::UnknownIssuer => "is not trusted: no authority that this system \
                trusts has signed it; if it is right, name its authority with ca_bundle=\"ca.pem\""
                .to_owned(),
            CertificateError::NotValidForNameContext { presented, .. } => {
                let host = self.host;
                let names = presented.iter().map(|name| shown_name(name)).collect::<Vec<_>>();
                let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
                format!("is not for {host}, but for {names}: use a name that it is for")
            }
            CertificateError::NotValidForName => {
                format!("is not for {}: use a name that it is for", self.host)
            }
            CertificateError::ExpiredContext { not_after, .. } => format!(
                "expired at {}: it must be renewed, unless the clock of this machine is wrong",
                shown_time(*not_after)
            ),
            CertificateError::Expired => {
                "has expired: it must be renewed, unless the clock of this machine is wrong"
                    .to_owned()
            }
            CertificateError::NotValidYetContext { not_before, .. } => format!(
                "is not valid before {}: is the clock of this machine right?",
                shown_time(*not_before)
            ),
            CertificateError::NotValidYet => {
                "is not valid yet: is the clock of this machine right?".to_owned()
            }
            CertificateError::Revoked => "was revoked by its authority".to_owned(),
            _ => "cannot be accepted".to_owned(),
        }
    }

    fn authority(self) -> String {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{open}{}{close}:{}", self.host, self.port)
    }
}

impl std::fmt::Display for Handshake<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let role = match self.peer {
            TlsPeer::Server => "server",
            TlsPeer::Proxy => "proxy",
        };
        write!(f, "the {role} at {}", self.authority())
    }
}

/// What the other side says; none where its word says no more than that it refuses.
fn alert_problem(alert: AlertDescription) -> Option<&'static str> {
    match alert {
        AlertDescription::CertificateRequired => {
            Some("wants a certificate of the client: pass client_cert")
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::AccessDenied => Some("does not accept the certificate of client_cert"),
        AlertDescription::ProtocolVersion => Some("speaks neither TLS 1.2 nor 1.3"),
        AlertDescription::UnrecognisedName => Some("knows no such host name"),
        _ => None,
    }
}

/// What a read says that TLS refused after the handshake, where servers that speak TLS 1.3 say what they
/// think of the certificate of a client.
pub(super) fn refusal_error(source: Error) -> io::Error {
    let why = match &source {
        Error::AlertReceived(alert) => alert_problem(*alert),
        _ => None,
    };
    match why {
        Some(why) => {
            let problem = format!("the other side {why}");
            io::Error::new(io::ErrorKind::InvalidData, TlsError { problem, source })
        }
        None => io::Error::new(io::ErrorKind::InvalidData, source),
    }
}

/// The name of a certificate without what the library says of its kind.
fn shown_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

fn shown_time(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    DateTime::<Utc>::from_timestamp(seconds, 0)
        .map_or_else(|| "an unknown time".to_owned(), |time| time.format("%FT%TZ").to_string())
}
