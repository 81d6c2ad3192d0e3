//! Files as people and `protoc` write them, and messages read by them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{BytesDisplay, ProtoFiles};
use crate::capture::StreamSide;

const SHOP: &str = include_str!("../../../../tests/data/proto/shop.proto");
const MONEY: &str = include_str!("../../../../tests/data/proto/common/money.proto");
const SET: &[u8] = include_bytes!("../../../../tests/data/proto/shop.binpb");
const ORDER: &[u8] = include_bytes!("../../../../tests/data/proto/order.bin");
const ORDER_JSON: &str = include_str!("../../../../tests/data/proto/order.json");
const TAKE: &str = "/shop.v1.Shop/Take";

fn sources<const N: usize>(files: [(&str, &str); N]) -> BTreeMap<String, String> {
    files.into_iter().map(|(name, source)| (name.to_owned(), source.to_owned())).collect()
}

fn shop() -> ProtoFiles {
    let files = ProtoFiles::default();
    files.add(&sources([("shop.proto", SHOP), ("common/money.proto", MONEY)]), None).unwrap();
    files
}

/// Files with a method `/Test/Call` that takes the message `M` of this source.
fn calling(source: &str) -> ProtoFiles {
    let source = format!("{source} service Test {{ rpc Call(M) returns (M); }}");
    let files = ProtoFiles::default();
    files.add(&sources([("test.proto", &source)]), None).unwrap();
    files
}

fn read(files: &ProtoFiles, target: &str, data: &[u8]) -> Option<Value> {
    files
        .decode_message(target, StreamSide::Client, data, BytesDisplay::Shown)
        .map(|message| message.value)
}

/// What is wrong with a file.
fn problem(source: &str) -> String {
    ProtoFiles::default().add(&sources([("a.proto", source)]), None).unwrap_err().to_string()
}

#[test]
fn a_message_of_every_kind_of_field_says_what_protoc_wrote() {
    let expected: Value = serde_json::from_str(ORDER_JSON).unwrap();
    let from_set = ProtoFiles::default();
    from_set.add(&BTreeMap::new(), Some(SET)).unwrap();

    for files in [shop(), from_set] {
        assert_eq!(read(&files, TAKE, ORDER).unwrap(), expected);
        let receipt = files.decode_message(
            "/shop.v1.Shop/Talk?x",
            StreamSide::Server,
            b"\x0a\x01r",
            BytesDisplay::Shown,
        );
        let receipt = receipt.unwrap();
        assert_eq!(receipt.type_name, "shop.v1.Receipt");
        assert_eq!(receipt.value, json!({"order_id": "r"}));
    }
}

#[test]
fn both_ways_to_write_a_repeated_number_are_read_whatever_the_file_says() {
    let files =
        calling("message M { repeated int32 n = 1 [packed = false]; repeated fixed32 f = 2; }");

    let data = b"\x08\x01\x0a\x02\x02\x03\x12\x04\x07\0\0\0\x15\x08\0\0\0";

    assert_eq!(read(&files, "/Test/Call", data).unwrap(), json!({"n": [1, 2, 3], "f": [7, 8]}));
}

#[test]
fn what_the_description_does_not_have_stands_under_its_number() {
    let files = calling("message M { string name = 1; }");

    // Field 1 as a number is not what the file says, field 9 is not in it.
    let data = b"\x0a\x01a\x08\x05\x4a\x02hi\x4a\x01\xff";
    let read = read(&files, "/Test/Call", data).unwrap();

    assert_eq!(read, json!({"name": "a", "1": 5, "9": ["hi", "/w=="]}));
}

#[test]
fn bytes_that_nobody_can_read_are_only_counted_where_secrets_are_not_shown() {
    let files = calling("message M { bytes b = 1; }");

    let message = files.decode_message(
        "/Test/Call",
        StreamSide::Client,
        b"\x0a\x02\xff\x01",
        BytesDisplay::Counted,
    );

    assert_eq!(message.unwrap().value, json!({"b": "(2 bytes)"}));
}

#[test]
fn what_is_no_such_message_is_not_decoded() {
    let files = shop();

    assert_eq!(read(&files, "/shop.v1.Shop/Other", ORDER), None);
    assert_eq!(read(&files, TAKE, &ORDER[..ORDER.len() - 1]), None);
    assert_eq!(read(&files, TAKE, b"\x08"), None);
    for cut in 0..ORDER.len() {
        let _ = read(&files, TAKE, &ORDER[..cut]);
    }
    // A message inside of itself, deeper than anybody writes one, and more values than anybody looks at.
    let nested = calling("message M { M m = 1; repeated bool many = 2; }");
    let mut deep = Vec::new();
    for _ in 0..100 {
        let mut outer = vec![0x0a];
        let mut length = deep.len();
        while length > 127 {
            outer.push(u8::try_from(length & 127).unwrap() | 128);
            length >>= 7;
        }
        outer.push(u8::try_from(length).unwrap());
        outer.append(&mut deep);
        deep = outer;
    }
    assert!(read(&nested, "/Test/Call", &deep).is_some_and(|value| value.to_string().len() < 4000));
    let mut many = vec![0x12, 0xc0, 0x84, 0x3d];
    many.resize(4 + 1_000_000, 0);
    assert!(read(&nested, "/Test/Call", &many).is_none());
}

