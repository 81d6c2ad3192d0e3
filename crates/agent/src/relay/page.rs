//! Answers of the relay's own, for visitors of a local service that gives none.

use ginnel_http1::HeadWriter;

/// An answer that says why there is no other.
pub(super) fn problem_page(status: u16, code: &str, title: &str, reason: &str) -> Vec<u8> {
    let body = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <h1>{title}</h1>\n<p>{}</p>\n<p>{code}</p>\n",
        escape_html(reason)
    );
    let mut answer = Vec::new();
    let mut head = HeadWriter::begin_response(status, &mut answer);
    head.field("Content-Type", "text/html; charset=utf-8")
        .display_field("Content-Length", body.len());
    if !code.is_empty() {
        head.field("Ngrok-Error-Code", code);
    }
    head.field("Connection", "close").end();
    answer.extend_from_slice(body.as_bytes());
    answer
}

/// Text as it stands in HTML.
pub(super) fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}
