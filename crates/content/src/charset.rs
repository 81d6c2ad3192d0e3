//! Charsets of text: their labels, decoding, and encoding of changed text.
//!
//! The labels are those of the WHATWG Encoding Standard, which browsers use. There, `iso-8859-1` and `ascii` mean
//! windows-1252. Spellings of Python such as `latin-1` and `utf_8` are accepted too.

use std::borrow::Cow;

use encoding_rs::{Encoding, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// The number of bytes at the beginning of a body that decide about its form.
const EXAMINED_BYTES: usize = 1024;
/// Text of a wide form without a byte order mark has at least this share of ASCII, in percent.
const MIN_ASCII_PERCENT: usize = 30;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A charset, and whether the text begins with a byte order mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charset {
    form: CharsetForm,
    has_mark: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharsetForm {
    /// A charset of encoding_rs, other than UTF-16.
    Bytes(&'static Encoding),
    Wide(WideCharset),
}

/// UTF-16 or UTF-32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WideCharset {
    unit: usize,
    is_little_endian: bool,
}

/// UTF-32 comes first: its byte order mark begins with that of UTF-16.
const WIDE_CHARSETS: [WideCharset; 4] = [
    WideCharset { unit: 4, is_little_endian: true },
    WideCharset { unit: 4, is_little_endian: false },
    WideCharset { unit: 2, is_little_endian: true },
    WideCharset { unit: 2, is_little_endian: false },
];

/// A text that has a letter its charset does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the charset {charset} has no {letter:?}; use letters that it has, or change the charset in Content-Type"
)]
pub struct UnencodableText {
    /// The name of the charset.
    pub charset: &'static str,
    /// The first letter that the charset does not have.
    pub letter: char,
}

/// Text that was decoded.
#[derive(Debug)]
pub struct DecodedText<'a> {
    /// The text. Bytes that are not text in its charset became U+FFFD.
    pub text: Cow<'a, str>,
    /// If true, the text has U+FFFD for bytes that could not be decoded.
    pub has_errors: bool,
}

impl Charset {
    /// UTF-8 without a byte order mark.
    pub const UTF_8: Self = Self { form: CharsetForm::Bytes(UTF_8), has_mark: false };
    /// The charset of text that names none and is not UTF-8. Every byte is a letter in it.
    pub const LATIN_1: Self = Self { form: CharsetForm::Bytes(WINDOWS_1252), has_mark: false };

    /// Finds the charset with a label, for a text with these bytes. Returns `None` for an unknown label, and for charsets
    /// that browsers refuse to decode, such as `hz-gb-2312`.
    pub fn from_label(label: &str, bytes: &[u8]) -> Option<Self> {
        let form = match label_of_whatwg(label).as_str() {
            "utf-16" | "utf16" => wide_form(bytes, 2),
            "utf-32" | "utf32" => wide_form(bytes, 4),
            "utf-32le" => CharsetForm::Wide(WideCharset { unit: 4, is_little_endian: true }),
            "utf-32be" => CharsetForm::Wide(WideCharset { unit: 4, is_little_endian: false }),
            label => {
                let found = Encoding::for_label_no_replacement(label.as_bytes())?;
                match found {
                    it if it == UTF_16LE || it == UTF_16BE => {
                        CharsetForm::Wide(WideCharset { unit: 2, is_little_endian: it == UTF_16LE })
                    }
                    it if it == REPLACEMENT => return None,
                    it => CharsetForm::Bytes(it),
                }
            }
        };
        Some(Self { form, has_mark: form.has_mark(bytes) })
    }

    /// Finds the charset that a byte order mark names.
    pub fn from_byte_order_mark(bytes: &[u8]) -> Option<Self> {
        let wide = WIDE_CHARSETS.into_iter().map(CharsetForm::Wide);
        let form = wide.chain([CharsetForm::Bytes(UTF_8)]).find(|form| form.has_mark(bytes))?;
        Some(Self { form, has_mark: true })
    }

    /// Finds UTF-16 or UTF-32 by the zeros that ASCII has in it (RFC 4627, section 3).
    pub fn from_zeros(bytes: &[u8]) -> Option<Self> {
        let form = WIDE_CHARSETS.into_iter().find(|form| form.is_likely(bytes))?;
        Some(Self { form: CharsetForm::Wide(form), has_mark: false })
    }

