//! From whom certificates are obtained, and how.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use instant_acme::{ChallengeType, LetsEncrypt};

use ginnel_api::mask;
use ginnel_base::address::WebUrl;
use ginnel_settings::{SettingItem, settings};

use crate::Error;

/// Names of directories, and where they are.
const DIRECTORIES: [(&str, LetsEncrypt); 2] =
    [("letsencrypt", LetsEncrypt::Production), ("letsencrypt-staging", LetsEncrypt::Staging)];

settings! {
    /// The certificate authority that certificates are obtained from by ACME.
    #[derive(Debug, Clone)]
    pub struct AcmeOptions {
    }

    /// The settings under `acme`.
    rows {
        directory: Option<String> = None,
            "acme.directory", "DIRECTORY",
            "Obtain certificates for host names here: letsencrypt, letsencrypt-staging or a URL",
            listed_in_help();
        agree_to_terms: bool = false,
            "acme.agree_to_terms", "BOOL",
            "Agree to the terms of service of the certificate authority",
            listed_in_help();
        email: Option<String> = None,
            "acme.email", "ADDRESS",
            "Email address for the certificate authority",
            listed_in_help();
        ca: Option<PathBuf> = None,
            "acme.ca", "FILE",
            "A PEM file with the certificates to trust at the directory",
            when_unset("what the system trusts");
        challenges: Vec<AcmeChallenge> = vec![AcmeChallenge::Http01, AcmeChallenge::TlsAlpn01],
            "acme.challenges", "TYPE",
            "Challenges that verify host names, in order of preference";
        retry_after: Duration = Duration::from_secs(60),
            "acme.retry_after", "DURATION",
            "Pause after a failure before a host name is tried again; doubles up to a day",
            with_bounds(1000, 86_400_000);
    }
}

impl AcmeOptions {
    /// Finds what is wrong before anything is started.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(name) = &self.directory else { return Ok(()) };
        let invalid = |key, problem: String| Err(Error::invalid_setting(key, problem));
        let directory = self.directory_url();
        let problem = match WebUrl::parse(&directory) {
            Ok(url) if url.is_https() => None,
            Ok(_) => Some(String::new()),
            Err(problem) => Some(format!(": it {problem}")),
        };
        if let Some(problem) = problem {
            let known = DIRECTORIES.map(|(name, _)| name).join(", ");
            let name = mask::url(name);
            let message =
                format!("invalid value {name:?}; expected {known} or an https:// URL{problem}");
            return invalid("acme.directory", message);
        }
        if let Some(email) = self.email.as_ref().filter(|email| !is_email(email)) {
            return invalid("acme.email", format!("{email:?} is not of the form name@domain"));
        }
        if !self.agree_to_terms {
            return invalid(
                "acme.agree_to_terms",
                format!("agree to the terms of {} first", mask::url(&directory)),
            );
        }
        if self.challenges.is_empty() {
            return invalid("acme.challenges", "at least one is needed".to_owned());
        }
        Ok(())
    }

    /// The challenges for which there is a listener.
    ///
    /// # Errors
    /// When there is none, or no port at which the certificates would be shown.
    pub(crate) fn challenges_with(
        &self,
        has_http: bool,
        has_https: bool,
    ) -> Result<Vec<AcmeChallenge>, Error> {
        let has_listener = |challenge: &AcmeChallenge| match challenge {
            AcmeChallenge::Http01 => has_http,
            AcmeChallenge::TlsAlpn01 => has_https,
        };
        let possible: Vec<_> = self.challenges.iter().copied().filter(has_listener).collect();
        let problem = match (has_https, possible.is_empty()) {
            (false, _) => "certificates are for HTTPS, and https_port is none",
            (_, true) => "http-01 is the only one, and http_port is none",
            _ => return Ok(possible),
        };
        Err(Error::invalid_setting("acme.challenges", problem))
    }

    /// Where the directory is.
    pub(super) fn directory_url(&self) -> String {
        let directory = self.directory.clone().unwrap_or_default();
        let known = DIRECTORIES.iter().find(|(name, _)| *name == directory);
        known.map_or(directory, |(_, known)| known.url().to_owned())
    }
}

fn is_email(text: &str) -> bool {
    let parts = text.split_once('@');
    let is_clean = !text.chars().any(|it| it.is_whitespace() || it.is_control() || it == ',');
    is_clean && parts.is_some_and(|(name, domain)| !name.is_empty() && domain.contains('.'))
}

/// How an authority checks that a name leads here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// A request to the HTTP port (RFC 8555, section 8.3).
    Http01,
    /// A handshake at the HTTPS port (RFC 8737).
    TlsAlpn01,
}

impl AcmeChallenge {
    /// What the protocol calls it.
    pub(super) fn kind(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
        }
    }
}

impl AcmeChallenge {
    /// Its name in settings.
    pub(crate) fn setting_name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

impl SettingItem for AcmeChallenge {
    const CHOICES: &'static [&'static str] = &["http-01", "tls-alpn-01"];

    fn from_text(text: &OsStr) -> Result<Self, String> {
        let known =
            [Self::Http01, Self::TlsAlpn01].into_iter().find(|known| text == known.setting_name());
        known.ok_or_else(|| "is neither http-01 nor tls-alpn-01".to_owned())
    }

    fn to_text(&self) -> String {
        self.setting_name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut AcmeOptions)) -> bool {
        let mut options = AcmeOptions { agree_to_terms: true, ..AcmeOptions::default() };
        options.directory = Some("letsencrypt".to_owned());
        change(&mut options);
        options.check().is_err()
    }

    #[test]
    fn what_cannot_be_used_is_refused_before_the_start() {
        assert!(!refused(|_| {}));
        assert!(!refused(|it| it.directory = Some("https://127.0.0.1:14000/dir".to_owned())));
        assert!(!refused(|it| it.email = Some("ops@example.test".to_owned())));
        assert!(refused(|it| it.agree_to_terms = false));
        assert!(refused(|it| it.challenges.clear()));
        for directory in ["", "lets", "http://a.test/", "https://", "ftp://a.test"] {
            assert!(refused(|it| it.directory = Some(directory.to_owned())), "{directory}");
        }
        for email in ["", "ops", "@a.test", "a@b", "a b@c.test", "a@b.test,c@d.test"] {
            assert!(refused(|it| it.email = Some(email.to_owned())), "{email}");
        }
    }

    #[test]
    fn the_refusal_of_a_directory_names_what_is_expected() {
        for (directory, end) in [
            ("http://a.test/", "or an https:// URL"),
            ("https://", "or an https:// URL: it has no host"),
        ] {
            let options = AcmeOptions {
                directory: Some(directory.to_owned()),
                agree_to_terms: true,
                ..AcmeOptions::default()
            };
            let problem = options.check().unwrap_err().to_string();
            assert!(
                problem.contains(&format!("invalid value {directory:?}; expected ")),
                "{problem}"
            );
            assert!(problem.ends_with(end), "{problem}");
        }
    }
}
