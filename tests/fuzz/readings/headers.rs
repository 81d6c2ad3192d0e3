//! Lists in headers, cookies, what proxies report, and media types.

use http::header::{CONNECTION, FORWARDED, HeaderName, UPGRADE};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use ginnel_gateway::TrustedProxies;
use ginnel_gateway::message::forwarded::ForwardedVisitor;
use ginnel_http1::{
    ConnectionOptions, FORWARDED_FOR, FORWARDED_PROTO, ForwardedElement, cookie_pairs, cookie_text,
    elements_of, forwarded_elements, media_type_in, media_type_parameters, proper_upgrades,
};

use super::super::random::Random;
use super::{assembled, compare, read, refused};

/// The texts of a run in `make test`, which takes a second.
const TEXTS: usize = 300;

/// The address of a trusted proxy, which has made the connection.
const PEER: &str = "10.0.0.1:5000";

const OPTIONS: &[&str] = &[
    ",",
    ",",
    ", ",
    " ,\t",
    "close",
    "Close",
    "keep-alive",
    "Keep-Alive",
    "upgrade",
    "UPGRADE",
    "x-one",
    "x",
    " ",
    "\"",
    "\"a,b\"",
    "\\",
    ";q=1",
    "\u{e9}",
];
const PROTOCOLS: &[&str] = &[
    ",",
    ",",
    ", ",
    " ,\t",
    "websocket",
    "WebSocket",
    "h2c",
    "H2C",
    "HTTP/2.0",
    "http",
    "TLS/1.0",
    "x",
    "/",
    "/1",
    " ",
    "\"",
    "\"x\"",
    ";",
    "\u{e9}",
];
const FORWARDED_PARTS: &[&str] = &[
    ",",
    ", ",
    " ,",
    ";",
    " ; ",
    "for=192.0.2.1",
    "For=\"192.0.2.1:80\"",
    "for=\"[2001:db8::1]\"",
    "for=\"[2001:DB8::1]:443\"",
    "for=2001:db8::1",
    "for=unknown",
    "for=_hidden",
    "by=203.0.113.43",
    "by=\"_a:_b\"",
    "host=a.test",
    "host=\"a.test:80\"",
    "host=\"a,b;for=9.9.9.9\"",
    "host=\"a\\\"b\\\\\"",
    "proto=https",
    "PROTO=http",
    "x=1",
    "for=127.1",
    "for=0x7f.1",
    "for=\"192.0.2.1:99999\"",
    "=",
    " ",
    "\"",
    "\\",
    "for=",
    "\u{e9}",
];
const ADDRESSES: &[&str] = &[
    ",",
    ",",
    ", ",
    " ,",
    "192.0.2.1",
    "198.51.100.7",
    "10.0.0.9",
    "10.1.2.3",
    "192.0.2.1:8080",
    "10.0.0.9:80",
    "2001:db8::1",
    "[2001:DB8::1]",
    "[2001:db8::1]:443",
    "::ffff:192.0.2.1",
    "::ffff:10.0.0.9",
    "unknown",
    "_hidden",
    "127.1",
    "0x7f000001",
    "010.0.0.9",
    "fe80::1%eth0",
    "[fe80::1%2]:80",
    "\"192.0.2.1\"",
    "10.0.0.9.",
    " ",
    ":80",
    "\u{e9}",
];
const SCHEMES: &[&str] =
    &[",", ", ", "http", "https", "HTTPS", "ws", "wss", "gopher", " ", "\"https\"", ";"];
const COOKIES: &[&str] = &[
    ";",
    ";",
    "; ",
    "; ",
    "a=1",
    "b=2",
    "a",
    "=",
    "==",
    "=\"x\"",
    "=\"x;y\"",
    "=\"a\\\"b\"",
    "=\"\\303\\251\"",
    "\"",
    "\\",
    " ",
    "\t",
    ",",
    "$Path=/",
    "{\"k\":1}",
    "sid=abc/+=",
    "__Host-x=1",
    "\u{e9}",
    "\u{c3}\u{a9}",
    "\u{ff}",
    "\u{a0}",
    "%20",
    ":",
    "[x]",
];
const MEDIA: &[&str] = &[
    "text/html",
    "Text/HTML",
    "application/json",
    "a/b",
    ";",
    "; ",
    " ;",
    ";",
    "charset=utf-8",
    "Charset=\"UTF-8\"",
    "charset=latin1",
    "boundary=\"a;b\"",
    "boundary=\"a\\\"b\\\\\"",
    "x=1",
    "x = 1",
    "x=",
    "x",
    "=y",
    "\"",
    "\"\"",
    " ",
    "\t",
    ",",
    "x y=1",
    "\u{e9}",
    "\u{a0}",
];

#[test]
fn other_programs_read_no_other_list() {
    let trusted = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
    compare("header", TEXTS, |random| {
        vec![
            connection(random),
            upgrade(random),
            forwarded(random),
            visitor(random, &trusted),
            cookies(random),
            media_type(random),
        ]
    });
}

/// One to three lines. Each letter is a byte, as in Latin-1.
fn lines(random: &mut Random, pieces: &[&str]) -> Vec<String> {
    let count = [1, 1, 1, 2, 3][random.below(5)];
    (0..count).map(|_| assembled(random, pieces, 7)).collect()
}

