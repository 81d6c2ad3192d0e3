//! Forms in parts (`multipart/form-data`), even where they are cut off.

use super::MASK;
use crate::api::secrets::is_secret_parameter;

/// A form in parts, of any bytes; none where it is not one. Parts with the name of a secret are
/// masked.
pub fn parts(body: &[u8]) -> Option<Vec<u8>> {
    let end = body.windows(2).position(|two| two == b"\r\n")?;
    let boundary = body.get(..end).filter(|line| line.len() > 2 && line.starts_with(b"--"))?;
    let mut masked = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(part) = rest.strip_prefix(boundary) {
        let next = find(part, &[b"\r\n", boundary].concat());
        let (part, after) = part.split_at(next.map_or(part.len(), |at| at + 2));
        let head = find(part, b"\r\n\r\n").map_or(part.len(), |at| at + 4);
        let (head, content) = part.split_at(head);
        masked.extend_from_slice(boundary);
        masked.extend_from_slice(head);
        if !content.is_empty() && is_secret_parameter(&part_name(head)) {
            masked.extend_from_slice(MASK.as_bytes());
            masked.extend_from_slice(if next.is_some() { b"\r\n" } else { b"" });
        } else {
            masked.extend_from_slice(content);
        }
        rest = after;
    }
    masked.extend_from_slice(rest);
    Some(masked)
}

/// The name in the head of a part, as it stands in `Content-Disposition`.
fn part_name(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head);
    let mut parameters = head.split([';', '\r', '\n']).map(str::trim);
    let name = parameters.find_map(|one| {
        let (name, value) = one.split_once('=')?;
        name.trim().eq_ignore_ascii_case("name").then(|| value.trim().trim_matches('"').to_owned())
    });
    name.unwrap_or_default()
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
