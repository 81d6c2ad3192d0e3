//! Commands of HTTPie 3, for a POSIX shell.

use super::shell::{body_word, printf_format, shell_word};
use super::{SnippetRequest, is_normal_target, shown_names};

/// Characters that HTTPie looks for in its arguments. A backslash before one of them is removed.
const SEPARATORS: &[u8] = b":=@;";

/// Writes the request as a command of HTTPie.
pub fn httpie_command(copy: &SnippetRequest) -> String {
    let body = &copy.request.body;
    let word = body_word(body).filter(|_| std::str::from_utf8(body).is_ok());
    let (pipe, source, option) = match word {
        _ if body.is_empty() => (String::new(), " --ignore-stdin", None),
        Some(word) => (String::new(), " --ignore-stdin", Some(format!("--raw={word}"))),
        None => (format!("printf '{}' | ", printf_format(body)), "", None),
    };
    let method = shell_word(copy.method().as_bytes());
    let url = shell_word(copy.http_url().as_bytes());
    let mut lines = vec![format!("http{source} --ignore-netrc --path-as-is {method} {url}")];
    lines.extend(unset_fields(copy));
    let (mut items, mut left_out) = (Vec::new(), Vec::new());
    for (name, value) in copy.fields() {
        match header_item(name, &value) {
            Some(item) => items.push(shell_word(item.as_bytes())),
            None => left_out.push(name),
        }
    }
    lines.extend(items);
    lines.extend(option);
    let comments = copy.comments(&own_remarks(copy, &left_out));
    format!("{comments}{pipe}{}\n", lines.join(" \\\n  "))
}

/// Returns the items that keep HTTPie from adding its own headers.
fn unset_fields(copy: &SnippetRequest) -> Vec<String> {
    let has_body = !copy.request.body.is_empty();
    let added = [
        ("Accept", true),
        ("Accept-Encoding", true),
        ("User-Agent", true),
        ("Content-Type", has_body),
    ];
    let missing = added.into_iter().filter(|(name, is_added)| *is_added && !copy.has_field(name));
    missing.map(|(name, _)| format!("{name}:")).collect()
}

/// Writes a header as an argument. Returns `None` if HTTPie has no form for it.
fn header_item(name: &str, value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let is_escape = |pair: &[u8]| pair[0] == b'\\' && SEPARATORS.contains(&pair[1]);
    if name.starts_with('-') || value.windows(2).any(is_escape) {
        return None;
    }
    Some(match value.first() {
        None => format!("{name};"),
        // With the colon, these would be other separators.
        Some(b'=' | b'@') => format!("{name}:\\{text}"),
        Some(_) => format!("{name}:{text}"),
    })
}

/// Returns what HTTPie changes.
fn own_remarks(copy: &SnippetRequest, left_out: &[&str]) -> Vec<String> {
    let mut remarks = Vec::new();
    if !is_normal_target(copy.target()) {
        remarks.push("HTTPie rewrites this path or query. The copy for curl keeps it.".to_owned());
    }
    if !copy.method().bytes().all(|byte| byte.is_ascii_uppercase()) {
        remarks.push("HTTPie cannot send this method. The copy for curl can.".to_owned());
    }
    if !left_out.is_empty() {
        remarks.push(format!("HTTPie cannot send these headers: {}.", shown_names(left_out)));
    }
    if let Some(names) = copy.trailer_names() {
        remarks.push(format!("HTTPie cannot send trailers. Left out: {names}."));
    }
    remarks
}