fn bytes_of(line: &str) -> Vec<u8> {
    line.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect()
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn fields(name: &HeaderName, lines: &[String]) -> HeaderMap {
    let value = |line: &String| HeaderValue::from_bytes(&bytes_of(line)).unwrap();
    lines.iter().map(|line| (name.clone(), value(line))).collect()
}

/// Checks that a list without its empty elements is the same when it is printed and read again.
fn list(name: &HeaderName, elements: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let elements: Vec<_> = elements.into_iter().filter(|it| !it.is_empty()).collect();
    if let Ok(printed) = HeaderValue::from_bytes(&elements.join(&b", "[..])) {
        let again = HeaderMap::from_iter([(name.clone(), printed)]);
        let read = elements_of(&again, name).filter(|it| !it.is_empty());
        assert!(read.eq(elements.iter().map(Vec::as_slice)), "{elements:?}");
    }
    elements
}

fn connection(random: &mut Random) -> Value {
    let lines = lines(random, OPTIONS);
    let headers = fields(&CONNECTION, &lines);
    let elements =
        list(&CONNECTION, elements_of(&headers, CONNECTION).map(<[u8]>::to_vec).collect());
    let options = ConnectionOptions::from_headers(&headers);
    let texts: Vec<_> = elements.iter().map(|it| text_of(it)).collect();
    let reading = json!({
        "elements": texts,
        "upgrade": options.upgrade,
        "persists": [options.is_persistent(false), options.is_persistent(true)],
    });
    read("Connection", lines, reading)
}

fn upgrade(random: &mut Random) -> Value {
    let lines = lines(random, PROTOCOLS);
    let headers = fields(&UPGRADE, &lines);
    let protocols = list(&UPGRADE, proper_upgrades(&headers).map(<[u8]>::to_vec).collect());
    let texts: Vec<_> = protocols.iter().map(|it| text_of(it)).collect();
    read("Upgrade", lines, json!({"elements": texts}))
}

fn forwarded(random: &mut Random) -> Value {
    let lines = lines(random, FORWARDED_PARTS);
    let Some(elements) = forwarded_elements(&fields(&FORWARDED, &lines)) else {
        return refused("Forwarded", lines, "Malformed");
    };
    let node = |node: &Option<ginnel_http1::ForwardedNode>| node.as_ref().map(ToString::to_string);
    let describe = |it: &ForwardedElement| json!({"for": node(&it.client), "by": node(&it.by), "host": it.host, "proto": it.proto});
    for element in &elements {
        let again = ForwardedElement::parse(element.to_string().as_bytes());
        assert_eq!(again.as_ref(), Some(element), "{lines:?}");
    }
    read("Forwarded", lines, elements.iter().map(describe).collect())
}

fn visitor(random: &mut Random, trusted: &TrustedProxies) -> Value {
    let (addresses, schemes) = (lines(random, ADDRESSES), lines(random, SCHEMES));
    let mut headers = fields(&FORWARDED_FOR, &addresses);
    headers.extend(fields(&FORWARDED_PROTO, &schemes));
    let visitor = ForwardedVisitor::from_headers(&headers, PEER.parse().unwrap(), trusted);
    let address = visitor.address.ip().to_canonical();
    let printed = HeaderValue::try_from(address.to_string()).unwrap();
    let printed = HeaderMap::from_iter([(FORWARDED_FOR, printed)]);
    let again = ForwardedVisitor::from_headers(&printed, PEER.parse().unwrap(), trusted);
    assert_eq!(again.address.ip().to_canonical(), address);
    let scheme = visitor.scheme.map(|scheme| scheme.word);
    let reading = json!({"address": address.to_string(), "scheme": scheme});
    let text = json!({"addresses": addresses, "schemes": schemes, "peer": PEER});
    read("X-Forwarded", text, reading)
}

fn cookies(random: &mut Random) -> Value {
    let line = assembled(random, COOKIES, 12);
    let bytes = bytes_of(&line);
    let pairs: Vec<_> = cookie_pairs(&bytes).collect();
    let mut printed = Vec::new();
    for (name, value) in &pairs {
        printed.extend_from_slice(&[name, &b"=\""[..], value, b"\"; "].concat());
    }
    assert!(cookie_pairs(&printed).eq(pairs.iter().copied()), "{line:?}");
    let texts: Vec<_> =
        pairs.iter().map(|(name, value)| [cookie_text(name), cookie_text(value)]).collect();
    read("Cookie", line, json!(texts))
}

fn media_type(random: &mut Random) -> Value {
    let line = assembled(random, MEDIA, 9);
    let (media_type, parameters) = (media_type_in(&line), media_type_parameters(&line));
    let mut printed = media_type.to_owned();
    for (name, value) in &parameters {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        printed.push_str(&format!("; {name}=\"{value}\""));
    }
    assert_eq!(media_type_in(&printed), media_type);
    assert_eq!(media_type_parameters(&printed), parameters, "{line:?}");
    read("Content-Type", line.clone(), json!({"type": media_type, "parameters": parameters}))
}
