//! Header fields, targets and parameters.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use percent_encoding::percent_decode_str;

use super::credentials::mask_credentials;
use super::graphql;
use super::labels::{LabelReach, PairRole, pair_role};
use super::mark::MASK;
use super::schemes::is_scheme;
use super::text::{mask_encoded_words, text};
use super::work;
use crate::secrets::{is_secret, is_secret_parameter, is_visible_scalar, last_word};

/// Headers whose values are addresses.
const ADDRESSES: [&str; 3] = ["location", "referer", "content-location"];
/// Headers that hold no secret, although their values may look like it: a host and its port read like
/// a name and its value, and a challenge begins like the credentials that it asks for.
const PLAIN: [&str; 3] = ["host", "www-authenticate", "proxy-authenticate"];
/// Headers that hold a secret, although such names elsewhere do not.
const SECRETS: [&str; 2] = ["authentication", "dpop"];
/// The names of GraphQL requests in queries and forms.
const GRAPHQL: (&str, &str) = ("query", "variables");
/// How credentials begin where a colon stands instead of a space.
const BEARER: &str = "bearer:";
/// How many times an address may stand inside a parameter of another.
const NESTED: u8 = 2;

/// The value of a header: of credentials the scheme stays, of cookies their names, of addresses all but
/// user names, passwords and parameters.
pub fn header<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    let name = name.to_ascii_lowercase();
    if name == "cookie" {
        return value.split(';').map(mask_cookie).collect::<Vec<_>>().join("; ").into();
    }
    if name == "set-cookie" {
        let (first, attributes) = value.split_at(value.find(';').unwrap_or(value.len()));
        return format!("{}{attributes}", mask_cookie(first)).into();
    }
    if PLAIN.contains(&name.as_str()) {
        return value.into();
    }
    if let Some(scheme) = credential_scheme(value) {
        return format!("{scheme} {MASK}").into();
    }
    if name == "sec-websocket-protocol" && value.split(',').any(is_credential_word) {
        return MASK.into();
    }
    if is_visible_scalar(&name, value, false) {
        return value.into();
    }
    if is_secret(&name) || SECRETS.contains(&name.as_str()) {
        return match value.split_once(' ') {
            Some((scheme, _)) if name.contains("authoriz") => format!("{scheme} {MASK}").into(),
            _ => MASK.into(),
        };
    }
    match ADDRESSES.contains(&name.as_str()) {
        true => target(value),
        false => text(value),
    }
}

/// The scheme of a value that is made of credentials, with the colon that some put after it.
fn credential_scheme(value: &str) -> Option<&str> {
    let value = value.trim_start();
    let start = value.get(..BEARER.len()).filter(|start| start.eq_ignore_ascii_case(BEARER));
    if start.is_some_and(|start| value.len() > start.len()) {
        return start;
    }
    let (scheme, rest) = value.split_once([' ', '\t'])?;
    (is_scheme(scheme) && !rest.trim().is_empty()).then_some(scheme)
}

/// Returns true if the name of a WebSocket protocol carries credentials or announces the next name as credentials.
/// Browsers can send credentials for a WebSocket only in this header.
fn is_credential_word(protocol: &str) -> bool {
    let protocol = protocol.trim().to_ascii_lowercase();
    is_scheme(&protocol) || is_secret(&protocol) || protocol.contains("bearer")
}

fn mask_cookie(pair: &str) -> String {
    match pair.trim().split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None if pair.trim().is_empty() => String::new(),
        None => MASK.to_owned(),
    }
}

/// A target or an address: who asks, and parameters in its path, its query and its fragment.
pub fn target(target: &str) -> Cow<'_, str> {
    mask_nested_target(target, NESTED)
}

/// Masks the user and the password of an address and its parameters, even if the text is not quite an address.
/// Errors that contain an address show it in this form.
pub fn url(text: &str) -> String {
    let (_, place) = text.split_once("://").unwrap_or(("", text));
    let authority = place.split(['/', '?', '#']).next().unwrap_or_default();
    // A password that is not escaped may have any character in it.
    match authority.contains([':', '@']) {
        true => target(&login(text)).into_owned(),
        false => target(text).into_owned(),
    }
}

