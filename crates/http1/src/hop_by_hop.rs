//! What concerns one connection alone, and goes no further (RFC 9110, section 7.6.1).

use http::header::{CONNECTION, CONTENT_LENGTH, Entry, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::forwarded::{CDN_LOOP, is_forwarded};
use super::identity::is_identity;
use super::lists::list_elements;

/// A field of upgrades to HTTP/2 (RFC 7540, section 3.2.1), which ginnel never makes.
pub const HTTP2_SETTINGS: &str = "http2-settings";

/// The fields that are not forwarded, in addition to those that `Connection` names.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    HTTP2_SETTINGS,
];

/// Whether a field concerns one connection alone.
pub fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a field is taken off a message because `Connection` names it; what frames or routes the
/// message stays, and so does what proxies say of it and of who has sent it.
pub fn may_be_named(name: &[u8]) -> bool {
    let ends_to_end = [CONTENT_LENGTH, HOST, CDN_LOOP];
    let is = |known: &HeaderName| name.eq_ignore_ascii_case(known.as_str().as_bytes());
    !ends_to_end.iter().any(is) && !is_forwarded(name) && !is_identity(name)
}

/// Removes what concerns one connection alone: the fields that `Connection` names, and those that it
/// need not name.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if let Entry::Occupied(entry) = headers.entry(CONNECTION) {
        let (_, values) = entry.remove_entry_mult();
        let values: Vec<HeaderValue> = values.collect();
        let named = values.iter().flat_map(|value| list_elements(value.as_bytes()));
        for name in named.filter(|name| may_be_named(name)) {
            if let Ok(name) = HeaderName::from_bytes(name) {
                headers.remove(name);
            }
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Removes the fields that `Connection` names, and keeps what it says of the connection itself: fields of
/// the same names that are added later are those of whoever adds them.
pub fn strip_named(headers: &mut HeaderMap) {
    let values: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    let is_option = |name: &[u8]| {
        str::from_utf8(name).is_ok_and(|it| it.eq_ignore_ascii_case("close") || is_hop_by_hop(it))
    };
    let names = || values.iter().flat_map(|value| list_elements(value.as_bytes()));
    if names().all(is_option) {
        return;
    }
    headers.remove(CONNECTION);
    for name in names() {
        if is_option(name) {
            if let Ok(option) = HeaderValue::from_bytes(name) {
                headers.append(CONNECTION, option);
            }
        } else if may_be_named(name)
            && let Ok(name) = HeaderName::from_bytes(name)
        {
            headers.remove(name);
        }
    }
}

/// Whether a field says where a message ends or whether its connection does: nobody but the writer of a
/// message may say so.
pub fn is_framing(name: &HeaderName) -> bool {
    [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name)
}

/// Whether a field may stand behind a body: it says nothing about the message that must be known before
/// (RFC 9110, section 6.5.1).
pub fn may_trail(name: &HeaderName) -> bool {
    use http::header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, MAX_FORWARDS,
        SET_COOKIE, TRAILER,
    };
    let needed_before = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TRAILER,
    ];
    !needed_before.contains(name)
        && !is_hop_by_hop(name.as_str())
        && !is_identity(name.as_str().as_bytes())
}

/// What `Connection` says of the connection itself.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOptions {
    pub close: bool,
    pub keep_alive: bool,
    pub upgrade: bool,
}

impl ConnectionOptions {
    /// What a head says with all of its fields.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut options = Self::default();
        headers.get_all(CONNECTION).iter().for_each(|value| options.read_value(value.as_bytes()));
        options
    }

    /// Reads the value of one field.
    pub fn read_value(&mut self, value: &[u8]) {
        for option in list_elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// Whether the connection may carry another message (RFC 9112, section 9.3).
    pub fn is_persistent(self, is_http_1_1: bool) -> bool {
        !self.close && (is_http_1_1 || self.keep_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_lasts_as_its_version_and_its_head_say() {
        for (values, http_1_0, http_1_1) in [
            (&[][..], false, true),
            (&["close"], false, false),
            (&["Keep-Alive"], true, true),
            (&["x, CLOSE ,y", "keep-alive"], false, false),
            (&["keep-alive", "close"], false, false),
            (&["closed", "keep-alive-x"], false, true),
        ] {
            let headers = values.iter().map(|value| (CONNECTION, HeaderValue::from_static(value)));
            let options = ConnectionOptions::from_headers(&headers.collect());
            let persists = [false, true].map(|is_http_1_1| options.is_persistent(is_http_1_1));
            assert_eq!(persists, [http_1_0, http_1_1], "{values:?}");
        }
    }

    #[test]
    fn an_upgrade_is_one_of_the_options() {
        let mut options = ConnectionOptions::default();
        options.read_value(b"keep-alive, Upgrade");

        let upgrade = ConnectionOptions { close: false, keep_alive: true, upgrade: true };
        assert_eq!(options, upgrade);
    }

    /// What is left of some fields.
    fn left(fields: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers: HeaderMap = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        strip_hop_by_hop(&mut headers);
        let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_concerns_one_connection_is_removed_named_or_not() {
        let fields = HOP_BY_HOP.map(|name| (name, "x"));
        assert_eq!(left(&fields), [""; 0]);
        let named =
            [("connection", "x-one, ,X-Two"), ("connection", "x-three, no name"), ("x-one", "")];
        let more = [("x-two", ""), ("x-three", ""), ("x-four", ""), ("trailer", "x-sum")];
        assert_eq!(left(&[&named[..], &more].concat()), ["trailer", "x-four"]);
    }

    #[test]
    fn what_is_named_is_removed_once() {
        let fields = [("connection", "X-User, upgrade, host"), ("x-user", "eve"), ("host", "a")];
        let fields = fields
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers: HeaderMap = fields.into_iter().collect();

        strip_named(&mut headers);

        assert!(!headers.contains_key("x-user"));
        assert_eq!(headers[CONNECTION], "upgrade");
        headers.insert("x-user", HeaderValue::from_static("ada"));
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers["x-user"], "ada");
        assert_eq!(headers[HOST], "a");
    }

    #[test]
    fn what_frames_and_routes_a_message_cannot_be_named_away() {
        let names = ["content-length", "host", "cdn-loop", "x-forwarded-for", "forwarded"];
        let mut fields = names.map(|name| (name, "1")).to_vec();
        fields.push(("connection", "Content-Length, host, CDN-Loop, x-forwarded-for, Forwarded"));

        let mut expected = names.to_vec();
        expected.sort_unstable();
        assert_eq!(left(&fields), expected);
    }

    #[test]
    fn names_are_known_in_any_case() {
        assert!(is_hop_by_hop("TE") && is_hop_by_hop("Proxy-connection"));
        assert!(!is_hop_by_hop("trailer") && !is_hop_by_hop("t"));
        assert!(may_be_named(b"X-Mine") && may_be_named(b"te"));
        assert!(!may_be_named(b"HOST") && !may_be_named(b"x_forwarded_for"));
    }

    #[test]
    fn what_must_be_known_before_the_body_does_not_come_behind_it() {
        let may_trail = |name| may_trail(&HeaderName::from_static(name));
        assert!(may_trail("x-sum") && may_trail("grpc-status") && may_trail("etag"));
        for name in ["host", "content-length", "transfer-encoding", "te", "trailer", "upgrade"] {
            assert!(!may_trail(name), "{name}");
        }
    }
}
