//! The header in which the service says which rules of policies acted on a request.
//!
//! The agent makes up its name, which no visitor can guess, and takes it out of each request: neither
//! visitors nor local services ever see it. Official agents name none, and so get none. The value names
//! the rules one after the other, with blanks between them: each is JSON in base64.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;

use ginnel_base::logging::or_debug;

const PREFIX: &str = "ginnel-rules-";
/// How many random bytes follow, as hexadecimal digits.
const RANDOM_BYTES: usize = 16;
/// How long the name is.
pub const NAME_BYTES: usize = PREFIX.len() + 2 * RANDOM_BYTES;
/// How many rules are read at most.
const MAX_RULES: usize = 64;

/// A new name; none where there is no source of random bytes.
pub fn random_name() -> Option<HeaderName> {
    let mut bytes = [0; RANDOM_BYTES];
    or_debug!(getrandom::fill(&mut bytes), "no random bytes for the name of a header")?;
    let mut name = PREFIX.to_owned();
    // Writing to a text does not fail.
    bytes.iter().try_for_each(|byte| write!(name, "{byte:02x}")).ok()?;
    parse_name(&name)
}

/// The name that an agent says; none where it is not of the form that [`random_name`] gives it: what is
/// added to requests must not mean anything else.
pub fn parse_name(name: &str) -> Option<HeaderName> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_name = name.len() == NAME_BYTES && digits.bytes().all(is_digit);
    if is_name { HeaderName::from_bytes(name.as_bytes()).ok() } else { None }
}

/// The JSON of each rule that a value names; what is no base64 is left out.
pub fn decode_rules(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let rules = value.split(|byte| *byte == b' ').filter(|rule| !rule.is_empty());
    let rules = rules.take(MAX_RULES);
    rules.filter_map(|rule| or_debug!(STANDARD.decode(rule), "cannot read a rule"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_its_own_form_are_read() {
        let name = random_name().unwrap();

        assert_eq!(parse_name(name.as_str()), Some(name.clone()));
        assert_ne!(random_name().unwrap(), name);
        for other in ["", "host", "content-length", "ginnel-rules-", "ginnel-rules-00"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
        assert_eq!(parse_name(&name.as_str().to_uppercase()), None);
        assert_eq!(parse_name(&format!("{PREFIX}{}", "g".repeat(2 * RANDOM_BYTES))), None);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let value = format!("{} !  {}", STANDARD.encode("one"), STANDARD.encode("two"));

        assert_eq!(decode_rules(value.as_bytes()).collect::<Vec<_>>(), [b"one", b"two"]);
    }
}
