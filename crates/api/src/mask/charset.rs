//! Bodies in UTF-16 and UTF-32, which are masked as text and written in the same form again.

use super::work;

/// The number of bytes at the beginning of a body that decide about its form.
const EXAMINED_BYTES: usize = 1024;
/// Without a byte order mark, at least this share of the letters is ASCII, in percent.
const MIN_ASCII_PERCENT: usize = 30;
/// The largest share of units that are not letters, in percent.
const MAX_BROKEN_PERCENT: usize = 5;

/// A form of text whose units are longer than a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WideForm {
    /// The number of bytes of a unit: 2 or 4.
    unit: usize,
    is_little_endian: bool,
}

/// A body whose text was decoded.
#[derive(Debug)]
pub(super) struct WideText {
    form: WideForm,
    pub text: String,
    /// Runs of bytes that are ASCII, in lines. A text that is only in part in this form may have secrets there.
    pub ascii: Vec<u8>,
    /// The bytes of a unit that is cut off.
    rest: Vec<u8>,
}

const FORMS: [WideForm; 4] = [
    WideForm { unit: 4, is_little_endian: true },
    WideForm { unit: 4, is_little_endian: false },
    WideForm { unit: 2, is_little_endian: true },
    WideForm { unit: 2, is_little_endian: false },
];
/// Letters of a wide form have no longer runs of ASCII bytes, except by chance.
const MIN_RUN_BYTES: usize = 8;
const BYTE_ORDER_MARK: u32 = 0xfeff;

impl WideText {
    /// Decodes a body that is in UTF-16 or UTF-32, with a byte order mark or without.
    pub fn from_bytes(body: &[u8]) -> Option<Self> {
        let form = FORMS.into_iter().find(|form| form.is_of(body))?;
        work::count_bytes(body.len());
        let units = body.chunks_exact(form.unit);
        let rest = units.remainder().to_vec();
        let units = units.map(|unit| form.read_unit(unit));
        let text: String = match form.unit {
            2 => char::decode_utf16(units.map(|unit| u16::try_from(unit).unwrap_or_default()))
                .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect(),
            _ => units
                .map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect(),
        };
        let (broken, all) = text.chars().fold((0, 0), |(broken, all), letter| {
            (broken + usize::from(letter == char::REPLACEMENT_CHARACTER), all + 1)
        });
        (broken * 100 <= all * MAX_BROKEN_PERCENT).then(|| Self {
            form,
            text,
            ascii: ascii_runs(body),
            rest,
        })
    }

    /// Writes a text in the form of this one.
    pub fn encode(&self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len() * self.form.unit);
        let mut push = |number: u32| {
            let all = number.to_be_bytes();
            let mut unit = all.get(4 - self.form.unit..).unwrap_or_default().to_vec();
            if self.form.is_little_endian {
                unit.reverse();
            }
            bytes.extend(unit);
        };
        match self.form.unit {
            2 => text.encode_utf16().for_each(|unit| push(unit.into())),
            _ => text.chars().for_each(|letter| push(letter.into())),
        }
        bytes.extend(&self.rest);
        bytes
    }
}

impl WideForm {
    fn read_unit(self, unit: &[u8]) -> u32 {
        let add = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
        match self.is_little_endian {
            true => unit.iter().rev().fold(0, add),
            false => unit.iter().fold(0, add),
        }
    }

    /// Returns true if a body begins with a byte order mark of this form, or has the zeros that ASCII has in it.
    fn is_of(self, body: &[u8]) -> bool {
        let start = body.get(..body.len().min(EXAMINED_BYTES)).unwrap_or(body);
        let mut units = start.chunks_exact(self.unit).map(|unit| self.read_unit(unit));
        if units.clone().next() == Some(BYTE_ORDER_MARK) {
            return true;
        }
        let count = units.len();
        let is_ascii = |unit: &u32| (1..0x80).contains(unit);
        let ascii = units.clone().filter(is_ascii).count();
        let is_text = units.all(|unit| {
            unit != 0 && char::from_u32(unit).is_some_and(|it| !is_control(it))
                || self.unit == 2 && (0xd800..0xe000).contains(&unit)
        });
        count > 1 && is_text && ascii * 100 >= count * MIN_ASCII_PERCENT
    }
}

/// Returns the runs of ASCII that are too long for a text in a wide form.
fn ascii_runs(body: &[u8]) -> Vec<u8> {
    let is_other = |byte: &u8| !byte.is_ascii_graphic() && !byte.is_ascii_whitespace();
    let runs = body.split(is_other).filter(|run| run.len() >= MIN_RUN_BYTES);
    runs.collect::<Vec<_>>().join(&b'\n')
}

fn is_control(letter: char) -> bool {
    letter.is_control() && !letter.is_whitespace()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mask::MASK;

    #[test]
    fn wide_texts_are_masked_in_their_form() {
        for form in FORMS {
            let wide = |text: &str| {
                WideText { form, text: String::new(), ascii: Vec::new(), rest: Vec::new() }
                    .encode(text)
            };
            for mark in ["\u{feff}", ""] {
                for (media_type, text) in [
                    ("application/json", "{\"password\": \"#\", \"größe\": \"kept\"}"),
                    ("application/x-www-form-urlencoded", "a=kept&password=#"),
                    ("application/xml", "<a><password>#</password><b>kept</b></a>"),
                    ("", "password: #\n"),
                ] {
                    let body = |secret: &str| wide(&(mark.to_owned() + &text.replace('#', secret)));

                    let shown = crate::mask::body(media_type, &body("swordfish"));

                    assert_eq!(shown, Some(body(MASK)), "{form:?} {media_type} {mark:?}");
                }
            }
            let mut cut = wide("{\"password\": \"swordfish");
            let expected = [wide(&format!("{{\"password\": \"{MASK}\"")), vec![b'a']].concat();
            cut.push(b'a');
            assert_eq!(crate::mask::body("application/json", &cut), Some(expected), "{form:?}");
        }
    }

    #[test]
    fn text_that_is_only_in_part_wide_is_hidden() {
        let wide: Vec<u8> = b"{\"a\": \"kept and kept and kept and kept\"}"
            .iter()
            .flat_map(|byte| [*byte, 0])
            .collect();
        let mixed = [b"{\"token\":\"swordfish\"}\n", &wide[..]].concat();
        let marked = [b"\xff\xfe", &mixed[..]].concat();
        for body in [mixed, marked] {
            let shown = crate::mask::body("application/json", &body).unwrap();
            assert!(!String::from_utf8_lossy(&shown).contains("swordfish"));
        }
    }

    #[test]
    fn other_bodies_are_not_wide() {
        for body in [
            &b"{\"a\": 1}"[..],
            b"",
            b"a",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            b"\0\x01\0\x02",
            &[7; 64],
        ] {
            assert!(WideText::from_bytes(body).is_none(), "{body:?}");
        }
    }
}
