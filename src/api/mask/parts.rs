//! Bodies in parts (`multipart/form-data` and its like), even where they are cut off.

use std::collections::BTreeSet;

use super::body;
use super::fields::{find, group_of};
use super::mark::MASK;
use super::name_value::{PairRole, pair_role};
use crate::api::secrets::{is_secret, is_secret_parameter};

/// How many bodies in parts may stand inside each other; what is deeper is masked as a whole.
pub(super) const MAX_DEPTH: usize = 4;

/// A body in parts, of any bytes; none where it is not one. Parts with the name of a secret are masked, and
/// all others as bodies of their own types are.
pub(super) fn masked(whole: &[u8], depth: usize) -> Option<Vec<u8>> {
    let start = match whole.starts_with(b"--") {
        true => 0,
        // There may be a text before the first part.
        false => find(whole, b"\r\n--")? + 2,
    };
    let end = start + whole.get(start..)?.windows(2).position(|two| two == b"\r\n")?;
    let boundary = whole.get(start..end).filter(|line| line.len() > 2)?;
    let mut masked = Vec::with_capacity(whole.len());
    push(&mut masked, whole.get(..start)?);
    let (parts, rest) = split(whole.get(start..)?, boundary);
    let groups = secret_groups(&parts);
    for FormPart { head, content, is_whole } in parts {
        masked.extend_from_slice(boundary);
        masked.extend_from_slice(head);
        match of_part(head, content, (depth, &groups)) {
            Some(safe) => masked.extend_from_slice(&safe),
            None => masked.extend_from_slice(content),
        }
        if is_whole {
            masked.extend_from_slice(b"\r\n");
        }
    }
    push(&mut masked, rest);
    Some(masked)
}

/// A part of a body, which may be cut off.
struct FormPart<'a> {
    head: &'a [u8],
    content: &'a [u8],
    is_whole: bool,
}

/// Splits a body into its parts, and what stands behind the last of them.
fn split<'a>(mut rest: &'a [u8], boundary: &[u8]) -> (Vec<FormPart<'a>>, &'a [u8]) {
    let mut parts = Vec::new();
    let end = [b"\r\n", boundary].concat();
    while let Some(part) = rest.strip_prefix(boundary) {
        let next = find(part, &end);
        let (part, after) = part.split_at(next.unwrap_or(part.len()));
        let head = find(part, b"\r\n\r\n").map_or(part.len(), |at| at + 4);
        let (head, content) = part.split_at(head);
        parts.push(FormPart { head, content, is_whole: next.is_some() });
        rest = after.get(2..).unwrap_or_default();
    }
    (parts, rest)
}

/// Finds parts whose content is the name of a secret, and returns the groups of their names, as those of forms.
fn secret_groups(parts: &[FormPart<'_>]) -> BTreeSet<String> {
    let groups = parts.iter().filter_map(|part| {
        let name = part_name(&String::from_utf8_lossy(part.head));
        let content = std::str::from_utf8(part.content).ok()?;
        let is_name = pair_role(&name) == Some(PairRole::Name) && is_secret(content);
        is_name.then(|| group_of(&name).to_owned())
    });
    groups.collect()
}

/// Adds what stands before the first part, or behind the last.
fn push(masked: &mut Vec<u8>, beside: &[u8]) {
    match body::masked("text/plain", beside, 0) {
        Some(safe) => masked.extend_from_slice(&safe),
        None => masked.extend_from_slice(beside),
    }
}

/// What may be shown of a part; none where that is all of it.
fn of_part(
    head: &[u8],
    content: &[u8],
    (depth, secret_groups): (usize, &BTreeSet<String>),
) -> Option<Vec<u8>> {
    if content.is_empty() {
        return None;
    }
    let head = String::from_utf8_lossy(head);
    let media_type = media_type(&head);
    let is_too_deep = depth == 0 && media_type.starts_with("multipart/");
    let name = part_name(&head);
    let is_value =
        pair_role(&name) == Some(PairRole::Value) && secret_groups.contains(group_of(&name));
    match is_too_deep || is_value || is_secret_parameter(&name) {
        true => Some(MASK.as_bytes().to_vec()),
        false => body::masked(&media_type, content, depth.saturating_sub(1)),
    }
}

/// The type in the head of a part, without parameters and in small letters.
fn media_type(head: &str) -> String {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-type").then_some(value)
    });
    let without = value.unwrap_or_default().split(';').next().unwrap_or_default();
    without.trim().to_ascii_lowercase()
}

