//! Bodies as the page draws them.

use serde::Serialize;

use ginnel_api::Base64;
use ginnel_content::{BodyKind, ReadableBody};

use crate::masked_body::{MaskedBody, MaskedPart};

/// A body as people read it. Its secrets are masked unless they are shown. The page only draws it.
#[derive(Debug, Serialize)]
pub struct BodyView {
    /// The media type in lower case, without parameters.
    pub media_type: String,
    /// The kind, such as `json`.
    pub kind: &'static str,
    /// The text of a body that is text.
    pub text: Option<String>,
    /// The lines of a body in parts, if they are text; empty for an empty body.
    pub raw_text: Option<String>,
    /// The names and values of a form in one line.
    pub pairs: Vec<(String, String)>,
    /// The parts of a body in parts.
    pub parts: Vec<PartView>,
    /// The content, if it is not text and has no parts, and differs from the body that was sent.
    pub decoded: Option<Base64>,
    /// The codings that were removed.
    pub encoding: Option<String>,
    /// A coding that could not be removed, and the reason.
    pub unread: Option<String>,
    /// If true, the body is not shown: it has a coding that cannot be removed, and may have secrets.
    pub hidden: bool,
    /// The number of bytes of the content without its codings.
    pub size: usize,
    /// Remarks about the reading.
    pub notes: Vec<String>,
    /// The content without its codings; empty for text in a charset that is stated.
    #[serde(skip)]
    pub content: Vec<u8>,
    /// If true, changed text can be encoded so that the rest of the body stays as it is.
    pub editable: bool,
}

/// A body in an archive.
#[derive(Debug)]
pub(super) enum ArchiveText<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A part of a body.
#[derive(Debug, Serialize)]
pub struct PartView {
    /// The headers, one on each line.
    pub head: String,
    /// The name of the field.
    pub name: Option<String>,
    /// The name of the file.
    pub filename: Option<String>,
    /// The media type in lower case; empty if the head has none.
    pub media_type: String,
    /// The kind, such as `text`.
    pub kind: &'static str,
    /// The text of content that is text.
    pub text: Option<String>,
    /// The content, if it is not text.
    pub body: Option<Base64>,
    /// The number of bytes of the content.
    pub size: usize,
}

impl BodyView {
    pub(super) fn new(
        body: &ReadableBody<'_>,
        shown: MaskedBody,
        replacement: Option<&[u8]>,
    ) -> Self {
        let is_file = shown.text.is_none() && shown.parts.is_empty() && !shown.is_hidden;
        // Without a name of its charset, text in an archive would become other bytes.
        let is_exact = body.is_charset_stated() || replacement.is_some();
        let content = match replacement {
            _ if shown.text.is_some() && is_exact => Vec::new(),
            Some(masked) => masked.to_vec(),
            None => body.bytes().to_vec(),
        };
        let is_decoded = !body.removed_codings().is_empty();
        let encoding = is_decoded.then(|| body.removed_codings().join(", "));
        Self {
            media_type: body.media_type().to_owned(),
            kind: body.kind().name(),
            raw_text: match body.kind() {
                BodyKind::Empty => Some(String::new()),
                BodyKind::Multipart => String::from_utf8(content.clone()).ok(),
                _ => None,
            },
            text: shown.text,
            pairs: shown.pairs,
            parts: shown.parts.into_iter().map(PartView::new).collect(),
            decoded: (is_file && is_decoded).then(|| Base64(shown.bytes.into())),
            content,
            encoding,
            unread: body.unread_coding().map(|coding| coding.description()),
            hidden: shown.is_hidden,
            size: body.bytes().len(),
            notes: body.notes(),
            editable: body.is_editable(),
        }
    }

    /// The content as archives contain it: text if possible.
    pub(super) fn archive_text(&self) -> ArchiveText<'_> {
        match (&self.text, std::str::from_utf8(&self.content)) {
            (Some(text), _) if self.content.is_empty() => ArchiveText::Text(text),
            (_, Ok(text)) => ArchiveText::Text(text),
            (_, Err(_)) => ArchiveText::Bytes(&self.content),
        }
    }

    /// Everything that is shown, as one text.
    #[cfg(test)]
    pub(super) fn shown_text(&self) -> String {
        let pairs = self.pairs.iter().map(|(name, value)| format!("{name}={value}\n"));
        let parts = self.parts.iter().map(|part| {
            let bytes =
                part.body.as_ref().map(|body| String::from_utf8_lossy(&body.0).into_owned());
            [Some(part.head.clone()), part.text.clone(), bytes]
                .into_iter()
                .flatten()
                .collect::<String>()
        });
        let decoded =
            self.decoded.as_ref().map(|body| String::from_utf8_lossy(&body.0).into_owned());
        let own = [self.text.clone(), decoded].into_iter().flatten();
        own.chain(pairs).chain(parts).collect()
    }
}

impl PartView {
    fn new(part: MaskedPart) -> Self {
        let lines = part.headers.iter().map(|(name, value)| format!("{name}: {value}"));
        Self {
            head: lines.collect::<Vec<_>>().join("\n"),
            name: part.name,
            filename: part.file_name,
            media_type: part.media_type,
            kind: part.kind.name(),
            body: part.text.is_none().then(|| Base64(part.bytes.into())),
            text: part.text,
            size: part.size,
        }
    }
}