    /// The name in lower case, such as `utf-8`.
    pub fn name(self) -> &'static str {
        match self.form {
            CharsetForm::Wide(WideCharset { unit: 2, is_little_endian: true }) => "utf-16le",
            CharsetForm::Wide(WideCharset { unit: 2, is_little_endian: false }) => "utf-16be",
            CharsetForm::Wide(WideCharset { is_little_endian: true, .. }) => "utf-32le",
            CharsetForm::Wide(WideCharset { is_little_endian: false, .. }) => "utf-32be",
            CharsetForm::Bytes(encoding) => name_in_lower_case(encoding),
        }
    }

    /// Returns true for UTF-16 and UTF-32.
    pub fn is_wide(self) -> bool {
        matches!(self.form, CharsetForm::Wide(_))
    }

    /// Decodes bytes without the byte order mark. If the bytes are cut off, a letter at the end that is not complete is
    /// left out.
    pub fn decode(self, bytes: &[u8], is_cut: bool) -> DecodedText<'_> {
        let bytes = match self.has_mark {
            true => bytes.get(self.form.mark().len()..).unwrap_or_default(),
            false => bytes,
        };
        let mut decoded = match self.form {
            CharsetForm::Wide(form) => form.decode(bytes, is_cut),
            CharsetForm::Bytes(it) if it == UTF_8 => decode_utf8(bytes, is_cut),
            CharsetForm::Bytes(encoding) => {
                let (text, has_errors) = encoding.decode_without_bom_handling(bytes);
                DecodedText { text, has_errors }
            }
        };
        let is_half = is_cut && decoded.has_errors && self.form != CharsetForm::Bytes(UTF_8);
        if is_half && decoded.text.ends_with(char::REPLACEMENT_CHARACTER) {
            let text = decoded.text.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned();
            let has_errors = text.contains(char::REPLACEMENT_CHARACTER);
            decoded = DecodedText { text: text.into(), has_errors };
        }
        decoded
    }

    /// Encodes text, with a byte order mark if the original has one.
    ///
    /// # Errors
    /// If the charset does not have one of the letters.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, UnencodableText> {
        let mut bytes = if self.has_mark { self.form.mark() } else { Vec::new() };
        match self.form {
            CharsetForm::Wide(form) => form.encode_into(text, &mut bytes),
            CharsetForm::Bytes(encoding) => {
                let (encoded, _, has_errors) = encoding.encode(text);
                if has_errors {
                    return Err(UnencodableText {
                        charset: self.name(),
                        letter: missing_letter(encoding, text),
                    });
                }
                bytes.extend_from_slice(&encoded);
            }
        }
        Ok(bytes)
    }
}

impl CharsetForm {
    fn mark(self) -> Vec<u8> {
        let mut mark = Vec::new();
        match self {
            Self::Wide(form) => form.encode_into(&BYTE_ORDER_MARK.to_string(), &mut mark),
            Self::Bytes(it) if it == UTF_8 => mark.extend(b"\xef\xbb\xbf"),
            Self::Bytes(_) => {}
        }
        mark
    }

    fn has_mark(self, bytes: &[u8]) -> bool {
        let mark = self.mark();
        !mark.is_empty() && bytes.starts_with(&mark)
    }
}

impl WideCharset {
    fn read_unit(self, unit: &[u8]) -> u32 {
        let add = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
        match self.is_little_endian {
            true => unit.iter().rev().fold(0, add),
            false => unit.iter().fold(0, add),
        }
    }

