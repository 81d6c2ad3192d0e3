//! Scripts for Python.

use super::{SnippetRequest, is_normal_target};
use crate::outgoing::RequestConnection;

/// Writes the request as a script with the library `requests`, or with Python's own `http.client` if `requests` would
/// change it.
pub fn python_script(copy: &SnippetRequest) -> String {
    match is_sent_by_requests(copy) {
        true => requests_script(copy),
        false => socket_script(copy),
    }
}

/// Returns true if `requests` sends the request as it is. It has upper-case methods, and one value for each name.
fn is_sent_by_requests(copy: &SnippetRequest) -> bool {
    let mut names: Vec<_> =
        copy.fields().iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    is_normal_target(copy.target())
        && names.len() == count
        && copy.request.trailers.is_empty()
        && !copy.method().bytes().any(|byte| byte.is_ascii_lowercase())
}

fn requests_script(copy: &SnippetRequest) -> String {
    // `urllib3` adds these two by default.
    let skipped: Vec<_> = ["User-Agent", "Accept-Encoding"]
        .into_iter()
        .filter(|name| !copy.has_field(name))
        .collect();
    let mut script = copy.comments(&[]) + "import requests\n";
    if !skipped.is_empty() {
        script += "from urllib3.util import SKIP_HEADER\n";
    }
    script += "\nresponse = requests.request(\n";
    push_line(&mut script, 4, &python_string(&copy.method()));
    push_line(&mut script, 4, &python_string(&copy.http_url()));
    script += "    headers={\n";
    for name in skipped {
        push_line(&mut script, 8, &format!("\"{name}\": SKIP_HEADER"));
    }
    if !copy.has_field("accept") {
        push_line(&mut script, 8, "\"Accept\": None");
    }
    for (name, value) in copy.fields() {
        // As bytes, values with letters outside ASCII arrive as they came.
        let field = format!("{}: {}", python_string(name), python_bytes(&value));
        push_line(&mut script, 8, &field);
    }
    script += "    },\n";
    if !copy.request.body.is_empty() {
        push_line(&mut script, 4, &format!("data={}", python_bytes(&copy.request.body)));
    }
    script + "    allow_redirects=False,\n)\nprint(response.status_code, response.text)\n"
}

/// Writes a script that sends the bytes of the request.
fn socket_script(copy: &SnippetRequest) -> String {
    let url = copy.http_url();
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
    let authority = rest.split('/').next().unwrap_or_default();
    let class = if scheme == "https" { "HTTPSConnection" } else { "HTTPConnection" };
    let remark = "requests would change this request; http.client sends it as it is.".to_owned();
    let mut script = copy.comments(&[remark]);
    script += "import http.client\nfrom contextlib import closing\n\nrequest = (\n";
    let head = copy.request.write_head(RequestConnection::New);
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        script += &format!("    {}\n", python_bytes(line));
    }
    let raw = copy.request.to_bytes(RequestConnection::New);
    let body = raw.get(head.len()..).unwrap_or_default();
    if !body.is_empty() {
        script += &format!("    {}\n", python_bytes(body));
    }
    let (authority, method) = (python_string(authority), python_string(&copy.method()));
    script += &format!(")\nwith closing(http.client.{class}({authority})) as connection:\n");
    for line in [
        "connection.connect()",
        "connection.sock.sendall(request)",
        &format!("response = http.client.HTTPResponse(connection.sock, method={method})"),
        "response.begin()",
        "print(response.status, response.read().decode(errors=\"replace\"))",
    ] {
        script += &format!("    {line}\n");
    }
    script
}

fn push_line(script: &mut String, indent: usize, line: &str) {
    *script += &format!("{:indent$}{line},\n", "");
}

/// Writes a literal of Python for a text, in ASCII.
pub fn python_string(text: &str) -> String {
    let mut literal = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => literal.extend(['\\', letter]),
            ' '..='~' => literal.push(letter),
            _ if u32::from(letter) < 0x1_0000 => {
                literal += &format!("\\u{:04x}", u32::from(letter));
            }
            _ => literal += &format!("\\U{:08x}", u32::from(letter)),
        }
    }
    literal + "\""
}

fn python_bytes(bytes: &[u8]) -> String {
    let mut literal = String::from("b\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => literal.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => literal.push(char::from(*byte)),
            b'\n' => literal += "\\n",
            b'\r' => literal += "\\r",
            _ => literal += &format!("\\x{byte:02x}"),
        }
    }
    literal + "\""
}