/// The name in the head of a part, as it stands in `Content-Disposition`.
fn part_name(head: &str) -> String {
    let mut parameters = head.split([';', '\r', '\n']).map(str::trim);
    let name = parameters.find_map(|one| {
        let (name, value) = one.split_once('=')?;
        name.trim().eq_ignore_ascii_case("name").then(|| value.trim().trim_matches('"').to_owned())
    });
    name.unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parts(body: &[u8]) -> Option<Vec<u8>> {
        masked(body, MAX_DEPTH)
    }

    #[test]
    fn parts_of_forms_are_masked() {
        let part = |name: &str, content: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}")
        };
        let form = |secret: &str| {
            let parts = [part("a", "1\r\n"), part("password", secret), part("b", "2\r\n--B--\r\n")];
            parts.concat().into_bytes()
        };

        let masked = form(&format!("{MASK}\r\n"));
        assert_eq!(parts(&form("x\r\n--\r\ny\r\n")), Some(masked));
        let cut = parts(part("token", "cut o\u{fffd}").as_bytes());
        assert_eq!(cut, Some(part("token", MASK).into_bytes()));
        assert_eq!(parts(b"no form"), None);
        assert_eq!(parts(b"--B\r\n"), Some(b"--B\r\n".to_vec()));
    }

    #[test]
    fn each_part_is_masked_as_a_body_of_its_type() {
        let form = |media_type: &str, content: &str| {
            let head = match media_type {
                "" => String::new(),
                media_type => format!("content-type: {media_type}\r\n"),
            };
            format!(
                "--B\r\nContent-Disposition: form-data; name=j\r\n{head}\r\n{content}\r\n--B--\r\n"
            )
        };
        for (media_type, content, expected) in [
            ("application/json", "{\"token\":\"S\",\"a\":1}", "{\"token\":\"#\",\"a\":1}"),
            ("Application/JSON; charset=utf-8", "{\"token\":\"S\"}", "{\"token\":\"#\"}"),
            ("application/x-www-form-urlencoded", "a=1&token=S", "a=1&token=#"),
            ("text/xml", "<a><token>S</token></a>", "<a><token>#</token></a>"),
            ("", "{\"token\":\"S\"}", "{\"token\":\"#\"}"),
            ("", "Bearer swordfish", "Bearer #"),
            ("application/octet-stream", "password=S", "password=#"),
            ("image/png", "token=S", "token=S"),
            ("application/json", "{\"token\":\"\"}", "{\"token\":\"#\"}"),
            ("text/plain", "plain", "plain"),
        ] {
            let shown =
                String::from_utf8(parts(form(media_type, content).as_bytes()).unwrap()).unwrap();
            assert_eq!(shown, form(media_type, &expected.replace('#', MASK)), "{content}");
        }
    }

    #[test]
    fn a_part_with_the_value_of_a_secret_name_is_masked() {
        let part = |name: &str, content: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
        };
        let form = |secret: &str| {
            let others = [part("b[key]", "shop"), part("b[value]", "kept"), "--B--\r\n".to_owned()];
            [part("a[value]", secret), part("a[key]", "pin")].concat() + &others.concat()
        };

        assert_eq!(parts(form("1234").as_bytes()), Some(form(MASK).into_bytes()));
    }

    #[test]
    fn parts_inside_of_parts_are_masked_however_deep() {
        for depth in [1, 2, MAX_DEPTH, 3 * MAX_DEPTH] {
            let mut whole = "{\"token\":\"swordfish\"}".to_owned();
            let mut media_type = "application/json".to_owned();
            for level in 0..depth {
                whole = format!(
                    "before\r\n--b{level}x\r\nContent-Type: {media_type}\r\n\r\n{whole}\r\n--b{level}x--\r\n"
                );
                media_type = format!("multipart/mixed; boundary=b{level}x");
            }

            let shown = String::from_utf8(parts(whole.as_bytes()).unwrap()).unwrap();

            assert!(!shown.contains("swordfish"), "{depth}: {shown}");
            assert!(shown.contains(MASK), "{depth}: {shown}");
        }
    }
}