#[test]
fn a_bad_file_is_refused_with_its_line() {
    for (source, expected) in [
        (
            "syntax = \"proto3\"\nmessage A {}",
            "a.proto:2: expected \";\", found the end of the file",
        ),
        ("message A {\n string = 1;\n}", "a.proto:2: expected the name of the field, found \"=\""),
        (
            "message A {\n\n string a = 0;\n}",
            "a.proto:3: 0 is no number of a field: 1 to 536870911 are",
        ),
        (
            "message A {\n string a = 1;\n int32 b = 1;\n}",
            "a.proto:3: b has the number 1, which a has too",
        ),
        ("message A {\n Bee b = 1;\n}", "a.proto:2: b: there is no message or enum Bee"),
        ("\nimport \"b.proto\";", "a.proto:2: imports b.proto, which is not here: add it as well"),
        ("message A {}\nmessage A {}", "a.proto:2: A is defined in a.proto already"),
        ("enum A {\n X = 4294967296;\n}", "a.proto:2: 4294967296 has no room in 32 bits"),
        (
            "message A { map<bytes, A> a = 1; }",
            "a.proto:1: \"bytes\" cannot be the type of the keys of a map",
        ),
        ("service S {\n rpc X(Y) returns (Y);\n}", "a.proto:2: there is no message Y"),
        ("service S {\n rpc X(Y) Y;\n}", "a.proto:2: expected \"returns\", found \"Y\""),
        ("/* never\nended", "a.proto:1: the comment has no end"),
        ("import \"b\n\";", "a.proto:1: the text has no end"),
        (
            "hello",
            "a.proto:1: \"hello\" begins nothing: syntax, edition, package, import, option, message, enum, extend and service do",
        ),
        ("message A {\n ¡", "a.proto:2: unexpected '¡'"),
        ("message A {\n string a = 1", "a.proto:2: expected \";\", found the end of the file"),
        ("extend Z { int32 a = 1; }", "a.proto:1: there is no message Z"),
    ] {
        assert_eq!(problem(source), expected, "{source}");
    }
    let deep = format!("{}{}", "message A {".repeat(65), "}".repeat(65));
    assert!(problem(&deep).contains("more than 64"));
    let refused = ProtoFiles::default().add(&BTreeMap::new(), Some(b"nonsense"));
    assert!(refused.unwrap_err().to_string().starts_with("descriptor_set: is no set"));
    let refused = ProtoFiles::default().add(&sources([("a.txt", "")]), None);
    assert!(refused.unwrap_err().to_string().contains("ends in .proto"));
}

#[test]
fn a_refusal_changes_nothing_and_a_file_that_others_need_stays() {
    let files = shop();
    let before = files.all();

    assert!(files.add(&sources([("shop.proto", "nonsense")]), None).is_err());
    assert!(files.remove("common/money.proto").unwrap_err().to_string().contains("shop.proto:6"));

    assert_eq!(files.all(), before);
    assert_eq!(
        files.find("shop.proto").unwrap().methods,
        ["/shop.v1.Shop/Take", "/shop.v1.Shop/Talk"]
    );
    assert!(files.remove("shop.proto").unwrap());
    assert!(!files.remove("shop.proto").unwrap());
    files.clear();
    assert!(files.all().is_empty());
}

#[test]
fn a_browser_names_a_file_without_its_folder() {
    let files = ProtoFiles::default();

    files.add(&sources([("shop.proto", SHOP), ("money.proto", MONEY)]), None).unwrap();

    assert!(read(&files, TAKE, ORDER).is_some());
}

#[test]
fn words_of_the_language_may_be_names_of_fields() {
    let files = calling(
        "message M { message message = 1; M option_ = 2; string reserved = 3; optional int32 optional = 4;
         oneof oneof { string map = 5; group Pair = 6 { bool enum = 1; } }
         message message { string syntax = 1; } }",
    );

    let data = b"\x0a\x03\x0a\x01s\x1a\x01r\x20\x04\x33\x08\x01\x34";

    let expected =
        json!({"message": {"syntax": "s"}, "reserved": "r", "optional": 4, "pair": {"enum": true}});
    assert_eq!(read(&files, "/Test/Call", data).unwrap(), expected);
}
