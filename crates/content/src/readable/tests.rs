//! A table of bodies: charset × coding × kind, with everything that surfaces show of them.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;
use crate::coding::UnreadReason;

const MAX: usize = 1 << 20;

/// The expected reading of a body.
#[derive(Debug, PartialEq, Eq)]
struct Reading<'a> {
    kind: BodyKind,
    charset: &'a str,
    /// The text; `None` if the body is not text.
    text: Option<&'a str>,
    is_editable: bool,
}

fn read<'a>(content_type: &str, coding: &str, body: &'a [u8]) -> ReadableBody<'a> {
    let content_encoding = if coding.is_empty() { Vec::new() } else { vec![coding.as_bytes()] };
    let head = BodyHead { content_type, content_encoding, ..BodyHead::default() };
    ReadableBody::read(&head, body, MAX)
}

fn read_cut<'a>(content_type: &str, coding: &str, body: &'a [u8]) -> ReadableBody<'a> {
    let content_encoding = vec![coding.as_bytes()];
    let head = BodyHead { content_type, content_encoding, is_cut: true, opens_websocket: false };
    ReadableBody::read(&head, body, MAX)
}

fn check(what: &str, body: &ReadableBody<'_>, expected: &Reading<'_>) {
    let text = body.text();
    let reading = Reading {
        kind: body.kind(),
        charset: body.charset().name(),
        text: body.is_text().then_some(&*text),
        is_editable: body.is_editable(),
    };
    assert_eq!(&reading, expected, "{what}");
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let level = Compression::best();
    match coding {
        "gzip" | "x-gzip" | "GZip" => {
            let mut gzip = GzEncoder::new(Vec::new(), level);
            gzip.write_all(body).unwrap();
            gzip.finish().unwrap()
        }
        "deflate" => {
            let mut zlib = ZlibEncoder::new(Vec::new(), level);
            zlib.write_all(body).unwrap();
            zlib.finish().unwrap()
        }
        "raw" => {
            let mut raw = DeflateEncoder::new(Vec::new(), level);
            raw.write_all(body).unwrap();
            raw.finish().unwrap()
        }
        "br" => {
            let mut brotli = Vec::new();
            brotli::CompressorWriter::new(&mut brotli, 4096, 9, 22).write_all(body).unwrap();
            brotli
        }
        "zstd" => compress_to_vec(body, CompressionLevel::Fastest),
        "deflate, gzip" => coded("gzip", &coded("deflate", body)),
        "gzip , identity,zstd" => coded("zstd", &coded("gzip", body)),
        _ => body.to_vec(),
    }
}

/// Returns text in a charset of the table.
fn encoded(charset: &str, text: &str) -> Vec<u8> {
    let marked = |charset: &str| {
        let charset = Charset::from_label(charset, b"").unwrap();
        charset.encode(&format!("\u{feff}{text}")).unwrap()
    };
    match charset {
        "utf-8 with a mark" => marked("utf-8"),
        "utf-16 with a mark" => marked("utf-16le"),
        "utf-16be with a mark" => marked("utf-16be"),
        "utf-32 with a mark" => marked("utf-32le"),
        charset => Charset::from_label(charset, b"").unwrap().encode(text).unwrap(),
    }
}

const CODINGS: [&str; 10] = [
    "",
    "identity",
    "gzip",
    "x-gzip",
    "GZip",
    "deflate",
    "br",
    "zstd",
    "deflate, gzip",
    "gzip , identity,zstd",
];

