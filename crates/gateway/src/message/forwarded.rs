//! What proxies say about whom they come for: `X-Forwarded-For` and its like. What came is read and
//! removed here, and what goes on is written.
//!
//! Visitors can write such headers as well, so they count only where they come from a proxy that is
//! trusted; everybody else's are removed before anything looks at the request.

use std::net::{IpAddr, SocketAddr};

use http::header::{Entry, FORWARDED, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_base::address::Host;
use ginnel_http1::{
    CDN_LOOP, FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, ForwardedElement, ForwardedNode,
    HeadWriter, elements_of, forwarded_elements, is_forwarded, list_elements, split_outside_quotes,
};

use crate::message::error_response::{self, ErrorResponse};
use crate::trusted_proxies::TrustedProxies;

/// What this service calls itself in `CDN-Loop`.
static SERVICE_NAME: HeaderValue = HeaderValue::from_static("ginnel");

/// How often a request may have come through this service: more is a loop.
const MAX_PASSES: usize = 20;

/// Who asks, in the form that headers have.
#[derive(Clone)]
pub struct VisitorOrigin {
    /// The address of the visitor.
    pub peer: HeaderValue,
    /// The scheme for the upstream. A trusted proxy may report `ws` or `wss` as well.
    pub proto: HeaderValue,
    /// The scheme that the visitor used: `http` or `https`.
    pub scheme: &'static str,
}

impl VisitorOrigin {
    /// Describes a visitor of this address who used `http` or `https`.
    pub fn new(address: IpAddr, scheme: &'static str) -> Self {
        let peer = address.to_canonical().to_string();
        // The text of an address is fit for a header.
        let peer = HeaderValue::try_from(peer).unwrap_or(HeaderValue::from_static("unknown"));
        Self { peer, proto: HeaderValue::from_static(scheme), scheme }
    }

    /// Describes the same address with the scheme that a trusted proxy reports.
    pub fn with_scheme(&self, reported: ReportedScheme) -> Self {
        let ReportedScheme { scheme, word } = reported;
        Self { peer: self.peer.clone(), proto: HeaderValue::from_static(word), scheme }
    }

    /// What an upstream is told; a field without a value has that of `Host`.
    fn forwarded_fields(&self) -> [(HeaderName, Option<&HeaderValue>); 4] {
        [
            (FORWARDED_FOR, Some(&self.peer)),
            (FORWARDED_PROTO, Some(&self.proto)),
            (FORWARDED_HOST, None),
            (CDN_LOOP, Some(&SERVICE_NAME)),
        ]
    }

    /// Tells an upstream who asks, behind what proxies before have said; the first of them knows best for
    /// which host. The scheme has one value, because many upstreams read one word.
    ///
    /// # Errors
    /// When the request goes round in a circle.
    pub fn add_to(&self, headers: &mut HeaderMap) -> Result<(), ErrorResponse> {
        let names = elements_of(headers, CDN_LOOP);
        if names.filter(|name| *name == SERVICE_NAME.as_bytes()).count() >= MAX_PASSES {
            return Err(error_response::LOOP);
        }
        for (name, value) in self.forwarded_fields() {
            match value {
                Some(value) if name == FORWARDED_PROTO => {
                    headers.insert(name, value.clone());
                }
                Some(value) => append_value(headers, name, value),
                None => {
                    if let Some(host) = headers.get(HOST).cloned() {
                        headers.entry(name).or_insert(host);
                    }
                }
            }
        }
        // Only a trusted proxy has sent one, and a list without its last proxy misleads.
        if headers.contains_key(FORWARDED)
            && let Some(element) = self.forwarded_element()
        {
            append_value(headers, FORWARDED, &element);
        }
        Ok(())
    }

    /// The peer as an element of `Forwarded`.
    fn forwarded_element(&self) -> Option<HeaderValue> {
        let address = self.peer.to_str().ok()?.parse().ok()?;
        let client = Some(ForwardedNode::from_address(address));
        let element = ForwardedElement { client, ..ForwardedElement::default() };
        HeaderValue::try_from(element.to_string()).ok()
    }

    /// Writes the same for a request in which no proxy says anything.
    pub fn write_fields(&self, host: &[u8], head: &mut HeadWriter<'_>) {
        for (name, value) in self.forwarded_fields() {
            head.field(name, value.map_or(host, HeaderValue::as_bytes));
        }
    }
}

/// Adds to a list that may be there already. The empty elements of that do not go on: an upstream may count them.
fn append_value(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(value.clone());
        }
        Entry::Occupied(mut entry) => {
            let mut all: Vec<&[u8]> = Vec::new();
            for line in entry.iter().map(HeaderValue::as_bytes) {
                // The quoted strings of `Forwarded` may contain commas.
                match split_outside_quotes(line, b',') {
                    Some(parts) => all.extend(parts.into_iter().filter(|it| !it.is_empty())),
                    None => all.extend(list_elements(line)),
                }
            }
            all.push(value.as_bytes());
            if let Ok(list) = HeaderValue::from_bytes(&all.join(&b", "[..])) {
                entry.insert(list);
            }
        }
    }
}

