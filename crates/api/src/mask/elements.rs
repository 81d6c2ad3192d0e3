//! Tags between a name and its value in pages, such as `<b>Password:</b> <code>x</code>`.

/// Elements that a value may be in, next to its name, and those that a name may be in.
const VALUE_ELEMENTS: [&str; 21] = [
    "b", "br", "code", "dd", "div", "em", "font", "i", "kbd", "mark", "output", "p", "pre", "q",
    "samp", "small", "span", "strong", "td", "tt", "u",
];
const NAME_ELEMENTS: [&str; 15] = [
    "b", "code", "dt", "em", "font", "i", "label", "small", "span", "strong", "td", "th", "tt",
    "u", "br",
];
/// At most so many tags are between a name and its value, each with so many bytes.
const MAX_TAGS: usize = 8;
const MAX_TAG_BYTES: usize = 256;
/// Blanks between a name and a tag, as HTML writes them.
const BLANKS: [&str; 2] = ["&nbsp;", "&#160;"];

/// Returns the length of the tags between a name and its value, such as `<p>Password: <b>x</b>`; `None` without tags.
pub(super) fn tags_length(rest: &str) -> Option<usize> {
    let mut at = 0;
    for _ in 0..MAX_TAGS {
        let next = rest.get(at..)?.trim_start();
        let blank = BLANKS.iter().find(|blank| next.starts_with(**blank));
        at = rest.len() - next.len();
        if let Some(blank) = blank {
            at += blank.len();
            continue;
        }
        if !next.starts_with('<') {
            return (at > 0 && rest.starts_with(['<', '&'])).then_some(at);
        }
        let end = next.bytes().take(MAX_TAG_BYTES).position(|byte| byte == b'>')?;
        let tag = next.get(1..end)?;
        let (name, known) = match tag.strip_prefix('/') {
            Some(name) => (name, &NAME_ELEMENTS[..]),
            None => (tag, &VALUE_ELEMENTS[..]),
        };
        let name = name.split([' ', '\n', '\t', '/']).next().unwrap_or_default();
        if !known.iter().any(|it| name.eq_ignore_ascii_case(it)) {
            return None;
        }
        at += end + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_end_where_the_value_begins() {
        for (rest, expected) in [
            ("<b>a", Some("a")),
            ("</b> <td class='c'>\n<code>a", Some("a")),
            ("&nbsp;<b>a", Some("a")),
            ("a<b>", None),
            ("<input>a", None),
            ("</div><div>a", None),
            ("<b", None),
            ("", None),
        ] {
            let length = tags_length(rest);
            assert_eq!(length.and_then(|length| rest.get(length..)), expected, "{rest}");
        }
    }
}
