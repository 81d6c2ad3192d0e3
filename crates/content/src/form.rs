//! Forms: `application/x-www-form-urlencoded` (URL Standard, section 5).

use percent_encoding::percent_decode;

use crate::charset::Charset;

/// The field of a form that names its charset (HTML, section 4.10.21.5).
const CHARSET_FIELD: &[u8] = b"_charset_";

/// Returns the names and values of a form in their order.
///
/// The charset is that of a field `_charset_`, or `named`, the one of the header; or else UTF-8; or else Latin-1.
pub fn form_pairs(body: &[u8], named: Option<Charset>) -> Vec<(String, String)> {
    let pairs: Vec<_> = body
        .split(|byte| *byte == b'&')
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let (name, value) = pair.split_at(at);
            (decode_bytes(name), decode_bytes(value.get(1..).unwrap_or_default()))
        })
        .collect();
    let charset = form_charset(&pairs, named);
    let text = |bytes: &[u8]| charset.decode(bytes, false).text.into_owned();
    pairs.iter().map(|(name, value)| (text(name), text(value))).collect()
}

fn form_charset(pairs: &[(Vec<u8>, Vec<u8>)], named: Option<Charset>) -> Charset {
    let own = pairs.iter().find(|(name, _)| name == CHARSET_FIELD);
    let own = own.and_then(|(_, value)| Charset::from_label(std::str::from_utf8(value).ok()?, b""));
    // Names and values in a wide form are percent-encoded UTF-8 (URL Standard, section 4.3).
    if let Some(charset) = own.or(named).filter(|charset| !charset.is_wide()) {
        return charset;
    }
    let is_utf8 = |bytes: &Vec<u8>| std::str::from_utf8(bytes).is_ok();
    match pairs.iter().all(|(name, value)| is_utf8(name) && is_utf8(value)) {
        true => Charset::UTF_8,
        false => Charset::LATIN_1,
    }
}

fn decode_bytes(coded: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> =
        coded.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charset_of_a_form_is_found() {
        for (body, label, expected) in [
            ("name=Zo%C3%AB+Q&a", "", &[("name", "Zoë Q"), ("a", "")][..]),
            ("name=Zo%EB&b=%e4", "", &[("name", "Zoë"), ("b", "ä")]),
            ("name=Zo%EB", "windows-1252", &[("name", "Zoë")]),
            ("p=%8C%8E", "shift_jis", &[("p", "月")]),
            ("_charset_=gbk&p=%B2%E8", "utf-8", &[("_charset_", "gbk"), ("p", "茶")]),
            ("_charset_=nope&p=%E8%8C%B6", "", &[("_charset_", "nope"), ("p", "茶")]),
            ("p=%E8%8C%B6", "utf-16", &[("p", "茶")]),
            ("&&a=1=2&=x&%zz=%\r\n", "", &[("a", "1=2"), ("", "x"), ("%zz", "%")]),
            ("", "", &[]),
        ] {
            let pairs = form_pairs(body.as_bytes(), Charset::from_label(label, b""));

            let pairs: Vec<_> = pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(pairs, expected, "{body}");
        }
    }
}
