//! Requests that the agent sends by itself or shows in another form, framed from their bodies.
//!
//! A captured request keeps its head as it came, or as an archive has it. Such a head may lack a length, name
//! a wrong one, or describe a connection that no longer exists. This module is the only place that writes the
//! framing: of replays, edited requests, held requests and composed ones, and of copies in other languages.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

use ginnel_http1::{
    CHUNKED, HeadWriter, is_hop_by_hop, is_proper_upgrade, list_elements, may_be_named,
    write_chunk, write_last_chunk,
};

/// Methods whose requests have no length if their body is empty (RFC 9110, section 8.6).
const METHODS_WITHOUT_BODY: [&[u8]; 4] = [b"GET", b"HEAD", b"OPTIONS", b"DELETE"];

/// The connection on which a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestConnection {
    /// A new connection: fields about the connection of the original are left out.
    New,
    /// A new connection that asks for the same change of protocol as the original.
    Upgrading,
    /// The connection on which the request came.
    Same,
}

/// The name and the value of a field that is sent.
pub type FramedField<'r> = (&'r str, Cow<'r, [u8]>);

/// A request before it is framed.
#[derive(Debug, Clone)]
pub struct OutgoingRequest {
    /// Method, target and version.
    pub start_line: [Vec<u8>; 3],
    /// The fields of the head. Those about framing are ignored.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body, without chunks.
    pub body: Vec<u8>,
    /// The fields behind the body.
    pub trailers: HeaderMap,
}

impl OutgoingRequest {
    /// Returns true if the request names a host.
    pub fn names_host(&self) -> bool {
        self.headers.iter().any(|(name, _)| is_host(name))
    }

    /// Makes this the only host that the request names.
    pub fn replace_host(&mut self, host: &str) {
        let at = self.headers.iter().position(|(name, _)| is_host(name)).unwrap_or_default();
        self.headers.retain(|(name, _)| !is_host(name));
        self.headers.insert(at, ("Host".to_owned(), host.as_bytes().to_vec()));
    }

    /// Writes the head: what frames the body follows from the body.
    pub fn write_head(&self, connection: RequestConnection) -> Vec<u8> {
        let mut head = Vec::new();
        let mut writer = HeadWriter::begin_line(&self.start_line.join(&b' '), &mut head);
        for (name, value) in self.framed_fields(connection) {
            writer.field(name, value);
        }
        writer.end();
        head
    }

    /// Returns the fields that are sent, in their order, with those that frame the body.
    pub fn framed_fields(&self, connection: RequestConnection) -> Vec<FramedField<'_>> {
        let kept = ConnectionFields::from_request(self, connection);
        let mut length = Some(self.body.len()).filter(|_| self.trailers.is_empty());
        let mut fields = Vec::with_capacity(self.headers.len() + 2);
        for (name, value) in &self.headers {
            if name.eq_ignore_ascii_case("content-length") {
                // The length keeps its place, so that a request with a right one is sent as it came.
                fields.extend(length.take().map(|length| length_field(name, length)));
            } else if !is_framing(name) && kept.keeps_field(name, value) {
                fields.push((name.as_str(), Cow::Borrowed(value.as_slice())));
            }
        }
        let [method, ..] = &self.start_line;
        if !self.trailers.is_empty() {
            let names: Vec<_> = self.trailers.keys().map(HeaderName::as_str).collect();
            fields.push(("Trailer", names.join(", ").into_bytes().into()));
            fields.push((CHUNKED.0, CHUNKED.1.as_bytes().into()));
        } else if let Some(length) = length
            && (length > 0 || !METHODS_WITHOUT_BODY.contains(&method.as_slice()))
        {
            fields.push(length_field("Content-Length", length));
        }
        fields
    }

    /// Writes the request.
    pub fn to_bytes(&self, connection: RequestConnection) -> Vec<u8> {
        let mut bytes = self.write_head(connection);
        if self.trailers.is_empty() {
            bytes.extend_from_slice(&self.body);
        } else {
            write_chunk(&self.body, &mut bytes);
            write_last_chunk(self.trailers.iter(), &mut bytes);
        }
        bytes
    }
}

fn length_field(name: &str, length: usize) -> FramedField<'_> {
    (name, length.to_string().into_bytes().into())
}

/// The fields that go along with a request to its new connection.
struct ConnectionFields<'r> {
    connection: RequestConnection,
    /// The options of `Connection`.
    named: Vec<&'r [u8]>,
}

impl<'r> ConnectionFields<'r> {
    fn from_request(request: &'r OutgoingRequest, connection: RequestConnection) -> Self {
        let lists = request.headers.iter().filter(|(name, _)| is_connection(name));
        let named = lists.flat_map(|(_, value)| list_elements(value)).collect();
        Self { connection, named }
    }

    fn keeps_field(&self, name: &str, value: &[u8]) -> bool {
        let upgrades = || list_elements(value).any(is_proper_upgrade);
        match self.connection {
            RequestConnection::Same => true,
            RequestConnection::Upgrading if name.eq_ignore_ascii_case("upgrade") => upgrades(),
            RequestConnection::Upgrading if is_connection(name) => {
                list_elements(value).any(|option| option.eq_ignore_ascii_case(b"upgrade"))
            }
            // gRPC needs it.
            _ if name.eq_ignore_ascii_case("te") => {
                value.trim_ascii().eq_ignore_ascii_case(b"trailers")
            }
            // The body follows at once, and no interim response is waited for.
            _ if name.eq_ignore_ascii_case("expect") => false,
            _ => !is_hop_by_hop(name) && !self.names_field(name),
        }
    }

    /// Returns true if `Connection` names a field that may be left out for it.
    fn names_field(&self, name: &str) -> bool {
        let is_it = |option: &&[u8]| option.eq_ignore_ascii_case(name.as_bytes());
        may_be_named(name.as_bytes()) && self.named.iter().any(is_it)
    }
}

fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("host")
}

fn is_connection(name: &str) -> bool {
    name.eq_ignore_ascii_case("connection")
}

/// Returns true if a field describes the framing of the body or concerns one connection. `TE` does not count:
/// gRPC needs it.
pub fn is_made_anew(name: &str) -> bool {
    is_framing(name) || is_hop_by_hop(name) && !name.eq_ignore_ascii_case("te")
}

/// Returns true if a field describes the framing of the body.
pub(crate) fn is_framing(name: &str) -> bool {
    ["content-length", "trailer", CHUNKED.0].iter().any(|known| name.eq_ignore_ascii_case(known))
}
