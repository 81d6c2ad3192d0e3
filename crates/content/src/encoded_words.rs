//! Encoded words in headers, such as `=?utf-8?Q?caf=C3=A9?=` (RFC 2047).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::charset::Charset;

/// Replaces encoded words by their text. Blanks between two of them are not a part of the text. Words that cannot be
/// decoded stay.
pub(crate) fn decode_words(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_after_word = false;
    while let Some(at) = rest.find("=?") {
        let (before, from) = rest.split_at(at);
        match read_word(from) {
            Some((word, after)) => {
                if !(is_after_word && before.trim().is_empty()) {
                    decoded.push_str(before);
                }
                decoded.push_str(&word);
                (rest, is_after_word) = (after, true);
            }
            None => {
                decoded.push_str(before);
                decoded.push_str("=?");
                rest = from.get(2..).unwrap_or_default();
                is_after_word = false;
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

/// Reads one encoded word. Returns its text and what follows it.
fn read_word(text: &str) -> Option<(String, &str)> {
    let (charset, rest) = text.strip_prefix("=?")?.split_once('?')?;
    let (coding, rest) = rest.split_once('?')?;
    let (content, rest) = rest.split_once("?=")?;
    if content.contains(char::is_whitespace) {
        return None;
    }
    let bytes = match coding {
        "q" | "Q" => decode_quoted(content),
        "b" | "B" => {
            let lenient = GeneralPurposeConfig::new()
                .with_decode_padding_mode(DecodePaddingMode::Indifferent);
            let alphabet = GeneralPurpose::new(&base64::alphabet::STANDARD, lenient);
            STANDARD.decode(content).or_else(|_| alphabet.decode(content)).ok()?
        }
        _ => return None,
    };
    // RFC 2231, section 5: a language may follow the charset.
    let label = charset.split('*').next().unwrap_or_default();
    let charset = Charset::from_label(label, &bytes).unwrap_or(Charset::UTF_8);
    Some((charset.decode(&bytes, false).text.into_owned(), rest))
}

fn decode_quoted(content: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len());
    let mut rest = content.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'=');
        let number =
            digits.and_then(|it| u8::from_str_radix(std::str::from_utf8(it).ok()?, 16).ok());
        match (number, first) {
            (Some(number), _) => {
                bytes.push(number);
                rest = after.get(2..).unwrap_or_default();
                continue;
            }
            (None, b'_') => bytes.push(b' '),
            (None, byte) => bytes.push(*byte),
        }
        rest = after;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_are_decoded() {
        for (text, expected) in [
            ("plain", "plain"),
            ("=?utf-8?Q?pass=77ord?=", "password"),
            ("=?UTF-8?b?6Iy2?=.txt", "茶.txt"),
            ("=?iso-8859-1*de?q?Gr=F6=DFe_1?=", "Größe 1"),
            ("=?utf-8?b?dGVh?= \t =?utf-8?b?cG90?= x", "teapot x"),
            ("a =?utf-8?b?dGVh?= b", "a tea b"),
            ("=?utf-8?b?dGVhcG90Cg?=", "teapot\n"),
            ("=?x?z?a?= =?utf-8?q?b", "=?x?z?a?= =?utf-8?q?b"),
            ("=?nope?q?=C3=A9=?=", "é="),
        ] {
            assert_eq!(decode_words(text), expected, "{text}");
        }
    }
}
