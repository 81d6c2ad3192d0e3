//! A captured request in other forms: to be pasted into a shell, a script, or a file.
//!
//! What was captured is a stranger's, so every form quotes it for the language that it is in.

use ginnel_api::mask;
use ginnel_content::outgoing::is_made_anew;
use ginnel_http1::HeadWriter;

use super::view::{HeaderView, RequestDetail};

/// Headers that whoever sends the copy writes itself, or the service that it is sent to, beside those
/// that are made anew for each sending.
const GENERATED_HEADERS: [&str; 3] = ["host", "expect", "cdn-loop"];

/// How long an argument may be: Linux takes 128 KiB, and quotes become longer in quotes.
const MAX_ARGUMENT_BYTES: usize = 24 * 1024;

/// The form of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnippetFormat {
    Curl,
    Requests,
    Ginnel,
    Raw,
    Url,
}

impl SnippetFormat {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "curl" => Some(Self::Curl),
            "requests" => Some(Self::Requests),
            "ginnel" => Some(Self::Ginnel),
            "raw" => Some(Self::Raw),
            "url" => Some(Self::Url),
            _ => None,
        }
    }

    /// The request in this form.
    pub fn render_request(self, detail: &RequestDetail, agent: &str) -> Vec<u8> {
        match self {
            Self::Curl => curl_command(detail).into_bytes(),
            Self::Requests => requests_script(detail).into_bytes(),
            Self::Ginnel => ginnel_script(detail, agent).into_bytes(),
            Self::Raw => raw_request(detail),
            Self::Url => request_url(detail).into_bytes(),
        }
    }
}

/// Where the request goes to: the public address, or what the request itself named.
fn request_url(detail: &RequestDetail) -> String {
    detail.url.clone().unwrap_or_else(|| {
        let host = detail.request.headers.iter().find(|field| has_name(field, "host"));
        let host = host.map_or("localhost", |field| field.value.as_str());
        format!("http://{host}{}", detail.summary.target)
    })
}

fn has_name(field: &HeaderView, name: &str) -> bool {
    field.name.eq_ignore_ascii_case(name)
}

fn sendable_headers(detail: &RequestDetail) -> impl Iterator<Item = &HeaderView> {
    let is_generated = |field: &&HeaderView| {
        is_made_anew(&field.name) || GENERATED_HEADERS.iter().any(|own| has_name(field, own))
    };
    detail.request.headers.iter().filter(move |field| !is_generated(field))
}

fn masking_note(detail: &RequestDetail) -> &'static str {
    let masked = detail.request.masked
        || detail.summary.target.contains(mask::MASK)
        || detail.request.headers.iter().any(|field| field.value.contains(mask::MASK));
    if masked { "# Secrets are masked; fill them in.\n" } else { "" }
}

/// For a POSIX shell.
fn curl_command(detail: &RequestDetail) -> String {
    let mut lines =
        vec![format!("curl --globoff --path-as-is {}", quote_shell(&request_url(detail)))];
    let method = detail.summary.method.as_str();
    let body = &detail.request.body.0;
    // Some say how long their body is although it is empty.
    let is_sized = detail.request.headers.iter().any(|field| has_name(field, "content-length"));
    let is_empty = detail.request.length == 0 && is_sized && !matches!(method, "GET" | "HEAD");
    let has_body = !body.is_empty() || is_empty;
    match method {
        "HEAD" if !has_body => lines.push("--head".to_owned()),
        // With a body, curl takes no `--head`, and waits for that of the answer until the end.
        "HEAD" => lines.push("--request HEAD --ignore-content-length".to_owned()),
        "GET" if !has_body => {}
        method => lines.push(format!("--request {}", quote_shell(method))),
    }
    if method == "HEAD" && has_body {
        lines.push("--header 'Connection: close'".to_owned());
    }
    lines.extend(suppressed_headers(detail, has_body).map(|name| format!("--header '{name}:'")));
    for field in sendable_headers(detail) {
        // Without a value, curl takes `name:` for the wish to leave the header out.
        let header = match field.value.as_str() {
            "" => format!("{};", field.name),
            value => format!("{}: {value}", field.name),
        };
        lines.push(format!("--header {}", quote_shell(&header)));
    }
    let mut before = String::new();
    if has_body {
        match std::str::from_utf8(body) {
            // Only this option takes a leading @ for what it is.
            Ok(text) if !text.contains('\0') && text.len() <= MAX_ARGUMENT_BYTES => {
                lines.push(format!("--data-raw {}", quote_shell(text)))
            }
            _ => {
                let octal = body.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
                before = format!("printf '{octal}' | ");
                lines.push("--data-binary @-".to_owned());
            }
        }
    }
    format!("{}{before}{}\n", masking_note(detail), lines.join(" \\\n  "))
}

/// Headers that curl would add on its own, and the request does not have.
fn suppressed_headers(
    detail: &RequestDetail,
    has_body: bool,
) -> impl Iterator<Item = &'static str> {
    let own = [("Accept", true), ("User-Agent", true), ("Content-Type", has_body)];
    let missing = |name: &str| !detail.request.headers.iter().any(|field| has_name(field, name));
    own.into_iter().filter(move |(name, is_added)| *is_added && missing(name)).map(|(name, _)| name)
}

/// A word for a POSIX shell; nothing is special between single quotes but their end.
fn quote_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// For Python with the library `requests`.
fn requests_script(detail: &RequestDetail) -> String {
    let mut script =
        format!("{}import requests\n\nresponse = requests.request(\n", masking_note(detail));
    script += &format!("    {},\n", python_string(&detail.summary.method));
    script += &format!("    {},\n", python_string(&request_url(detail)));
    script += "    headers={\n";
    let mut seen: Vec<(String, String)> = Vec::new();
    for field in sendable_headers(detail) {
        match seen.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(&field.name)) {
            Some((_, value)) => *value = format!("{value}, {}", field.value),
            None => seen.push((field.name.clone(), field.value.clone())),
        }
    }
    for (name, value) in seen {
        // As bytes, values with letters beyond ASCII arrive as they came.
        script +=
            &format!("        {}: {},\n", python_string(&name), python_bytes(value.as_bytes()));
    }
    script += "    },\n";
    if !detail.request.body.0.is_empty() {
        script += &format!("    data={},\n", python_bytes(&detail.request.body.0));
    }
    script + "    allow_redirects=False,\n)\nprint(response.status_code, response.text)\n"
}

/// For Python with ginnel: the agent sends it again, with its secrets.
fn ginnel_script(detail: &RequestDetail, agent: &str) -> String {
    let id = python_string(&detail.summary.id);
    format!(
        "from ginnel import AgentClient\n\nwith AgentClient({}) as agent:\n    \
         agent.requests.replay({id})\n    \
         print(agent.requests.list(limit=1).first())\n",
        python_string(agent)
    )
}

fn python_string(text: &str) -> String {
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

/// As it travelled, but for the framing of chunks.
fn raw_request(detail: &RequestDetail) -> Vec<u8> {
    let mut raw = Vec::new();
    let mut head = HeadWriter::begin_line(detail.request.line.as_bytes(), &mut raw);
    for field in &detail.request.headers {
        head.field(&field.name, &field.value);
    }
    head.end();
    raw.extend_from_slice(&detail.request.body.0);
    raw
}
