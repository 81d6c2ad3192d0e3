//! Answers of the relay's own, for visitors of a local service that gives none.

/// An answer that says why there is no other.
pub(super) fn problem(status: u16, code: &str, title: &str, reason: &str) -> Vec<u8> {
    let body = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <h1>{title}</h1>\n<p>{}</p>\n<p>{code}</p>\n",
        escape(reason)
    );
    let reason_phrase = match status {
        400 => "Bad Request",
        431 => "Request Header Fields Too Large",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    let code =
        if code.is_empty() { String::new() } else { format!("Ngrok-Error-Code: {code}\r\n") };
    format!(
        "HTTP/1.1 {status} {reason_phrase}\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {}\r\n{code}Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Text as it stands in HTML.
pub(super) fn escape(text: &str) -> String {
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