/// Masks the user and the password of an address, even if the text is not quite an address.
pub fn login(address: &str) -> String {
    let Some((login, host)) = address.rsplit_once('@') else { return address.to_owned() };
    let scheme = login.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
    format!("{}{MASK}@{host}", scheme.unwrap_or_default())
}

fn mask_nested_target(target: &str, depth: u8) -> Cow<'_, str> {
    let (rest, fragment) = split_at_char(target, '#');
    let (path, query) = split_at_char(rest, '?');
    let mut masked = mask_segments(path);
    if let Some(query) = query {
        masked = format!("{masked}?{}", mask_parameters(query, depth)).into();
    }
    if let Some(fragment) = fragment {
        // Applications in a page have paths with queries in there.
        let (before, query) = split_at_char(fragment, '?');
        masked = match query {
            Some(query) => {
                let before = mask_parameters(before, depth);
                format!("{masked}#{before}?{}", mask_parameters(query, depth)).into()
            }
            None => format!("{masked}#{}", mask_parameters(before, depth)).into(),
        };
    }
    masked
}

fn split_at_char(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// A path: parameters of its segments, and what is known for a token.
fn mask_segments(path: &str) -> Cow<'_, str> {
    let path = match mask_encoded_words(path) {
        Cow::Borrowed(path) => mask_credentials(path),
        Cow::Owned(path) => mask_credentials(&path).into_owned().into(),
    };
    if !path.contains('=') {
        return path;
    }
    let segments =
        path.split('/').map(|segment| mask_pairs(segment, &[';'], |_, value| value.into()));
    segments.collect::<Vec<_>>().join("/").into()
}

/// Returns the name of a file. The mask is returned if the text is the content of a file: users put keys there. They
/// also put URLs there, whose logins are masked.
pub fn path(path: &Path) -> Cow<'_, str> {
    match path.to_string_lossy() {
        _ if is_content(path) => MASK.into(),
        text if is_address(&text) && text.contains('@') => login(&text).into(),
        text => text,
    }
}

/// Returns true if the text begins with a scheme, also with one slash. A letter and a colon are a drive.
fn is_address(text: &str) -> bool {
    text.find(":/").is_some_and(|end| end > 1)
}

/// Returns true if the text has several lines or is PEM, so that it cannot be the name of a file.
pub fn is_content(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains(['\n', '\r']) || text.contains("-----BEGIN")
}

/// Masks the parameters of a query or a form.
pub fn pairs(pairs: &str) -> String {
    mask_parameters(pairs, NESTED)
}

fn mask_parameters(parameters: &str, depth: u8) -> String {
    mask_pairs(parameters, &['&', ';', '?'], |name, value| mask_parameter(name, value, depth))
}

/// The value of a parameter whose name says nothing; it may be an address with parameters.
fn mask_parameter<'a>(name: Option<&str>, value: &'a str, depth: u8) -> Cow<'a, str> {
    work::count_bytes(value.len());
    if depth > 0 && value.contains(['%', '+']) {
        let decoded = decode_component(value);
        // A pair without a name may be escaped as a whole.
        if name.is_none() && mask_parameters(&decoded, depth - 1) != decoded
            || mask_nested_target(&decoded, depth - 1) != decoded
            || text(&decoded) != decoded
        {
            return MASK.into();
        }
    }
    text(value)
}

/// Masks pairs between separators. `other` masks the pairs without the name of a secret.
///
/// A text behind a secret that is not a pair counts as part of the secret, because servers differ in their separators.
fn mask_pairs<'a>(
    pairs: &'a str,
    separators: &[char],
    other: impl Fn(Option<&str>, &'a str) -> Cow<'a, str>,
) -> String {
    work::count_bytes(pairs.len());
    let mut masked = String::with_capacity(pairs.len());
    let secret_groups = secret_groups(pairs, separators);
    let has_secret_variables = has_secret_variables(pairs);
    let mut after_secret = false;
    for piece in pairs.split_inclusive(separators) {
        let pair = piece.trim_end_matches(separators);
        let separator = piece.get(pair.len()..).unwrap_or_default();
        let named = pair.split_once('=').filter(|(_, value)| !value.trim_matches('=').is_empty());
        match named {
            Some((name, value)) => {
                let decoded_name = decode_component(name);
                let is_value = secret_groups.hides_parameter(&decoded_name);
                let is_variables = has_secret_variables && decoded_name == GRAPHQL.1;
                after_secret = (is_value || is_variables || is_secret_parameter(&decoded_name))
                    && !is_visible_scalar(&decoded_name, value, false);
                masked.extend([name, "="]);
                match after_secret {
                    true => masked.push_str(MASK),
                    false => masked.push_str(&other(Some(name), value)),
                }
            }
            None if after_secret && !pair.is_empty() => masked.push_str(MASK),
            None => masked.push_str(&other(None, pair)),
        }
        masked.push_str(separator);
        after_secret &= !separator.contains('&') && !separator.is_empty();
    }
    masked
}

