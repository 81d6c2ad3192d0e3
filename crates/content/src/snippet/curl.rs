//! Commands of curl, for a POSIX shell.

use ginnel_http1::list_elements;

use super::shell::{body_word, printf_format, shell_word};
use super::{SnippetRequest, is_plain_target};

/// The largest body before which some version of curl does not wait for an interim response.
const MAX_UNEXPECTED_BYTES: usize = 1024;

/// Writes the request as a command of curl.
pub fn curl_command(copy: &SnippetRequest) -> String {
    let body = CurlBody::new(copy);
    let mut lines = vec![format!("curl --globoff --path-as-is {}", address(copy))];
    lines.extend(method_options(copy, body.is_sent));
    lines.extend(suppressed_fields(copy, &body).map(|name| format!("--header '{name}:'")));
    for (name, value) in copy.fields() {
        // Without a value, curl takes `name:` for the wish to leave the header out.
        let field = match value.is_empty() {
            true => format!("{name};").into_bytes(),
            false => [name.as_bytes(), b": ", &value].concat(),
        };
        lines.push(format!("--header {}", shell_word(&field)));
    }
    lines.extend(accepts_coding(copy).then(|| "--compressed".to_owned()));
    lines.extend(body.option);
    let trailers = copy.trailer_names();
    let remarks = trailers.map(|names| format!("curl cannot send trailers. Left out: {names}."));
    let comments = copy.comments(remarks.as_slice());
    format!("{comments}{}{}\n", body.pipe, lines.join(" \\\n  "))
}

/// Writes the URL, and the target if curl would change it.
fn address(copy: &SnippetRequest) -> String {
    match is_plain_target(copy.target()) {
        true => shell_word(copy.http_url().as_bytes()),
        false => {
            let url = copy.http_url();
            let origin = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
            let target = shell_word(copy.target());
            format!("--request-target {target} {}", shell_word(format!("{origin}/").as_bytes()))
        }
    }
}

fn method_options(copy: &SnippetRequest, has_body: bool) -> Vec<String> {
    match &*copy.method() {
        "GET" if !has_body => Vec::new(),
        "HEAD" if !has_body => vec!["--head".to_owned()],
        // With a body, curl takes no `--head`, and waits for the body of the response until the connection ends.
        "HEAD" => vec![
            "--request HEAD --ignore-content-length".to_owned(),
            "--header 'Connection: close'".to_owned(),
        ],
        method => vec![format!("--request {}", shell_word(method.as_bytes()))],
    }
}

/// The body of a command.
struct CurlBody {
    /// If true, the request has a body, or states that it has an empty one.
    is_sent: bool,
    is_long: bool,
    option: Option<String>,
    /// The command before it, which writes the body.
    pipe: String,
}

impl CurlBody {
    fn new(copy: &SnippetRequest) -> Self {
        let body = &copy.request.body;
        let has_length =
            copy.has_field("content-length") && !matches!(&*copy.method(), "GET" | "HEAD");
        let is_sent = !body.is_empty() || has_length;
        let (option, pipe) = match body_word(body) {
            _ if !is_sent => (None, String::new()),
            // Only this option takes a leading @ as text.
            Some(word) => (Some(format!("--data-raw {word}")), String::new()),
            None => {
                let pipe = format!("printf '{}' | ", printf_format(body));
                (Some("--data-binary @-".to_owned()), pipe)
            }
        };
        Self { is_sent, is_long: body.len() > MAX_UNEXPECTED_BYTES, option, pipe }
    }
}

/// Returns the headers that curl would add, and that the request does not have.
fn suppressed_fields<'c>(
    copy: &'c SnippetRequest,
    body: &CurlBody,
) -> impl Iterator<Item = &'static str> + use<'c> {
    let added = [
        ("Accept", true),
        ("User-Agent", true),
        ("Content-Type", body.is_sent),
        ("Expect", body.is_long),
    ];
    let missing = added.into_iter().filter(|(name, is_added)| *is_added && !copy.has_field(name));
    missing.map(|(name, _)| name)
}

/// Returns true if the response may have a content coding, which curl removes only if it is asked to.
fn accepts_coding(copy: &SnippetRequest) -> bool {
    let fields = copy.fields();
    let mut values = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept-encoding"));
    values.any(|(_, value)| {
        list_elements(value).any(|coding| {
            !coding.is_empty() && !coding.to_ascii_lowercase().starts_with(b"identity")
        })
    })
}