    fn decode(self, bytes: &[u8], is_cut: bool) -> DecodedText<'static> {
        let units = bytes.chunks_exact(self.unit);
        let mut has_errors = !is_cut && !units.remainder().is_empty();
        let units = units.map(|unit| self.read_unit(unit));
        let letters: Vec<Option<char>> = match self.unit {
            2 => char::decode_utf16(units.map(|unit| u16::try_from(unit).unwrap_or_default()))
                .map(Result::ok)
                .collect(),
            _ => units.map(char::from_u32).collect(),
        };
        let mut text = String::with_capacity(letters.len());
        for letter in letters {
            has_errors |= letter.is_none();
            text.push(letter.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        DecodedText { text: text.into(), has_errors }
    }

    fn encode_into(self, text: &str, bytes: &mut Vec<u8>) {
        let mut push = |number: u32| {
            let all = number.to_be_bytes();
            let unit = all.get(4 - self.unit..).unwrap_or_default();
            match self.is_little_endian {
                true => bytes.extend(unit.iter().rev()),
                false => bytes.extend(unit),
            }
        };
        match self.unit {
            2 => text.encode_utf16().for_each(|unit| push(unit.into())),
            _ => text.chars().for_each(|letter| push(letter.into())),
        }
    }

    /// Returns true if bytes without a byte order mark look like text in this form.
    fn is_likely(self, bytes: &[u8]) -> bool {
        let start = bytes.get(..bytes.len().min(EXAMINED_BYTES)).unwrap_or(bytes);
        let mut units = start.chunks_exact(self.unit).map(|unit| self.read_unit(unit));
        let count = units.len();
        let ascii = units.clone().filter(|unit| (1..0x80).contains(unit)).count();
        let is_text = units.all(|unit| match char::from_u32(unit) {
            Some(letter) => unit != 0 && (!letter.is_control() || letter.is_whitespace()),
            None => self.unit == 2 && (0xd800..0xe000).contains(&unit),
        });
        count > 1 && is_text && ascii * 100 >= count * MIN_ASCII_PERCENT
    }
}

/// Finds the byte order of a charset whose label does not name it. Without a sign of the order it is little-endian, as in
/// browsers.
fn wide_form(bytes: &[u8], unit: usize) -> CharsetForm {
    let forms = WIDE_CHARSETS.into_iter().filter(|form| form.unit == unit);
    let marked = forms.clone().find(|form| CharsetForm::Wide(*form).has_mark(bytes));
    let form = marked.or_else(|| forms.clone().find(|form| form.is_likely(bytes)));
    CharsetForm::Wide(form.unwrap_or(WideCharset { unit, is_little_endian: true }))
}

/// Returns a label as the Encoding Standard writes it.
fn label_of_whatwg(label: &str) -> String {
    let is_edge = |letter: char| letter.is_ascii_whitespace() || matches!(letter, '"' | '\'');
    let label = label.trim_matches(is_edge).to_ascii_lowercase();
    if Encoding::for_label(label.as_bytes()).is_some_and(|it| it != UTF_16LE) {
        return label;
    }
    let label = label.replace('_', "-");
    match label.as_str() {
        "utf-8-sig" | "utf8-sig" | "utf8mb4" | "utf8mb3" | "cp65001" | "u8" => "utf-8".to_owned(),
        "utf-16-le" | "utf16le" => "utf-16le".to_owned(),
        "utf-16-be" | "utf16be" => "utf-16be".to_owned(),
        "utf-32-le" | "utf32le" => "utf-32le".to_owned(),
        "utf-32-be" | "utf32be" => "utf-32be".to_owned(),
        _ if Encoding::for_label(label.as_bytes()).is_some() => label,
        // `latin-1`, `cp-1252`, `iso-8859-15` written as `iso885915`.
        _ => {
            let short = label.replace('-', "");
            let is_known = Encoding::for_label(short.as_bytes()).is_some();
            if is_known { short } else { label }
        }
    }
}

fn decode_utf8(bytes: &[u8], is_cut: bool) -> DecodedText<'_> {
    let bytes = match std::str::from_utf8(bytes) {
        Err(error) if is_cut && error.error_len().is_none() => {
            bytes.get(..error.valid_up_to()).unwrap_or_default()
        }
        _ => bytes,
    };
    let text = String::from_utf8_lossy(bytes);
    let has_errors = matches!(text, Cow::Owned(_));
    DecodedText { text, has_errors }
}

/// Returns the first letter that a charset does not have.
fn missing_letter(encoding: &'static Encoding, text: &str) -> char {
    let is_missing = |letter: &char| encoding.encode(letter.encode_utf8(&mut [0; 4])).2;
    text.chars().find(is_missing).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The names of the Encoding Standard in lower case.
fn name_in_lower_case(encoding: &'static Encoding) -> &'static str {
    const NAMES: [&str; 37] = [
        "utf-8",
        "ibm866",
        "iso-8859-2",
        "iso-8859-3",
        "iso-8859-4",
        "iso-8859-5",
        "iso-8859-6",
        "iso-8859-7",
        "iso-8859-8",
        "iso-8859-8-i",
        "iso-8859-10",
        "iso-8859-13",
        "iso-8859-14",
        "iso-8859-15",
        "iso-8859-16",
        "koi8-r",
        "koi8-u",
        "macintosh",
        "windows-874",
        "windows-1250",
        "windows-1251",
        "windows-1252",
        "windows-1253",
        "windows-1254",
        "windows-1255",
        "windows-1256",
        "windows-1257",
        "windows-1258",
        "x-mac-cyrillic",
        "gbk",
        "gb18030",
        "big5",
        "euc-jp",
        "iso-2022-jp",
        "shift_jis",
        "euc-kr",
        "x-user-defined",
    ];
    let name = encoding.name();
    NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name)).unwrap_or(name)
}