/// Returns true for a GraphQL request whose variables are passed to secret arguments.
fn has_secret_variables(pairs: &str) -> bool {
    let find = |wanted: &str| {
        let mut named = pairs.split('&').filter_map(|pair| pair.split_once('='));
        named.find(|(name, _)| *name == wanted).map(|(_, value)| decode_component(value))
    };
    let document = find(GRAPHQL.0).filter(|document| document.contains('$'));
    document
        .zip(find(GRAPHQL.1))
        .is_some_and(|(document, variables)| graphql::secret_form_variables(&document, &variables))
}

/// Finds parameters whose values are names of secrets, such as `vars[0][name]=password`.
fn secret_groups(pairs: &str, separators: &[char]) -> SecretGroups {
    let named = pairs.split(separators).filter_map(|pair| pair.split_once('='));
    let named = named.map(|(name, value)| (decode_component(name), value));
    let labels = named.filter(|(name, _)| pair_role(name) == Some(PairRole::Name));
    SecretGroups::from_labels(labels.map(|(name, value)| (name, decode_component(value))))
}

/// The groups of parameters or parts in which a label has the name of a secret, with the reach of the label.
#[derive(Debug, Default)]
pub(super) struct SecretGroups(BTreeMap<String, LabelReach>);

impl SecretGroups {
    /// Finds the groups of these labels with their texts.
    pub fn from_labels(labels: impl Iterator<Item = (String, String)>) -> Self {
        let mut groups = BTreeMap::new();
        for (label, text) in labels {
            if let Some(reach) = LabelReach::from_label(last_word(&label), &text) {
                let known = groups.entry(group_of(&label).to_owned()).or_insert(reach);
                *known = reach.max(*known);
            }
        }
        Self(groups)
    }

    /// Returns true if the label of its group hides the parameter of this name.
    pub fn hides_parameter(&self, name: &str) -> bool {
        let role = pair_role(name).filter(|_| !self.0.is_empty());
        let reach = role.and_then(|_| self.0.get(group_of(name)));
        reach.zip(role).is_some_and(|(reach, role)| reach.hides_role(role))
    }
}

/// Returns the part of a parameter's name before its last word, which both parameters of a pair have.
fn group_of(name: &str) -> &str {
    let word = last_word(name);
    name.get(..name.rfind(word).unwrap_or_default()).unwrap_or_default()
}

/// The position of the first occurrence of `needle`.
pub(super) fn find_bytes(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn decode_component(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_errors_have_no_login_and_no_secret_parameters() {
        for (text, expected) in [
            ("http://svc:swordfish@127.1/", "http://#@127.1/"),
            ("http://swordfish@127.1/?a=b", "http://#@127.1/?a=b"),
            ("http://svc:sword/fi@sh@127.1/x", "http://#@127.1/x"),
            ("http://svc:sword?fi#sh@127.1/x", "http://#@127.1/x"),
            ("http:/svc:swordfish@127.1", "#@127.1"),
            ("http:\\\\svc:swordfish@127.1", "#@127.1"),
            ("svc:swordfish@127.1:80", "#@127.1:80"),
            ("http://127.1/?token=swordfish&a=b", "http://127.1/?token=#&a=b"),
            ("http://127.1/#access_token=swordfish", "http://127.1/#access_token=#"),
            ("http://127.1/@user/a?mail=b@c.test", "http://127.1/@user/a?mail=b@c.test"),
            ("http://127.1:80/", "http://127.1:80/"),
            ("127.1", "127.1"),
            ("", ""),
        ] {
            // The only `#` of the texts that stays begins a fragment.
            let expected = expected.replace("#@", &format!("{MASK}@"));
            let expected = expected.replace("token=#", &format!("token={MASK}"));
            assert_eq!(url(text), expected, "{text}");
        }
    }
}
