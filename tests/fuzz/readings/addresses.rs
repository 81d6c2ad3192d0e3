//! Host names, addresses, authorities, URLs, hosts of requests, upstream addresses and ranges.

use std::fmt::Write as _;

use serde_json::{Value, json};

use ginnel_base::address::{
    AddressError, AddressProtocol, Authority, Cidr, EndpointUrl, Host, HostName, HostPattern,
    HostPort, RequestHost, UpstreamAddress, WebUrl,
};

use super::super::random::Random;
use super::{compare, read, refused};

/// The texts of a run in `make test`, which takes a second.
const TEXTS: usize = 2_000;

const HOSTS: &[&str] = &[
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "a.test",
    "A_b.TEST.",
    "1.2.3.test",
    "a-.test",
    "-a.test",
    "a..test",
    "*.a.test",
    "xn--bcher-kva.test",
    "xn--a.test",
    "b\u{fc}cher.test",
    "fa\u{df}.test",
    "\u{ff11}27.0.0.1",
    "\u{ff45}xample.test",
    "exa\u{ad}mple.test",
    "example\u{3002}test",
    "127.0.0.1",
    "192.0.2.7",
    "127.1",
    "127.0.0.1.",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "2130706433",
    "256.0.0.1",
    "1.2.3.4.5",
    "[::1]",
    "::1",
    "[2001:DB8:0:0::1]",
    "2001:db8::",
    "[::ffff:192.0.2.7]",
    "::ffff:c000:207",
    "[fe80::1%25eth0]",
    "fe80::1%eth0",
    "[::1",
    "[a.test]",
    "[v1.x]",
    "unix",
    "",
];
const PORTS: &[&str] = &[
    "",
    "",
    "",
    ":80",
    ":443",
    ":8080",
    ":",
    ":0",
    ":080",
    ":65535",
    ":65536",
    ":+80",
    ":-1",
    ":http",
    ": 80",
    ":80:80",
    ":\u{ff18}\u{ff10}",
];
const SCHEMES: &[&str] = &[
    "",
    "",
    "",
    "http://",
    "https://",
    "HTTP://",
    "tcp://",
    "tls://",
    "wss://",
    "ftp://",
    "http:",
    "http:/",
    "http:///",
    "//",
    "unix:",
    "javascript:",
];
const LOGINS: &[&str] = &["", "", "", "", "", "ada@", "ada:secret@", "a@b@", "a%40b@", "@"];
const ENDS: &[&str] = &[
    "",
    "",
    "",
    "",
    "/",
    "/x",
    "/x/../y",
    "//",
    "/\u{fc}",
    "?q",
    "?q=a b",
    "#part",
    "/?q#part",
    "\\",
    "\\@b.test",
    "\n",
    "\t",
    " ",
    "\0",
    "/8",
    "/0",
    "/32",
    "/64",
    "/104",
    "/128",
    "/33",
    "/129",
    "/+8",
    "/08",
    "/255.0.0.0",
    ";x",
    ",b.test",
    "%2e",
    "%00",
    "!",
];
const LETTERS: &[&str] = &[
    "a", "B", "z", "0", "1", "9", ".", ".", "-", "_", ":", "/", "@", "[", "]", "%", "?", "#", "\\",
    " ", "\t", "x", "f", "\u{fc}", "\u{2028}", "\u{200d}",
];

/// Generates addresses.
struct AddressTexts<'r>(&'r mut Random);

