//! The names of fields and files in `Content-Disposition` (RFC 7578, section 4.2), as clients write them.

use percent_encoding::percent_decode_str;

use crate::charset::Charset;
use crate::encoded_words::decode_words;

/// The largest number of parameters that are read.
const MAX_PARAMETERS: usize = 50;

/// The parameters of a `Content-Disposition`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Disposition {
    pub name: Option<String>,
    pub file_name: Option<String>,
}

impl Disposition {
    /// Reads a value. Malformed parameters are read as far as possible.
    pub fn parse(value: &str) -> Self {
        let parameters = split_parameters(value);
        Self {
            name: find_parameter(&parameters, "name"),
            file_name: find_parameter(&parameters, "filename"),
        }
    }
}

/// Finds a parameter: `name*` before `name*0` and its like before `name`.
fn find_parameter(parameters: &[Parameter], name: &str) -> Option<String> {
    let (mut plain, mut extended, mut pieces) = (None, None, Vec::new());
    for parameter in parameters {
        let Some(star) = parameter.name.strip_prefix(name) else { continue };
        match star {
            "" => plain = plain.or_else(|| Some(parameter.text())),
            "*" => extended = extended.or_else(|| Some(extended_text(&parameter.value))),
            _ => {
                let number = star.strip_prefix('*').map(|it| it.trim_end_matches('*'));
                if let Some(number) = number.and_then(|it| it.parse::<u16>().ok()) {
                    pieces.push((number, star.ends_with('*'), parameter.value.as_str()));
                }
            }
        }
    }
    extended.or_else(|| joined_text(pieces)).or(plain)
}

/// Joins the pieces of a parameter (RFC 2231, section 3).
fn joined_text(mut pieces: Vec<(u16, bool, &str)>) -> Option<String> {
    if pieces.is_empty() {
        return None;
    }
    pieces.sort_by_key(|(number, ..)| *number);
    let mut bytes = Vec::new();
    let mut charset = Charset::UTF_8;
    for (number, is_extended, value) in pieces {
        match (number, is_extended) {
            (0, true) => {
                let (label, content) = split_extended(value);
                charset = Charset::from_label(label, b"").unwrap_or(charset);
                bytes.extend(percent_decode_str(content));
            }
            (_, true) => bytes.extend(percent_decode_str(value)),
            (_, false) => bytes.extend_from_slice(value.as_bytes()),
        }
    }
    Some(decode_text(charset, &bytes))
}

/// The text of `charset'language'percent-encoded` (RFC 8187, section 3.2).
fn extended_text(value: &str) -> String {
    let (label, content) = split_extended(value);
    let bytes: Vec<u8> = percent_decode_str(content).collect();
    decode_text(Charset::from_label(label, &bytes).unwrap_or(Charset::UTF_8), &bytes)
}

fn split_extended(value: &str) -> (&str, &str) {
    let mut pieces = value.splitn(3, '\'');
    match (pieces.next(), pieces.next(), pieces.next()) {
        (Some(label), Some(_), Some(content)) => (label, content),
        _ => ("", value),
    }
}

fn decode_text(charset: Charset, bytes: &[u8]) -> String {
    let decoded = charset.decode(bytes, false);
    match decoded.has_errors {
        true => Charset::LATIN_1.decode(bytes, false).text.into_owned(),
        false => decoded.text.into_owned(),
    }
}

/// A parameter, whose name is in lower case.
struct Parameter {
    name: String,
    value: String,
    is_quoted: bool,
}

impl Parameter {
    /// The text of a plain parameter. Browsers write a quote and the ends of lines as percent signs with two digits (HTML,
    /// section 4.10.21.8), and no other letters.
    fn text(&self) -> String {
        let text = decode_words(&self.value);
        match self.is_quoted {
            true => unescape_browser(&text),
            false => text,
        }
    }
}

fn unescape_browser(text: &str) -> String {
    let mut rest = text;
    let mut read = String::with_capacity(text.len());
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        read.push_str(before);
        let letter = match from.get(1..3).map(str::to_ascii_uppercase).as_deref() {
            Some("22") => Some('"'),
            Some("0D") => Some('\r'),
            Some("0A") => Some('\n'),
            _ => None,
        };
        read.push(letter.unwrap_or('%'));
        rest = from.get(if letter.is_some() { 3.. } else { 1.. }).unwrap_or_default();
    }
    read.push_str(rest);
    read
}

