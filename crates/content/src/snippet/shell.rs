//! Words of a POSIX shell.

/// The largest argument: Linux takes 128 KiB, and quotes become longer in quotes.
const MAX_ARGUMENT_BYTES: usize = 24 * 1024;

/// Writes a word. Text without special characters is put into single quotes, in which a shell changes nothing.
pub(super) fn shell_word(bytes: &[u8]) -> String {
    match harmless_text(bytes) {
        Some(text) => format!("'{}'", text.replace('\'', "'\\''")),
        None => format!("\"$(printf '{}')\"", printf_format(bytes)),
    }
}

/// Writes a body as a word, if it can be one: it is not too long, has no zero byte, and does not end with a line end, which
/// shells remove.
pub(super) fn body_word(body: &[u8]) -> Option<String> {
    let is_word = body.len() <= MAX_ARGUMENT_BYTES && !body.contains(&0) && !body.ends_with(b"\n");
    is_word.then(|| shell_word(body))
}

/// Returns the bytes as text, if a terminal and a shell take all of it for text.
fn harmless_text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.chars().any(is_special)).then_some(text)
}

/// Writes bytes as the format of `printf`, which is put into single quotes.
///
/// It has no `!` either: interactive shells replace it, also within single quotes if double quotes surround them.
pub(super) fn printf_format(bytes: &[u8]) -> String {
    let mut format = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => format.push_str("\\n"),
                '\r' => format.push_str("\\r"),
                '\t' => format.push_str("\\t"),
                '\\' => format.push_str("\\\\"),
                '%' => format.push_str("%%"),
                // A format that begins with a hyphen is an option.
                '-' if format.is_empty() => push_octal(b"-", &mut format),
                '\'' | '!' => push_octal(&[letter as u8], &mut format),
                _ if is_special(letter) => {
                    push_octal(letter.encode_utf8(&mut [0; 4]).as_bytes(), &mut format);
                }
                _ => format.push(letter),
            }
        }
        push_octal(chunk.invalid(), &mut format);
    }
    format
}

fn push_octal(bytes: &[u8], format: &mut String) {
    for byte in bytes {
        *format += &format!("\\{byte:03o}");
    }
}

/// Returns true for characters that act on a terminal or are not seen there: control characters, line and paragraph
/// separators, and characters that change the direction of text.
fn is_special(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_contain_no_character_that_acts_on_a_terminal() {
        for (bytes, expected) in [
            (&b"it's $(x)!"[..], r"'it'\''s $(x)!'"),
            ("caf\u{e9}".as_bytes(), "'caf\u{e9}'"),
            (b"a\tb\x1b[31m\x03", r#""$(printf 'a\tb\033[31m\003')""#),
            (b"-\r\n'!\\%d", r#""$(printf '\055\r\n\047\041\\%%d')""#),
            (b"J\xfcrgen", r#""$(printf 'J\374rgen')""#),
            ("\u{9b}m\u{202e}".as_bytes(), r#""$(printf '\302\233m\342\200\256')""#),
            (b"", "''"),
        ] {
            assert_eq!(shell_word(bytes), expected);
        }
    }
}