impl AddressTexts<'_> {
    fn next(&mut self, below: usize) -> usize {
        self.0.below(below)
    }

    fn pick<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.next(texts.len())]
    }

    fn address(&mut self) -> String {
        if self.next(4) == 0 {
            return self.numbers();
        }
        match self.next(12) {
            0 => self.letters(),
            1 => self.letters() + self.pick(PORTS),
            _ => self.pick(HOSTS).to_owned() + self.pick(PORTS),
        }
    }

    fn letters(&mut self) -> String {
        let length = 1 + self.next(12);
        (0..length).map(|_| self.pick(LETTERS)).collect()
    }

    /// Addresses that are valid or nearly are.
    fn numbers(&mut self) -> String {
        let mut text = String::new();
        if self.next(2) == 0 {
            let parts: Vec<String> = (0..4).map(|_| self.next(260).to_string()).collect();
            return parts.join(".");
        }
        let gap = self.next(9);
        for group in 0..8 {
            match group == gap {
                true => text.push_str(if group == 0 { "::" } else { ":" }),
                false => write!(text, "{:x}:", self.next(0x1_0400)).unwrap(),
            }
        }
        let trimmed = if text.ends_with("::") { &*text } else { text.trim_end_matches(':') };
        match self.next(2) {
            0 => format!("[{trimmed}]"),
            _ => trimmed.to_owned(),
        }
    }

    fn text(&mut self) -> String {
        let (scheme, login) = (self.pick(SCHEMES), self.pick(LOGINS));
        let address = self.address();
        match self.next(3) {
            0 => address + self.pick(ENDS),
            1 => format!("{scheme}{address}"),
            _ => format!("{scheme}{login}{address}{}", self.pick(ENDS)),
        }
    }
}

/// Returns the results of all types for a text, and checks that what is printed parses to the same value.
fn readings(text: &str) -> Vec<Value> {
    let place = |host: &Host, port: u16| json!({"host": host.to_string(), "port": port});
    vec![
        reading("HostName", text, HostName::parse, |it| json!({"host": it.as_str()})),
        reading("HostPattern", text, HostPattern::parse, |it| json!({"host": it.to_string()})),
        reading("Host", text, Host::parse, |it| json!({"host": it.to_string()})),
        reading("HostPort", text, HostPort::parse, |it| place(&it.host, it.port)),
        reading(
            "Authority",
            text,
            Authority::parse,
            |it| json!({"scheme": it.scheme.name(), "host": it.host.to_string(), "port": it.port}),
        ),
        reading("WebUrl", text, WebUrl::parse_with_login, |it| {
            let (authority, target) = (it.authority(), it.request_target());
            let (scheme, host) = (authority.scheme.name(), authority.host.to_string());
            json!({"scheme": scheme, "host": host, "port": authority.port, "target": target})
        }),
        reading(
            "EndpointUrl",
            text,
            EndpointUrl::parse,
            |it| json!({"scheme": it.scheme.name(), "host": it.host_pattern(), "port": it.port}),
        ),
        reading(
            "UpstreamAddress",
            text,
            |text| UpstreamAddress::parse(text, AddressProtocol::Http),
            |it| match it.host_port() {
                Some(it) => place(&it.host, it.port),
                None => json!({}),
            },
        ),
        host_header(text),
        cidr(text),
    ]
}

fn reading<T: PartialEq + ToString + std::fmt::Debug>(
    kind: &str,
    text: &str,
    parse: impl Fn(&str) -> Result<T, AddressError>,
    describe: impl Fn(&T) -> Value,
) -> Value {
    match parse(text) {
        Ok(parsed) => {
            assert_eq!(parse(&parsed.to_string()).as_ref(), Ok(&parsed), "{kind} {text:?}");
            read(kind, text, describe(&parsed))
        }
        Err(problem) => refused(kind, text, name_of(&problem)),
    }
}

/// The name of a variant, without its fields.
fn name_of(problem: &AddressError) -> String {
    let text = format!("{problem:?}");
    text.chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

fn host_header(text: &str) -> Value {
    match RequestHost::parse(text) {
        Ok(parsed) => {
            let port = parsed.port.map(|port| format!(":{port}")).unwrap_or_default();
            let again = format!("{}{port}", parsed.host);
            assert_eq!(RequestHost::parse(&again).as_ref(), Ok(&parsed), "{text:?}");
            read("RequestHost", text, json!({"host": &parsed.host, "port": parsed.port}))
        }
        Err(problem) => refused("RequestHost", text, name_of(&problem)),
    }
}

fn cidr(text: &str) -> Value {
    match text.parse::<Cidr>() {
        Ok(parsed) => {
            assert_eq!(parsed.to_string().parse(), Ok(parsed), "{text:?}");
            read("Cidr", text, json!({"network": parsed.network().to_string()}))
        }
        Err(_) => refused("Cidr", text, "NotCidr"),
    }
}

#[test]
fn other_programs_read_no_other_address() {
    compare("address", TEXTS, |random| readings(&AddressTexts(random).text()));
}