/// Removes what a visitor has no business to say; of what a trusted proxy says, only the spellings that
/// no proxy writes, and a `Forwarded` with other addresses than `X-Forwarded-For`: an upstream may take them for more
/// of the header, and nothing here has read them.
pub fn remove_untrusted(headers: &mut HeaderMap, is_proxy: bool) {
    let is_removed = |name: &&HeaderName| {
        let name = name.as_str().as_bytes();
        let is_usual = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        (!is_proxy || !is_usual) && is_forwarded(name)
    };
    let names: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    if is_proxy && headers.contains_key(FORWARDED) && !has_equal_lists(headers) {
        headers.remove(FORWARDED);
    }
}

/// Returns true if `Forwarded` has the same addresses as `X-Forwarded-For`. Rules read only `X-Forwarded-For`, so an
/// upstream that prefers another `Forwarded` would read another visitor.
fn has_equal_lists(headers: &HeaderMap) -> bool {
    let Some(elements) = forwarded_elements(headers) else { return false };
    let nodes = elements.iter().map(|element| element.client.as_ref()?.address());
    let entries =
        elements_of(headers, FORWARDED_FOR).map(|entry| parse_address(entry).map(|it| it.ip()));
    let canonical = |address: Option<IpAddr>| address.map(|address| address.to_canonical());
    let are_known = nodes.clone().all(|node| node.is_some());
    are_known && nodes.map(canonical).eq(entries.map(canonical))
}

/// A visitor as trusted proxies describe it.
#[derive(Debug, PartialEq, Eq)]
pub struct ForwardedVisitor {
    /// The address of the visitor.
    pub address: SocketAddr,
    /// The scheme, if a proxy reports a known one.
    pub scheme: Option<ReportedScheme>,
}

/// A scheme in `X-Forwarded-Proto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedScheme {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The word for it: `http`, `https`, `ws` or `wss`.
    pub word: &'static str,
}

impl ForwardedVisitor {
    /// Reads the visitor of a request that has come from `peer`: the last address in `X-Forwarded-For` that does
    /// not belong to a trusted proxy. Addresses before a word that is not an address are not believed.
    ///
    /// The scheme is the entry of `X-Forwarded-Proto` at the position of that visitor if both lists have
    /// the same length, otherwise the last one.
    ///
    /// `Forwarded` does not count: proxies that do not know it pass on the one that their visitors write.
    pub fn from_headers(headers: &HeaderMap, peer: SocketAddr, trusted: &TrustedProxies) -> Self {
        if !trusted.contains(peer.ip()) {
            return Self { address: peer, scheme: None };
        }
        let entries: Vec<&[u8]> = elements_of(headers, FORWARDED_FOR).collect();
        let (mut visitor, mut position) = (peer, None);
        for (at, entry) in entries.iter().enumerate().rev() {
            if !trusted.contains(visitor.ip()) {
                break;
            }
            match parse_address(entry) {
                Some(address) => (visitor, position) = (address, Some(at)),
                None => break,
            }
        }
        let schemes: Vec<&[u8]> = elements_of(headers, FORWARDED_PROTO).collect();
        let position = position.filter(|_| schemes.len() == entries.len());
        let chosen = position.map_or(schemes.last(), |at| schemes.get(at));
        let scheme = chosen.and_then(|word| ReportedScheme::from_word(word));
        Self { address: visitor, scheme }
    }
}

