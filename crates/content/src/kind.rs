//! The kind of a body, decided by its type and its content.

use serde::de::IgnoredAny;

use ginnel_http1::is_json_lines;

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// The message has no body.
    Empty,
    /// One JSON value.
    Json,
    /// A JSON value on each line.
    JsonLines,
    /// A form in one line: `application/x-www-form-urlencoded`.
    Form,
    /// A body in parts.
    Multipart,
    /// XML, including SVG, which is never drawn.
    Xml,
    /// HTML.
    Html,
    /// A GraphQL document.
    GraphQl,
    /// A protobuf message.
    Protobuf,
    /// Messages of a gRPC call.
    Grpc,
    /// Server-sent events.
    EventStream,
    /// Messages of a WebSocket.
    WebSocket,
    /// A raster image.
    Image,
    /// Sound.
    Audio,
    /// A film.
    Video,
    /// A PDF document.
    Pdf,
    /// Other text.
    Text,
    /// Bytes that are not text.
    Binary,
}

/// The facts that decide about the kind of a body.
pub(crate) struct KindSource<'a> {
    /// The media type in lower case, without parameters.
    pub media_type: &'a str,
    /// The text; `None` if the content is not text.
    pub text: Option<&'a str>,
    /// If true, the end of the content is missing.
    pub is_cut: bool,
}

/// The first bytes of files that are not text.
const MAGIC: [(&[u8], BodyKind); 5] = [
    (b"\x89PNG\r\n\x1a\n", BodyKind::Image),
    (b"\xff\xd8\xff", BodyKind::Image),
    (b"GIF87a", BodyKind::Image),
    (b"GIF89a", BodyKind::Image),
    (b"%PDF-", BodyKind::Pdf),
];

impl BodyKind {
    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Json => "json",
            Self::JsonLines => "json-lines",
            Self::Form => "form",
            Self::Multipart => "multipart",
            Self::Xml => "xml",
            Self::Html => "html",
            Self::GraphQl => "graphql",
            Self::Protobuf => "protobuf",
            Self::Grpc => "grpc",
            Self::EventStream => "event-stream",
            Self::WebSocket => "websocket",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Pdf => "pdf",
            Self::Text => "text",
            Self::Binary => "binary",
        }
    }

    /// Returns the kind of bytes that are not text, if their type or their first bytes decide.
    pub(crate) fn of_file(media_type: &str, bytes: &[u8]) -> Option<Self> {
        match media_type {
            "image/svg+xml" => None,
            "application/pdf" => Some(Self::Pdf),
            _ if is_grpc(media_type) => Some(Self::Grpc),
            _ if is_protobuf(media_type) => Some(Self::Protobuf),
            _ if media_type.starts_with("image/") => Some(Self::Image),
            _ if media_type.starts_with("audio/") => Some(Self::Audio),
            _ if media_type.starts_with("video/") => Some(Self::Video),
            _ => Self::of_magic(bytes),
        }
    }

    /// Returns true if bytes begin like a file of a known kind.
    pub(crate) fn has_magic(bytes: &[u8]) -> bool {
        Self::of_magic(bytes).is_some()
    }

    fn of_magic(bytes: &[u8]) -> Option<Self> {
        let found = MAGIC.iter().find(|(start, _)| bytes.starts_with(start));
        let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
        found.map(|(_, kind)| *kind).or(is_webp.then_some(Self::Image))
    }

    /// Returns the kind of a body that is not empty, in parts, or a file.
    pub(crate) fn of_text(source: &KindSource<'_>) -> Self {
        let KindSource { media_type, text, is_cut, .. } = *source;
        let Some(text) = text else { return Self::Binary };
        let lead = text.trim_start();
        let is_json = ["/json", "+json"].iter().any(|end| media_type.ends_with(end));
        match media_type {
            "application/x-www-form-urlencoded" if !starts_json(text, is_cut) => Self::Form,
            "text/event-stream" => Self::EventStream,
            "application/graphql" => Self::GraphQl,
            "text/html" => Self::Html,
            _ if is_json_lines(media_type) => Self::JsonLines,
            _ if is_json && are_json_lines(text) => Self::JsonLines,
            _ if is_json => Self::Json,
            _ if media_type.ends_with("/xml") || media_type.ends_with("+xml") => Self::Xml,
            _ if starts_json(text, is_cut) => Self::Json,
            _ if lead.starts_with(['{', '[']) && are_json_lines(text) => Self::JsonLines,
            "" if starts_with_any(lead, &["<!doctype html", "<html"]) => Self::Html,
            "" | "text/plain" if lead.starts_with("<?xml") => Self::Xml,
            _ => Self::Text,
        }
    }
}

fn is_grpc(media_type: &str) -> bool {
    media_type.starts_with("application/grpc")
}

fn is_protobuf(media_type: &str) -> bool {
    let subtype = media_type.strip_prefix("application/").unwrap_or_default();
    matches!(subtype, "protobuf" | "x-protobuf" | "vnd.google.protobuf" | "x-google-protobuf")
        || subtype.ends_with("+protobuf")
        || subtype.ends_with("+proto")
}

fn starts_with_any(text: &str, starts: &[&str]) -> bool {
    starts
        .iter()
        .any(|start| text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)))
}

/// Returns true if a text is an object or an array in JSON. JSON is often sent under other names. Of text that is cut off,
/// the rest must be missing only.
fn starts_json(text: &str, is_cut: bool) -> bool {
    text.trim_start().starts_with(['{', '['])
        && match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => true,
            Err(error) => is_cut && error.is_eof(),
        }
}

/// Returns true if a text has several lines, and each is a value of JSON.
fn are_json_lines(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let is_value = |line: &str| serde_json::from_str::<IgnoredAny>(line).is_ok();
    lines.clone().nth(1).is_some() && lines.all(is_value)
}
