//! HTTP messages as they were sent.

use super::body::body;
use super::fields::{find_bytes, header, target};

/// Masks an HTTP message: its target, its headers, and its body by the type that a header names.
pub fn message(bytes: &[u8]) -> Option<Vec<u8>> {
    let end = find_bytes(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let (head, content) = bytes.split_at(end);
    let head = String::from_utf8_lossy(head);
    let mut masked = String::with_capacity(head.len());
    let mut media_type = String::new();
    for (number, line) in head.split_inclusive("\r\n").enumerate() {
        let (text, line_end) = line.split_at(line.trim_end_matches(['\r', '\n']).len());
        match text.split_once(':') {
            _ if number == 0 => masked.push_str(&start_line(text)),
            Some((name, value)) => {
                let value = value.trim_start();
                if name.eq_ignore_ascii_case("content-type") {
                    media_type =
                        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
                }
                masked.extend([name, ": ", &header(name, value)]);
            }
            None => masked.push_str(&super::text::text(text)),
        }
        masked.push_str(line_end);
    }
    let mut masked = masked.into_bytes();
    match body(&media_type, content) {
        Some(content) => masked.extend(content),
        None => masked.extend(content),
    }
    (masked != bytes).then_some(masked)
}

fn start_line(line: &str) -> String {
    let words = line.split(' ').enumerate();
    let masked = words.map(|(at, word)| if at == 1 { target(word) } else { word.into() });
    masked.collect::<Vec<_>>().join(" ")
}