impl ReportedScheme {
    /// The scheme of a word, in any case.
    fn from_word(word: &[u8]) -> Option<Self> {
        const KNOWN: [ReportedScheme; 4] = [
            ReportedScheme { scheme: "http", word: "http" },
            ReportedScheme { scheme: "https", word: "https" },
            ReportedScheme { scheme: "http", word: "ws" },
            ReportedScheme { scheme: "https", word: "wss" },
        ];
        KNOWN.into_iter().find(|known| word.eq_ignore_ascii_case(known.word.as_bytes()))
    }
}

/// An address as proxies write it, with a port or, as usual, without. One with a zone is an address of another machine.
fn parse_address(entry: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(entry).ok().filter(|text| !text.contains('%'))?;
    let address = Host::parse(text).ok().and_then(|host| host.ip());
    address.map(|address| SocketAddr::new(address, 0)).or_else(|| text.parse().ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn origin() -> VisitorOrigin {
        VisitorOrigin::new("192.0.2.7".parse().unwrap(), "https")
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        fields.collect()
    }

    #[test]
    fn who_forwarded_before_stays_in_the_list() {
        let mut headers = headers(&[
            ("host", "a.test"),
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-for", "198.51.100.2"),
            ("x-forwarded-host", "b.test"),
            ("x-forwarded-proto", "http, https"),
            ("x-forwarded-proto", "ftp"),
        ]);

        origin().add_to(&mut headers).unwrap();

        assert_eq!(headers["x-forwarded-for"], "198.51.100.1, 198.51.100.2, 192.0.2.7");
        let schemes: Vec<_> = headers.get_all("x-forwarded-proto").iter().collect();
        assert_eq!(schemes, ["https"]);
        assert_eq!(headers["x-forwarded-host"], "b.test");
    }

    #[test]
    fn a_circle_is_seen() {
        let passed = |times: usize| {
            let list = vec!["ginnel"; times].join(",");
            origin().add_to(&mut headers(&[("host", "a"), ("cdn-loop", &list)]))
        };

        assert_eq!(passed(MAX_PASSES - 1), Ok(()));
        assert_eq!(passed(MAX_PASSES), Err(error_response::LOOP));
    }

    #[test]
    fn both_ways_of_a_request_say_the_same() {
        let (mut added, mut written) = (headers(&[("host", "a.test:80")]), Vec::new());

        origin().add_to(&mut added).unwrap();
        origin().write_fields(b"a.test:80", &mut HeadWriter::resume(&mut written));

        let lines = String::from_utf8(written).unwrap();
        let fields = lines.lines().map(|line| line.split_once(": ").unwrap());
        let written: HeaderMap = fields
            .chain([("host", "a.test:80")])
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        assert_eq!(written, added);
    }

    #[test]
    fn all_that_visitors_say_for_proxies_is_removed() {
        let mut headers = HeaderMap::new();
        for name in ["x-forwarded-for", "x_forwarded_for", "forwarded", "x-mine", "x-forwarded-for"]
        {
            headers.append(name, HeaderValue::from_static("for=unknown"));
        }

        let mut of_proxy = headers.clone();
        remove_untrusted(&mut headers, false);
        remove_untrusted(&mut of_proxy, true);

        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-mine"]);
        let mut kept: Vec<_> = of_proxy.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["x-forwarded-for", "x-mine"]);
    }

    /// The client behind a peer, among `10.0.0.0/8` as trusted proxies.
    fn client_of(peer: &str, lines: &[&str]) -> String {
        let trusted = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::/32"]).unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::try_from(*line).unwrap());
        }
        let visitor = ForwardedVisitor::from_headers(&headers, peer.parse().unwrap(), &trusted);
        visitor.address.to_string()
    }

    /// The word for the scheme that proxies report of a visitor, which may be none.
    fn scheme_of(addresses: &[&str], schemes: &[&str]) -> &'static str {
        let trusted = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
        let mut headers = HeaderMap::new();
        for (name, lines) in [(FORWARDED_FOR, addresses), (FORWARDED_PROTO, schemes)] {
            for line in lines {
                headers.append(name.clone(), HeaderValue::try_from(*line).unwrap());
            }
        }
        let visitor =
            ForwardedVisitor::from_headers(&headers, "10.0.0.1:5".parse().unwrap(), &trusted);
        visitor.scheme.map_or("", |scheme| scheme.word)
    }

    #[test]
    fn the_scheme_is_the_one_of_the_visitor() {
        for (addresses, schemes, expected) in [
            (&["192.0.2.1"][..], &["https"][..], "https"),
            (&["192.0.2.1"], &["HTTPS"], "https"),
            (&["192.0.2.1"], &["wss"], "wss"),
            (&["192.0.2.1"], &[], ""),
            (&["192.0.2.1"], &["gopher"], ""),
            // The lists have equal lengths: the visitor's entry.
            (&["192.0.2.1, 10.0.0.9"], &["https, http"], "https"),
            (&["192.0.2.1", "10.0.0.9"], &["https", "http"], "https"),
            (&["198.51.100.1, 192.0.2.1, 10.0.0.9"], &["http,https,http"], "https"),
            (&["198.51.100.1, 192.0.2.1"], &["https, http"], "http"),
            // They have not: the last one.
            (&["192.0.2.1, 10.0.0.9"], &["http", "https"], "http"),
            (&["192.0.2.1, 10.0.0.9, 10.0.0.8"], &["http, https"], "https"),
            (&["192.0.2.1, 10.0.0.9"], &["https"], "https"),
            (&["192.0.2.1"], &["http, https"], "https"),
            (&[], &["http, https"], "https"),
            // The proxy itself is the visitor.
            (&["192.0.2.1, unknown"], &["http, https"], "https"),
        ] {
            assert_eq!(scheme_of(addresses, schemes), expected, "{addresses:?} {schemes:?}");
        }
    }

    #[test]
    fn the_client_is_the_last_who_is_no_trusted_proxy() {
        let proxy = "10.0.0.1:5000";
        assert_eq!(client_of(proxy, &["192.0.2.1"]), "192.0.2.1:0");
        assert_eq!(client_of(proxy, &["203.0.113.9, 192.0.2.1,10.9.9.9"]), "192.0.2.1:0");
        assert_eq!(client_of(proxy, &["203.0.113.9", "192.0.2.1 , 10.9.9.9"]), "192.0.2.1:0");
        assert_eq!(client_of(proxy, &["192.0.2.1:4000"]), "192.0.2.1:4000");
        assert_eq!(client_of(proxy, &["[2001:db9::1]:80"]), "[2001:db9::1]:80");
        assert_eq!(client_of(proxy, &["[2001:db9::1]"]), "[2001:db9::1]:0");
        assert_eq!(client_of(proxy, &["10.0.0.7, 2001:db8::1"]), "10.0.0.7:0");
        assert_eq!(client_of(proxy, &["192.0.2.1, , ,10.9.9.9,"]), "192.0.2.1:0");
        assert_eq!(client_of(proxy, &[", ,", ""]), proxy);
    }

    #[test]
    fn empty_elements_do_not_go_on() {
        for (lines, list) in [
            (&[", ,"][..], "192.0.2.7"),
            (&["", "198.51.100.1,, ", ","], "198.51.100.1, 192.0.2.7"),
            (&["198.51.100.1, \"x"], "198.51.100.1, \"x, 192.0.2.7"),
        ] {
            let mut headers = headers(&[("host", "a.test")]);
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
            }

            origin().add_to(&mut headers).unwrap();

            assert_eq!(headers[FORWARDED_FOR], list, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_never_names_the_visitor() {
        let trusted = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
        let peer: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let forwarded = ("forwarded", "for=198.51.100.7;proto=https");
        let list = ("x-forwarded-for", "192.0.2.1");
        for (fields, visitor, word) in [
            (&[forwarded][..], "10.0.0.1:5", ""),
            (&[forwarded, list], "192.0.2.1:0", ""),
            (&[forwarded, ("x-forwarded-proto", "http")], "10.0.0.1:5", "http"),
            (&[forwarded, ("x-real-ip", "192.0.2.1")], "10.0.0.1:5", ""),
        ] {
            let read = ForwardedVisitor::from_headers(&headers(fields), peer, &trusted);

            assert_eq!(read.address.to_string(), visitor, "{fields:?}");
            assert_eq!(read.scheme.map_or("", |scheme| scheme.word), word, "{fields:?}");
        }
    }

    #[test]
    fn an_untrusted_peer_reports_nothing() {
        let trusted = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
        let peer: SocketAddr = "192.0.2.8:5".parse().unwrap();
        let fields = headers(&[("x-forwarded-for", "10.0.0.2"), ("x-forwarded-proto", "https")]);

        let read = ForwardedVisitor::from_headers(&fields, peer, &trusted);

        assert_eq!(read, ForwardedVisitor { address: peer, scheme: None });
    }

    #[test]
    fn upstreams_get_only_a_forwarded_that_equals_the_list() {
        for (field, list, is_kept) in [
            ("for=198.51.100.1", "198.51.100.1", true),
            ("for=\"198.51.100.1:80\";proto=https", "198.51.100.1", true),
            ("for=\"[2001:db8::1]\", for=10.0.0.9", "2001:DB8::1,10.0.0.9:4000", true),
            ("for=\"[::ffff:198.51.100.1]\"", "198.51.100.1", true),
            ("for=198.51.100.7", "198.51.100.1", false),
            ("for=198.51.100.7, for=198.51.100.1", "198.51.100.1", false),
            ("for=198.51.100.1", "198.51.100.7, 198.51.100.1", false),
            ("for=198.51.100.1, for=198.51.100.7", "198.51.100.7, 198.51.100.1", false),
            ("for=unknown", "unknown", false),
            ("for=198.51.100.1, by=10.0.0.2", "198.51.100.1, unknown", false),
            ("for=198.51.100.1", "", false),
            ("for=198.51.100.1,\"", "198.51.100.1", false),
        ] {
            let mut headers = headers(&[("host", "a.test"), ("forwarded", field)]);
            if !list.is_empty() {
                headers.insert(FORWARDED_FOR, HeaderValue::from_static(list));
            }
            remove_untrusted(&mut headers, true);

            origin().add_to(&mut headers).unwrap();

            let sent = headers.get(FORWARDED).map(|list| list.to_str().unwrap().to_owned());
            assert_eq!(sent, is_kept.then(|| format!("{field}, for=192.0.2.7")), "{field} {list}");
        }
        let origin = VisitorOrigin::new("2001:db8::1".parse().unwrap(), "https");
        assert_eq!(origin.forwarded_element().unwrap(), "for=\"[2001:db8::1]\"");
    }

    #[test]
    fn nobody_else_is_believed() {
        assert_eq!(client_of("192.0.2.8:5", &["198.51.100.1"]), "192.0.2.8:5");
        assert_eq!(client_of("10.0.0.1:5", &[]), "10.0.0.1:5");
        assert_eq!(client_of("10.0.0.1:5", &["198.51.100.1, unknown"]), "10.0.0.1:5");
        assert_eq!(client_of("10.0.0.1:5", &["198.51.100.1, x, 10.0.0.2"]), "10.0.0.2:0");
    }
}
