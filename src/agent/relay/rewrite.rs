//! The changes that the relay makes to heads: the host, and where redirects lead.

use crate::http1::{
    FORWARDED_HOST, HTTP2_SETTINGS, HeadWriter, elements, is_proper_upgrade, lines_of,
};

/// What a local service sees as `Host`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// What the visitor sent.
    #[default]
    Preserve,
    /// The address that the tunnel forwards to.
    Rewrite,
    /// A fixed value.
    Value(String),
}

impl HostHeader {
    /// The meaning of the setting `host_header`.
    pub fn of_setting(text: &str) -> Self {
        match text {
            "" | "preserve" => Self::Preserve,
            "rewrite" => Self::Rewrite,
            value => Self::Value(value.to_owned()),
        }
    }
}

/// The head of a request for another host; the visitor's host goes to `X-Forwarded-Host` and, for
/// services that knew older agents, to `X-Original-Host`.
pub(super) fn request(head: &[u8], original: Option<&[u8]>, host: &str) -> Vec<u8> {
    let mut forwarded = false;
    let mut output = Vec::with_capacity(head.len() + 128);
    let mut writer = HeadWriter::resume(&mut output);
    for line in lines_of(head) {
        if line.is("host") {
            writer.field("Host", host);
        } else if !line.is("x-original-host") {
            forwarded |= line.is(FORWARDED_HOST);
            writer.lines(line.0);
        }
    }
    if let Some(original) = original {
        if !forwarded {
            writer.field("X-Forwarded-Host", original);
        }
        writer.field("X-Original-Host", original);
    }
    writer.end();
    output
}

/// The head of a request without what asks the local service for a protocol that it may not be asked for,
/// such as `h2c`: on such a connection, requests would pass no rule and no capture.
pub(super) fn without_improper_upgrades(head: &[u8]) -> Vec<u8> {
    let protocols = lines_of(head).filter(|line| line.is("upgrade"));
    let has_proper = protocols.flat_map(|line| elements(line.value())).any(is_proper_upgrade);
    let mut output = Vec::with_capacity(head.len());
    let mut writer = HeadWriter::resume(&mut output);
    for line in lines_of(head) {
        let stays = |element: &&[u8]| match () {
            () if line.is("upgrade") => is_proper_upgrade(element),
            () if element.eq_ignore_ascii_case(b"upgrade") => has_proper,
            () => !element.eq_ignore_ascii_case(HTTP2_SETTINGS.as_bytes()),
        };
        if line.is("upgrade") || line.is("connection") {
            let left: Vec<&[u8]> = elements(line.value()).filter(stays).collect();
            if !left.is_empty() {
                writer.field(line.name(), left.join(&b", "[..]));
            }
        } else if !line.is(HTTP2_SETTINGS) {
            writer.lines(line.0);
        }
    }
    writer.end();
    output
}

/// The head of an answer whose `Location` at the local host leads to the public one instead; none
/// when there is nothing to change.
pub(super) fn response(head: &[u8], local: &str, public: &[u8], scheme: &str) -> Option<Vec<u8>> {
    let mut changed = false;
    let mut output = Vec::with_capacity(head.len() + 64);
    let mut writer = HeadWriter::resume(&mut output);
    for line in lines_of(head) {
        let location = line.is("location");
        match location.then(|| rest_after_host(line.0, local)).flatten() {
            Some(rest) => {
                let place = [scheme.as_bytes(), b"://", public, rest].concat();
                writer.field("Location", place);
                changed = true;
            }
            None => {
                writer.lines(line.0);
            }
        }
    }
    writer.end();
    changed.then_some(output)
}

/// What follows the host in a `Location` line that leads to `host`.
fn rest_after_host<'a>(line: &'a [u8], host: &str) -> Option<&'a [u8]> {
    let value = line.get(line.iter().position(|byte| *byte == b':')? + 1..)?.trim_ascii();
    let rest = value.strip_prefix(b"http://").or_else(|| value.strip_prefix(b"https://"))?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let (authority, rest) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
    authority.eq_ignore_ascii_case(host.as_bytes()).then_some(rest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn another_host_keeps_the_visitors_aside() {
        let head = b"GET / HTTP/1.1\r\nhost: shop.test\r\nA: 1\r\n\r\n";

        let output = request(head, Some(b"shop.test"), "localhost:80");

        let expected = "GET / HTTP/1.1\r\nHost: localhost:80\r\nA: 1\r\n\
            X-Forwarded-Host: shop.test\r\nX-Original-Host: shop.test\r\n\r\n";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }

    #[test]
    fn no_local_service_is_asked_for_http_2() {
        let rewritten = |lines: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}HTTP2-Settings: AAM\r\n\r\n");
            String::from_utf8(without_improper_upgrades(head.as_bytes())).unwrap()
        };

        for (lines, left) in [
            ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", ""),
            ("Connection: close, upgrade\r\nUpgrade: \tH2C \r\n", "Connection: close\r\n"),
            (
                "Upgrade: h2c\r\nConnection: Upgrade\r\nUPGRADE: x, h2c\r\n",
                "Connection: Upgrade\r\nUPGRADE: x\r\n",
            ),
            (
                "Connection: Upgrade\r\nUpgrade: websocket,h2c\r\n",
                "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            ),
        ] {
            assert_eq!(rewritten(lines), format!("GET / HTTP/1.1\r\nHost: a\r\n{left}\r\n"));
        }
    }

    #[test]
    fn a_redirect_to_the_local_host_leads_to_the_public_one() {
        let output = |location: &str| {
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n");
            response(head.as_bytes(), "localhost:80", b"shop.test", "https")
                .map(|output| String::from_utf8(output).unwrap())
        };

        assert_eq!(
            output("http://LOCALHOST:80/a?b").unwrap(),
            "HTTP/1.1 302 Found\r\nLocation: https://shop.test/a?b\r\n\r\n"
        );
        assert_eq!(output("http://localhost:8080/a"), None);
        assert_eq!(output("/a"), None);
    }
}