/// Media type, parameter, charset of the bytes, name of the charset found, kind, text.
type Row = (&'static str, &'static str, &'static str, &'static str, BodyKind, &'static str);

const ROWS: [Row; 34] = [
    ("text/plain", "; charset=utf-8", "utf-8", "utf-8", BodyKind::Text, "Größe 5 €"),
    ("text/plain", "", "utf-8", "utf-8", BodyKind::Text, "Größe 東京"),
    ("text/plain", "; charset=windows-1252", "windows-1252", "windows-1252", BodyKind::Text, "5 €"),
    (
        "text/plain",
        "; charset=\"ISO-8859-15\"",
        "iso-8859-15",
        "iso-8859-15",
        BodyKind::Text,
        "5 €",
    ),
    ("text/plain", "; charset=latin-1", "latin-1", "windows-1252", BodyKind::Text, "Zoë"),
    ("text/plain", ";charset=Shift_JIS", "shift_jis", "shift_jis", BodyKind::Text, "東京都"),
    ("text/plain", "; charset=koi8-r", "koi8-r", "koi8-r", BodyKind::Text, "Привет"),
    ("text/plain", "; charset=euc_jp", "euc-jp", "euc-jp", BodyKind::Text, "東京"),
    ("text/plain", "; charset=gb2312", "gbk", "gbk", BodyKind::Text, "茶"),
    ("text/plain", "; charset=big5", "big5", "big5", BodyKind::Text, "茶"),
    ("text/plain", "; charset=euc-kr", "euc-kr", "euc-kr", BodyKind::Text, "한국"),
    (
        "text/plain",
        "; charset=utf-16",
        "utf-16 with a mark",
        "utf-16le",
        BodyKind::Text,
        "Größe 東京",
    ),
    ("text/plain", "; charset=utf-16", "utf-16be", "utf-16be", BodyKind::Text, "Big Endian"),
    ("text/plain", "; charset=utf-16be", "utf-16be", "utf-16be", BodyKind::Text, "東京"),
    ("text/plain", "; charset=UTF-16LE", "utf-16le", "utf-16le", BodyKind::Text, "東京 😀"),
    ("text/plain", "; charset=utf-32", "utf-32 with a mark", "utf-32le", BodyKind::Text, "東京 😀"),
    ("text/plain", "", "utf-16be with a mark", "utf-16be", BodyKind::Text, "東京"),
    ("text/plain", "", "windows-1252", "windows-1252", BodyKind::Text, "Größe"),
    ("text/plain", "; charset=no-such", "utf-8", "utf-8", BodyKind::Text, "Größe"),
    ("text/plain", "; charset=hz-gb-2312", "utf-8", "utf-8", BodyKind::Text, "Größe"),
    ("", "", "utf-8", "utf-8", BodyKind::Json, "{\"a\": [1.10]}"),
    ("application/json", "", "utf-8 with a mark", "utf-8", BodyKind::Json, "{\"a\": 1}"),
    ("application/json", "", "utf-16 with a mark", "utf-16le", BodyKind::Json, "{\"a\": 1}"),
    ("application/json", "", "utf-16be", "utf-16be", BodyKind::Json, "{\"größe\": 1}"),
    ("application/json", "", "utf-32le", "utf-32le", BodyKind::Json, "{\"größe\": 1}"),
    (
        "application/json",
        "; charset=utf-8",
        "utf-16 with a mark",
        "utf-16le",
        BodyKind::Json,
        "[1]",
    ),
    (
        "application/vnd.a+json",
        "; charset=iso-8859-1",
        "latin1",
        "windows-1252",
        BodyKind::Json,
        "[\"Zoë\"]",
    ),
    ("application/x-ndjson", "", "utf-8", "utf-8", BodyKind::JsonLines, "{\"a\":1}\nno\n"),
    (
        "application/xml",
        "",
        "latin1",
        "windows-1252",
        BodyKind::Xml,
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>Zoë</a>",
    ),
    (
        "text/html",
        "",
        "shift_jis",
        "shift_jis",
        BodyKind::Html,
        "<meta charset=shift_jis><p>東京都</p>",
    ),
    (
        "text/html",
        "; charset=shift_jis",
        "shift_jis",
        "shift_jis",
        BodyKind::Html,
        "<meta charset=gbk><p>東京都</p>",
    ),
    ("application/x-www-form-urlencoded", "", "utf-8", "utf-8", BodyKind::Form, "a=1&b=%20"),
    ("text/event-stream", "", "utf-8", "utf-8", BodyKind::EventStream, "data: größe\n\n"),
    ("application/graphql", "", "utf-8", "utf-8", BodyKind::GraphQl, "query { größe }"),
];

#[test]
fn a_body_is_the_same_in_every_coding_and_charset() {
    for (media_type, parameter, charset, found, kind, text) in ROWS {
        let content_type = format!("{media_type}{parameter}");
        let plain = encoded(charset, text);
        for coding in CODINGS {
            let body = coded(coding, &plain);

            let body = read(&content_type, coding, &body);

            let expected = Reading { kind, charset: found, text: Some(text), is_editable: true };
            check(&format!("{content_type} {charset} {coding}"), &body, &expected);
            assert_eq!(body.bytes(), plain, "{content_type} {coding}");
            assert_eq!(body.encode_text(text).unwrap(), plain, "{content_type} {charset}");
            assert_eq!((body.end(), body.unread_coding()), (DecodedEnd::Whole, None));
        }
    }
    assert!(ROWS.len() * CODINGS.len() > 300);
}

#[test]
fn kinds_are_decided_by_type_and_content() {
    for (content_type, body, kind, is_text) in [
        ("text/plain", &b""[..], BodyKind::Empty, false),
        ("", b"plain", BodyKind::Text, true),
        ("text/plain", b"  {\"a\": 1} ", BodyKind::Json, true),
        ("text/plain", b"{a: 1}", BodyKind::Text, true),
        ("application/octet-stream", b"[1, 2]", BodyKind::Json, true),
        ("application/x-www-form-urlencoded", b"{\"a\": 1}", BodyKind::Json, true),
        ("application/json", b"{\"a\":1}\n{\"a\":2}\n", BodyKind::JsonLines, true),
        ("text/plain", b"{\"a\":1}\n\n{\"a\":2}", BodyKind::JsonLines, true),
        ("application/json", b"{broken", BodyKind::Json, true),
        ("application/json-seq", b"\x1e{\"a\":1}\n", BodyKind::JsonLines, true),
        ("application/problem+json", b"{}", BodyKind::Json, true),
        ("", b"<!DOCTYPE html><p>", BodyKind::Html, true),
        ("", b"<?xml version='1.0'?><a/>", BodyKind::Xml, true),
        ("application/soap+xml", b"<a/>", BodyKind::Xml, true),
        ("image/svg+xml", b"<svg/>", BodyKind::Xml, true),
        ("text/css", b"a {}", BodyKind::Text, true),
        ("image/png", b"\x89PNG\r\n\x1a\n\0\0", BodyKind::Image, false),
        ("", b"\xff\xd8\xff\xe0\0\x10JFIF", BodyKind::Image, false),
        ("application/octet-stream", b"RIFF\x01\x02\0\0WEBPVP8 ", BodyKind::Image, false),
        ("image/gif", b"GIF89a", BodyKind::Image, false),
        ("image/png", b"{\"error\": \"no image\"}", BodyKind::Json, true),
        ("image/avif", b"\0\0\0\x20ftypavif", BodyKind::Image, false),
        ("audio/mpeg", b"\xff\xfb\x90\0", BodyKind::Audio, false),
        ("video/mp4", b"\0\0\0\x20ftyp\xff", BodyKind::Video, false),
        ("application/pdf", b"%PDF-1.7\n%\xe2\xe3", BodyKind::Pdf, false),
        ("", b"%PDF-1.7", BodyKind::Pdf, false),
        ("application/x-protobuf", b"\x08\x01", BodyKind::Protobuf, false),
        ("application/grpc+proto", b"\0\0\0\0\x02\x08\x01", BodyKind::Grpc, false),
        ("application/octet-stream", b"\xff\xfe\xfd\0", BodyKind::Binary, false),
        ("text/plain", b"\0\x01\x02\xff", BodyKind::Binary, false),
        ("application/zip", b"PK\x03\x04\xff\0", BodyKind::Binary, false),
        ("", b"\xf6 \x01", BodyKind::Binary, false),
        ("", b"caf\xe9", BodyKind::Text, true),
        ("multipart/form-data; boundary=X", b"--X\r\n\r\n1\r\n--X--", BodyKind::Multipart, false),
        ("multipart/form-data; boundary=X", b"no parts", BodyKind::Text, true),
        ("multipart/mixed; boundary=X", b"--Y\r\n\r\n1\r\n--Y--", BodyKind::Text, true),
    ] {
        let read = read(content_type, "", body);

        let shown = String::from_utf8_lossy(body);
        assert_eq!((read.kind(), read.is_text()), (kind, is_text), "{content_type}: {shown}");
    }
    let head = BodyHead { opens_websocket: true, ..BodyHead::default() };
    assert_eq!(ReadableBody::read(&head, b"", MAX).kind(), BodyKind::WebSocket);
}

#[test]
fn a_coding_that_cannot_be_removed_leaves_the_body() {
    let json = b"{\"size\": \"readable\"}";
    for (coding, name, reason) in [
        ("utf-8", "utf-8", UnreadReason::Unknown),
        ("none", "none", UnreadReason::Unknown),
        ("8bit", "8bit", UnreadReason::Unknown),
        ("gzip", "gzip", UnreadReason::Damaged),
        ("zstd", "zstd", UnreadReason::Damaged),
        ("br", "br", UnreadReason::Damaged),
        ("gzip, utf-8", "utf-8", UnreadReason::Unknown),
        ("gzip,gzip,gzip,gzip,gzip,gzip", "gzip", UnreadReason::TooMany),
    ] {
        let body = read("application/json", coding, json);

        let text = Some("{\"size\": \"readable\"}");
        let expected = Reading { kind: BodyKind::Json, charset: "utf-8", text, is_editable: true };
        check(coding, &body, &expected);
        let unread = body.unread_coding().unwrap();
        assert_eq!((unread.name.as_str(), unread.reason), (name, reason), "{coding}");
        assert!(unread.description().contains(name), "{coding}");
    }
    let inner = coded("gzip", json);
    let body = read("application/json", "gzip, utf-8", &inner);
    assert_eq!(
        (&*body.text(), body.removed_codings()),
        ("{\"size\": \"readable\"}", &["gzip".to_owned()][..])
    );
    let long = "x".repeat(9000);
    assert_eq!(read("", &long, json).unread_coding().unwrap().name.len(), 40);
    for empty in ["gzip", "zstd", "nope"] {
        let body = read("application/json", empty, b"");
        assert_eq!((body.kind(), body.unread_coding()), (BodyKind::Empty, None), "{empty}");
    }
    assert_eq!(read("text/plain", "deflate", &coded("raw", b"raw")).text(), "raw");
}

#[test]
fn a_body_that_is_cut_off_is_read_as_far_as_it_goes() {
    let text = "{\"größe\": \"".to_owned()
        + &(0..3000).map(|number| format!("東{} ", number * number)).collect::<String>();
    for coding in ["identity", "gzip", "deflate", "br"] {
        let body = coded(coding, text.as_bytes());
        let cut = &body[..body.len() - 9];

        let body = read_cut("application/json", coding, cut);

        assert!(text.starts_with(&*body.text()), "{coding}");
        assert!(body.text().len() > 100 && !body.is_editable() && body.is_cut(), "{coding}");
        assert_eq!(body.kind(), BodyKind::Json, "{coding}");
    }
    for (charset, label) in
        [("utf-8", ""), ("shift_jis", "shift_jis"), ("utf-16le", "utf-16"), ("utf-8", "utf-8")]
    {
        let body = encoded(charset, "tea 東京");
        let content_type = format!("text/plain; charset={label}");
        let body = read_cut(&content_type, "", &body[..body.len() - 1]);
        assert_eq!(body.text(), "tea 東", "{charset}");
    }
    assert_eq!(read_cut("", "", b"{\"a\": [1, ").kind(), BodyKind::Json);
    assert_eq!(read_cut("", "", b"{\"a\": what").kind(), BodyKind::Text);
    let whole = b"caf\xc3";
    assert_eq!(read("text/plain", "", whole).text(), "cafÃ");
}

#[test]
fn a_body_is_read_up_to_a_limit() {
    let body = coded("zstd", &coded("gzip", &vec![b' '; 5_000_000]));
    let head = BodyHead { content_encoding: vec![b"gzip, zstd"], ..BodyHead::default() };

    let body = ReadableBody::read(&head, &body, 1000);

    assert_eq!((body.bytes().len(), body.end()), (1000, DecodedEnd::Longer));
    assert!(body.is_cut() && !body.is_editable());
}

#[test]
fn text_that_cannot_be_encoded_again_is_not_editable() {
    let body = read("text/plain; charset=shift_jis", "", b"\x93\x8c\x8b\x9e");
    assert!(body.is_editable());
    let error = body.encode_text("東京 é").unwrap_err();
    assert_eq!((error.charset, error.letter), ("shift_jis", 'é'));
    assert!(error.to_string().contains("shift_jis") && error.to_string().contains('é'));
    // Bytes that are not text would change.
    assert!(!read("text/plain; charset=utf-8", "", b"caf\xe9").is_editable());
    assert!(!read("text/plain; charset=iso-2022-jp", "", b"\x1b$B\x1b(Btea").is_editable());
    assert!(!read("application/octet-stream", "", b"\xff\0").is_editable());
}

#[test]
fn parts_are_read_like_bodies() {
    let body = b"--X\r\nContent-Disposition: form-data; name=a\r\n\r\nGr\xf6\xdfe\r\n\
        --X\r\nContent-Disposition: form-data; name=b; filename=t.json\r\nContent-Type: application/json; charset=utf-16\r\n\r\n\xff\xfe[\x001\0]\0\r\n\
        --X\r\nContent-Disposition: form-data; name=c; filename=t\r\n\r\n\xff\0\r\n\
        --X\r\nContent-Disposition: form-data; name=d\r\nContent-Type: text/plain; charset=gbk\r\n\r\n\xb2\xe8\r\n--X--";
    let body = read("multipart/form-data; boundary=X", "gzip", body);
    let body = ReadableBody { content: DecodedContent { unread: None, ..body.content }, ..body };
    let split = body.parts().unwrap();

    let read: Vec<_> = split.parts.iter().map(ReadableBody::read_part).collect();

    let seen: Vec<_> = read.iter().map(|it| (it.kind(), it.text().into_owned())).collect();
    assert_eq!(seen[0], (BodyKind::Text, "Größe".to_owned()));
    assert_eq!(seen[1], (BodyKind::Json, "[1]".to_owned()));
    assert_eq!(seen[2].0, BodyKind::Binary);
    assert_eq!(seen[3], (BodyKind::Text, "茶".to_owned()));
    let form = [("a", "Größe"), ("d", "茶")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(body.form().unwrap(), form);
}

#[test]
fn forms_have_their_pairs_in_their_charset() {
    for (content_type, body, expected) in [
        ("application/x-www-form-urlencoded; charset=windows-1252", &b"name=Zo%EB"[..], "Zoë"),
        ("application/x-www-form-urlencoded", b"name=Zo%C3%AB", "Zoë"),
        ("application/x-www-form-urlencoded; charset=gbk", b"name=%B2%E8", "茶"),
        ("application/x-www-form-urlencoded; charset=gbk", b"name=\xb2\xe8", "茶"),
        ("application/x-www-form-urlencoded", b"\xef\xbb\xbfname=+%zz", " %zz"),
    ] {
        let form = read(content_type, "", body).form().unwrap();
        assert_eq!(form[0].1, expected, "{content_type}");
    }
    assert_eq!(read("text/plain", "", b"a=b").form(), None);
}

#[test]
fn remarks_say_what_was_done_and_what_is_missing() {
    let json = b"{\"a\": \"tea, tea and more tea, and tea again\"}";
    let gzip = coded("gzip", json);
    let cases: [(&str, &str, &[u8], &[&str]); 7] = [
        ("application/json", "", json, &[]),
        ("application/json; charset=utf-8", "GZIP", &gzip, &["gzip decoded"]),
        ("", "gzip", &gzip[..gzip.len() - 9], &["gzip decoded, its end is missing"]),
        ("", "utf-8", json, &["utf-8 is not a known content coding"]),
        ("text/plain; charset=nope", "", b"a", &["the charset nope is not known"]),
        ("text/plain; charset=koi8-r", "", b"a", &["read as koi8-r"]),
        ("text/plain", "br", b"caf\xe9", &["the body is not br"]),
    ];
    for (content_type, coding, body, expected) in cases {
        assert_eq!(read(content_type, coding, body).notes(), expected, "{content_type} {coding}");
    }
}
