//! What is signed.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::super::expression::hex;
use super::scheme::{Piece, SignatureScheme};
use super::{Envelope, Signed, header_text};

type FormPairs = Vec<(Vec<u8>, Vec<u8>)>;

impl SignatureScheme {
    /// The pieces that are signed; none where one of them is missing.
    pub(super) fn signed_content<'s>(
        &self,
        signed: &'s Signed<'_>,
        envelope: &'s Envelope<'_>,
    ) -> Option<Vec<Cow<'s, [u8]>>> {
        self.content.iter().map(|piece| piece.read_bytes(signed, envelope)).collect()
    }
}

impl Piece {
    fn read_bytes<'s>(
        self,
        signed: &'s Signed<'_>,
        envelope: &'s Envelope<'_>,
    ) -> Option<Cow<'s, [u8]>> {
        let url = signed.url;
        Some(match self {
            Self::Body => signed.body.as_ref().into(),
            Self::BodyOrQuery if signed.method == http::Method::GET => {
                url_query(url).as_bytes().into()
            }
            Self::BodyOrQuery => signed.body.as_ref().into(),
            Self::Text(text) => text.as_bytes().into(),
            Self::Header(name) => header_text(signed.headers, name)?.as_bytes().into(),
            Self::Field(prefix) => find_prefixed(&envelope.value, prefix)?.as_bytes().into(),
            Self::Time => envelope.time.as_deref()?.as_bytes().into(),
            Self::Method => signed.method.as_str().as_bytes().into(),
            Self::Url => url.as_bytes().into(),
            Self::HubspotUrl => hubspot_url(url).into_bytes().into(),
            Self::Path => url_path(url).as_bytes().into(),
            Self::Form => sorted_form(signed)?.into(),
            Self::UrlAndParameters => url_and_parameters(signed).into(),
            Self::ListedHeaders { list, needed } => listed_headers(signed, list, needed)?.into(),
            Self::Envelope => hygraph_content(signed, envelope)?.into(),
        })
    }
}

/// What stands behind a prefix among the parts of a header that commas separate.
pub(super) fn find_prefixed<'v>(value: &'v str, prefix: &str) -> Option<&'v str> {
    value.split(',').find_map(|part| part.trim_matches(' ').strip_prefix(prefix))
}

/// What Mailgun writes into the body, as others write it into a header.
pub(super) fn mailgun_envelope(body: &[u8]) -> Option<String> {
    let names = ["timestamp", "token", "signature"];
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let values = match json.as_ref().and_then(|json| json.get("signature")) {
        Some(signature) => names.map(|name| signature.get(name)?.as_str().map(str::to_owned)),
        None => {
            let pairs = parse_form(body);
            names.map(|name| {
                let (_, value) = pairs.iter().find(|(own, _)| own == name.as_bytes())?;
                String::from_utf8(value.clone()).ok()
            })
        }
    };
    let parts = names.iter().zip(values).map(|(name, value)| Some(format!("{name}={}", value?)));
    Some(parts.collect::<Option<Vec<_>>>()?.join(","))
}

fn url_query(url: &str) -> &str {
    url.split_once('?').map_or("", |(_, query)| query)
}

fn without_query(url: &str) -> &str {
    url.split_once('?').map_or(url, |(before, _)| before)
}

fn url_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').and_then(|start| rest.get(start..)).unwrap_or("/")
}

/// The names and values of a form or of a query, in order.
fn parse_form(form: &[u8]) -> FormPairs {
    let plain = |text: &[u8]| {
        let spaced: Vec<u8> = text.iter().map(|it| if *it == b'+' { b' ' } else { *it }).collect();
        percent_decode(&spaced).collect::<Vec<u8>>()
    };
    let pairs = form.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (plain(&pair[..end]), plain(pair.get(end + 1..).unwrap_or_default()))
        })
        .collect()
}

/// Names and values one after the other, sorted by name.
fn join_sorted(mut pairs: FormPairs) -> Vec<u8> {
    pairs.sort();
    pairs.into_iter().flat_map(|(name, value)| [name, value]).flatten().collect()
}

/// A form, sorted; nothing for a body whose hash is in the URL, and so is signed with it.
fn sorted_form(signed: &Signed<'_>) -> Option<Vec<u8>> {
    let in_url = parse_form(url_query(signed.url).as_bytes());
    match in_url.iter().find(|(name, _)| name == b"bodySHA256") {
        None => Some(join_sorted(parse_form(signed.body))),
        Some((_, hash)) => {
            let own = hex(digest(&SHA256, signed.body).as_ref());
            hash.eq_ignore_ascii_case(own.as_bytes()).then(Vec::new)
        }
    }
}

/// The URL with the parameters of its query in order, and those of the form behind.
fn url_and_parameters(signed: &Signed<'_>) -> Vec<u8> {
    let mut in_url = parse_form(url_query(signed.url).as_bytes());
    in_url.sort();
    let in_url = in_url.into_iter().map(|(name, value)| [name, value].join(&b'='));
    let in_url = in_url.collect::<Vec<_>>().join(&b'&');
    let in_form = join_sorted(parse_form(signed.body));
    let mut text = without_query(signed.url).as_bytes().to_vec();
    if !in_url.is_empty() || !in_form.is_empty() {
        text.push(b'?');
    }
    let between: &[u8] = if in_url.is_empty() || in_form.is_empty() { b"" } else { b"." };
    text.extend([in_url.as_slice(), between, in_form.as_slice()].concat());
    text
}

/// `name:value` of each header that is listed, among which must be the list itself and what is `needed`: what is
/// not listed anybody may have changed. A `;` in a value could be taken for the end of a line.
fn listed_headers(signed: &Signed<'_>, list: &str, needed: &str) -> Option<Vec<u8>> {
    let names =
        header_text(signed.headers, list)?.split(',').map(|name| name.trim().to_ascii_lowercase());
    let names: Vec<String> = names.collect();
    [list, needed].iter().all(|it| names.iter().any(|name| name == it)).then_some(())?;
    let line = |name: &String| {
        let value = header_text(signed.headers, name)?.trim();
        (!value.contains(';')).then(|| format!("{name}:{value}"))
    };
    Some(names.iter().map(line).collect::<Option<Vec<_>>>()?.join(";").into_bytes())
}

/// The URL with those escapes decoded that HubSpot decodes before it signs.
fn hubspot_url(url: &str) -> String {
    const DECODED: [(&str, &str); 12] = [
        ("%3A", ":"),
        ("%2F", "/"),
        ("%3F", "?"),
        ("%40", "@"),
        ("%21", "!"),
        ("%24", "$"),
        ("%27", "'"),
        ("%28", "("),
        ("%29", ")"),
        ("%2A", "*"),
        ("%2C", ","),
        ("%3B", ";"),
    ];
    let decode = |url: String, (escape, plain): &(&str, &str)| {
        url.replace(escape, plain).replace(&escape.to_ascii_lowercase(), plain)
    };
    DECODED.iter().fold(url.to_owned(), decode)
}

/// The JSON that Hygraph signs.
fn hygraph_content(signed: &Signed<'_>, envelope: &Envelope<'_>) -> Option<Vec<u8>> {
    let body = json!(std::str::from_utf8(signed.body).ok()?);
    let environment = json!(find_prefixed(&envelope.value, "env=")?);
    let time: i64 = envelope.time.as_deref()?.parse().ok()?;
    let json = format!(r#"{{"Body":{body},"EnvironmentName":{environment},"TimeStamp":{time}}}"#);
    Some(json.into_bytes())
}
