//! Host names.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use super::AddressError;

const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A host name in lower case, without a trailing dot. Letters outside ASCII are in their `xn--` form.
///
/// Names end in a label that is not a number, so that no name can be taken for an IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Parses a name.
    ///
    /// # Errors
    /// If the text is not a host name.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if has_blank(text) {
            return Err(AddressError::Blank);
        }
        reject_url(text)?;
        if text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return Err(AddressError::IpAddress);
        }
        reject_port(text)?;
        if text.is_ascii() { Self::parse_ascii(text) } else { Self::parse_international(text) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for `localhost` and the names below it, which are loopback (RFC 6761, section 6.3).
    pub fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }

    /// Returns true for the names of internal endpoints, which only policies of this service lead to.
    pub fn is_internal(&self) -> bool {
        self.0.ends_with(".internal")
    }

    /// Returns true for the names below another, and false for the name itself.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|rest| rest.ends_with('.'))
    }

    fn parse_ascii(text: &str) -> Result<Self, AddressError> {
        Self::normalize(text).map(|name| Self(name.into_owned()))
    }

    /// Returns the normal form of a name in ASCII, which is borrowed if the text is in it.
    pub(super) fn normalize(text: &str) -> Result<Cow<'_, str>, AddressError> {
        if has_blank(text) {
            return Err(AddressError::Blank);
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(AddressError::NoHost);
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        if is_number(last) {
            return Err(AddressError::Number);
        }
        if name.split('.').any(str::is_empty) {
            return Err(AddressError::EmptyLabel);
        }
        // Names with a hyphen at the end of a label exist; at the beginning, it would be an option or a negative number.
        if name.len() > MAX_NAME_BYTES || name.starts_with('-') || !name.split('.').all(is_label) {
            return Err(AddressError::Name);
        }
        Ok(match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(name.to_ascii_lowercase()),
            false => Cow::Borrowed(name),
        })
    }

    fn parse_international(text: &str) -> Result<Self, AddressError> {
        let ascii = idna::domain_to_ascii(text).map_err(|_| AddressError::International)?;
        let name = Self::parse_ascii(&ascii).map_err(|problem| match problem {
            // The user wrote other letters than those that were mapped.
            AddressError::Number => AddressError::LookAlike(ascii.clone()),
            problem => problem,
        })?;
        let written = text.strip_suffix('.').unwrap_or(text);
        let is_mapped =
            |(written, label): (&str, &str)| written.is_ascii() || label.starts_with("xn--");
        let labels = written.split('.').zip(name.0.split('.'));
        let is_same_count = written.split('.').count() == name.0.split('.').count();
        if is_same_count && labels.into_iter().all(is_mapped) {
            Ok(name)
        } else {
            Err(AddressError::LookAlike(name.0))
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns true for a text with a character that no address contains and that parsers treat differently.
pub(super) fn has_blank(text: &str) -> bool {
    text.chars().any(|letter| letter.is_whitespace() || letter.is_control() || letter == '\\')
}

/// Rejects a URL where a host belongs.
pub(super) fn reject_url(text: &str) -> Result<(), AddressError> {
    if text.contains("://") { Err(AddressError::UrlOfHost) } else { Ok(()) }
}

/// Rejects a host with a port where only a host belongs.
pub(super) fn reject_port(text: &str) -> Result<(), AddressError> {
    let port = text.split_once(':').map(|(_, port)| port);
    match port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        true => Err(AddressError::HasPort),
        false => Ok(()),
    }
}

fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Returns true for a label that URL parsers and resolvers may read as a number.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, AddressError> {
        HostName::parse(text).map(|name| name.to_string())
    }

    #[test]
    fn names_have_one_form() {
        for (text, name) in [
            ("localhost", "localhost"),
            ("LOCALHOST.", "localhost"),
            ("a_b.Example.test", "a_b.example.test"),
            ("under_score", "under_score"),
            ("a-.test", "a-.test"),
            ("1.2.3.test", "1.2.3.test"),
            ("0xg", "0xg"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER.example.", "xn--bcher-kva.example"),
            ("bu\u{308}cher.example", "xn--bcher-kva.example"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(name), "{text}");
        }
    }

    #[test]
    fn other_notations_are_rejected_with_the_cause() {
        let long_label = format!("{}.test", "a".repeat(64));
        let long_name = vec!["a".repeat(63); 4].join(".");
        for (text, problem) in [
            ("", AddressError::NoHost),
            (".", AddressError::NoHost),
            ("40367", AddressError::Number),
            ("40367.", AddressError::Number),
            ("0x9daf", AddressError::Number),
            ("0x", AddressError::Number),
            ("127.1", AddressError::Number),
            ("0177.0.0.1", AddressError::Number),
            ("1.2.3.4.5", AddressError::Number),
            ("a..test", AddressError::EmptyLabel),
            ("a.test..", AddressError::EmptyLabel),
            (".a.test", AddressError::EmptyLabel),
            ("-a", AddressError::Name),
            ("a%62", AddressError::Name),
            ("a+b", AddressError::Name),
            ("*.test", AddressError::Name),
            (&long_label, AddressError::Name),
            (&long_name, AddressError::Name),
            ("a b", AddressError::Blank),
            ("a\n", AddressError::Blank),
            ("a\0", AddressError::Blank),
            ("a\\b", AddressError::Blank),
            ("a\u{a0}b", AddressError::Blank),
            ("１２７.0.0.1", AddressError::LookAlike("127.0.0.1".to_owned())),
            ("ｅxample.test", AddressError::LookAlike("example.test".to_owned())),
            ("example。test", AddressError::LookAlike("example.test".to_owned())),
            ("exa\u{ad}mple.test", AddressError::LookAlike("example.test".to_owned())),
            ("\u{fffd}.test", AddressError::International),
        ] {
            assert_eq!(parsed(text), Err(problem), "{text:?}");
        }
    }

    #[test]
    fn the_longest_names_and_labels_are_accepted() {
        let name = format!("{}.{}", vec!["a".repeat(63); 3].join("."), "a".repeat(61));

        assert_eq!(name.len(), 253);
        assert_eq!(parsed(&name).as_deref(), Ok(&*name));
        assert_eq!(parsed(&format!("{name}.")).as_deref(), Ok(&*name));
        assert!(parsed(&format!("{name}a")).is_err());
    }

    #[test]
    fn names_below_localhost_are_loopback() {
        let is_localhost = |text: &str| HostName::parse(text).is_ok_and(|name| name.is_localhost());

        for name in ["localhost", "localhost.", "LocalHost", "a.b.localhost."] {
            assert!(is_localhost(name), "{name}");
        }
        for name in ["xlocalhost", "localhost.test", "localhos"] {
            assert!(!is_localhost(name), "{name}");
        }
    }
}
