//! Charsets that a format declares in its text: XML, HTML and CSS.

/// The number of bytes that are searched. HTML, section 4.2.5.4, wants the declaration within the first 1024 bytes.
const EXAMINED_BYTES: usize = 1024;

/// Finds the label of the charset that a text declares. The text is ASCII up to there.
pub(crate) fn declared_charset(media_type: &str, bytes: &[u8]) -> Option<String> {
    let start = bytes.get(..bytes.len().min(EXAMINED_BYTES)).unwrap_or(bytes);
    let start = String::from_utf8_lossy(start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start));
    let text = start.trim_start();
    let label = if text.starts_with("<?xml") {
        xml_declaration(text)
    } else if media_type == "text/css" {
        start.strip_prefix("@charset \"")?.split_once('"').map(|(label, _)| label)
    } else if media_type.contains("html") || media_type.is_empty() && text.starts_with('<') {
        meta_declaration(text)
    } else {
        None
    };
    // The declaration was read as ASCII, so the text is not in a wide form.
    label.filter(|label| !label.to_ascii_lowercase().starts_with("utf-16")).map(str::to_owned)
}

fn xml_declaration(text: &str) -> Option<&str> {
    let declaration = text.split_once("?>").map_or(text, |(before, _)| before);
    let (_, after) = declaration.split_once("encoding")?;
    let value = after.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|letter| matches!(letter, '"' | '\''))?;
    value.get(1..)?.split_once(quote).map(|(label, _)| label)
}

/// Finds `charset=` in a `meta` element, in its own attribute or in `content`.
fn meta_declaration(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    let mut from = 0;
    while let Some(found) = lower.get(from..)?.find("<meta") {
        let start = from + found;
        let end = lower.get(start..)?.find('>').map_or(lower.len(), |length| start + length);
        if let Some(at) = lower.get(start..end)?.find("charset") {
            let after = text.get(start + at + "charset".len()..end)?.trim_start();
            if let Some(value) = after.strip_prefix('=') {
                let value = value.trim_start().trim_start_matches(['"', '\'']);
                let is_end = |letter: char| {
                    letter.is_ascii_whitespace() || matches!(letter, '"' | '\'' | ';' | '/')
                };
                return value.split(is_end).next().filter(|label| !label.is_empty());
            }
        }
        from = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_found_in_their_formats() {
        for (media_type, text, expected) in [
            ("application/xml", "<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "ISO-8859-1"),
            ("", "\u{feff} <?xml version=\"1.0\" encoding = \"koi8-r\" ?>", "koi8-r"),
            ("application/xml", "<?xml version='1.0'?><a encoding='x'/>", ""),
            ("application/xml", "<?xml encoding='UTF-16'?>", ""),
            ("text/html", "<html><meta name=a><META CharSet=gbk><p>", "gbk"),
            ("text/html", "<meta http-equiv=x content='text/html; charset=big5'>", "big5"),
            ("text/html", "<p charset=gbk>", ""),
            ("text/html", "<meta charset", ""),
            ("", "<!doctype html><meta charset=\"shift_jis\"/>", "shift_jis"),
            ("text/css", "@charset \"windows-1251\"; a{}", "windows-1251"),
            ("text/plain", "@charset \"windows-1251\"; <meta charset=gbk>", ""),
        ] {
            let found = declared_charset(media_type, text.as_bytes());
            assert_eq!(found.unwrap_or_default(), expected, "{media_type}: {text}");
        }
    }
}