/// Splits a value at the semicolons outside of quotes.
fn split_parameters(value: &str) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest);
    // Some clients leave out `form-data`.
    if value.split(';').next().is_some_and(|first| first.contains('=')) {
        rest = value;
    }
    while !rest.trim().is_empty() && parameters.len() < MAX_PARAMETERS {
        let end = rest.find(['=', ';']).unwrap_or(rest.len());
        let (name, from) = rest.split_at(end);
        let Some(written) = from.strip_prefix('=') else {
            rest = from.strip_prefix(';').unwrap_or_default();
            continue;
        };
        let written = written.trim_start();
        let (value, is_quoted, after) = match written.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = read_quoted(quoted);
                (value, true, after)
            }
            None => {
                let (value, after) = written.split_at(written.find(';').unwrap_or(written.len()));
                (value.trim_end().to_owned(), false, after)
            }
        };
        parameters.push(Parameter { name: name.trim().to_ascii_lowercase(), value, is_quoted });
        rest = after.split_once(';').map_or("", |(_, rest)| rest);
    }
    parameters
}

/// Reads a quoted string. Only a quote and a backslash are escaped: file names of Windows have backslashes.
fn read_quoted(quoted: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => match letters.as_str().chars().next() {
                // A backslash in front of the last quote is a part of a path.
                Some('"') if is_end(letters.as_str().get(1..).unwrap_or_default()) => {
                    value.push('\\');
                }
                Some(next @ ('"' | '\\')) => {
                    value.push(next);
                    letters.next();
                }
                _ => value.push('\\'),
            },
            letter => value.push(letter),
        }
    }
    (value, letters.as_str())
}

/// Returns true if a parameter ends before this text, and no other quote closes it.
fn is_end(after: &str) -> bool {
    let after = after.trim_start();
    (after.is_empty() || after.starts_with(';')) && after.matches('"').count().is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_clients_write_them() {
        for (value, name, file_name) in [
            ("form-data; name=\"a\"; filename=\"tea.txt\"", "a", "tea.txt"),
            ("form-data; name=field1; filename=tea.txt", "field1", "tea.txt"),
            ("form-data; name=\"x\"; filename=\"a;b=c.txt\"", "x", "a;b=c.txt"),
            ("form-data; filename=\"tea.txt\"; name=\"y\"", "y", "tea.txt"),
            ("form-data; name=\"z\"; filename*=UTF-8''%E8%8C%B6.txt", "z", "茶.txt"),
            ("form-data; name=\"z\"; filename=\"x.txt\"; filename*=utf-8'en'%e8%8c%b6", "z", "茶"),
            ("form-data; name=\"z\"; filename*=iso-8859-1''Gr%F6%DFe.txt", "z", "Größe.txt"),
            ("form-data; name=\"z\"; filename*=\"UTF-8''%E8%8C%B6.txt\"", "z", "茶.txt"),
            ("form-data; name=\"z\"; filename*0=\"a;\"; filename*1=b.txt", "z", "a;b.txt"),
            ("form-data; name*1*=%B6; name*0*=UTF-8''%E8%8C; x=y", "茶", ""),
            ("form-data; name=\"say\\\"so\"; filename=\"t.txt\"", "say\"so", "t.txt"),
            ("form-data; name=\"say%22so%0D%0a\"; filename=\"50%.txt\"", "say\"so\r\n", "50%.txt"),
            ("form-data; name=say%22so", "say%22so", ""),
            ("form-data; name=\"a\"; filename=\"C:\\dir\\tea.txt\"", "a", "C:\\dir\\tea.txt"),
            ("form-data; name=\"a\"; filename=\"C:\\\\dir\\\\t\"", "a", "C:\\dir\\t"),
            ("form-data; name=\"a\"; filename=\"C:\\dir\\\"", "a", "C:\\dir\\"),
            ("form-data; name=\"=?utf-8?B?6Iy2?=\"", "茶", ""),
            ("form-data; name=\"茶\"; filename=\"größe.txt\"", "茶", "größe.txt"),
            ("FORM-DATA; NAME = \"a\" ; FileName = b", "a", "b"),
            ("name=\"a\"; filename=b", "a", "b"),
            ("form-data; name=\"open; filename=b", "open; filename=b", ""),
            ("form-data; name=a; name=b", "a", ""),
            ("form-data; filename=\"\"; x; =; ;;", "", ""),
            ("form-data", "", ""),
            ("", "", ""),
        ] {
            let read = Disposition::parse(value);

            assert_eq!(read.name.unwrap_or_default(), name, "{value}");
            assert_eq!(read.file_name.unwrap_or_default(), file_name, "{value}");
        }
    }
}
