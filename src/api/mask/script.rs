//! Source text of JavaScript, in which only text literals can be secrets.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::schemes::is_scheme;
use super::{brackets, pieces, work};
use crate::api::secrets::is_exact;

/// The start of a script or a style sheet in a page.
const START_TAG: &str = r"(?i)<(?:script|style)(?-u:\b)[^>]{0,2000}>";
/// Contents of `type` of scripts that are data, or templates for texts.
const OTHER_TYPES: [&str; 3] = ["json", "template", "text/x-"];
/// Words that declare a variable.
const DECLARATIONS: [&str; 3] = ["const", "let", "var"];
/// An expression in front of the literal that is its default.
const DEFAULT: &str = r"^[\w$.()\[\]?]{1,200}\s{0,4}(?:\|\||\?\?)\s{0,4}";

/// The places of a text that are source text.
#[derive(Debug)]
pub(super) struct ScriptPlaces {
    places: Vec<Range<usize>>,
}

impl ScriptPlaces {
    /// The whole text is source text.
    pub fn everywhere() -> Self {
        let whole = 0..usize::MAX;
        Self { places: Vec::from([whole]) }
    }

    /// The contents of the scripts of a page.
    pub fn in_page(text: &str) -> Self {
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(START_TAG).ok());
        let mut places: Vec<Range<usize>> = Vec::new();
        let pattern = PATTERN.as_ref().filter(|_| pieces::is_page(text));
        for tag in pattern.iter().flat_map(|pattern| pattern.find_iter(text)) {
            let is_inside = places.last().is_some_and(|last| tag.start() < last.end);
            let other = tag.as_str().to_ascii_lowercase();
            if is_inside || OTHER_TYPES.iter().any(|known| other.contains(known)) {
                continue;
            }
            let rest = text.get(tag.end()..).unwrap_or_default();
            let length = rest.find("</").unwrap_or(rest.len());
            places.push(tag.end()..tag.end() + length);
        }
        Self { places }
    }

    /// Returns true if a place is in source text, or if a declaration makes it source text.
    pub fn contains(&self, text: &str, at: usize) -> bool {
        let next = self.places.partition_point(|place| place.end <= at);
        self.places.get(next).is_some_and(|place| place.contains(&at))
            || DECLARATIONS.iter().any(|word| {
                let before = text.get(..at).unwrap_or_default();
                before.strip_suffix(' ').is_some_and(|before| before.ends_with(word))
            })
    }
}

/// A value in source text.
#[derive(Debug, Default)]
pub(super) struct ScriptValue {
    /// The place of the secret literal, without its quotes.
    pub secret: Option<Range<usize>>,
    /// The length of the text that was looked at, in which no other secret is.
    pub length: usize,
}

/// Reads the value behind a name. `name_text` is the name with the separator behind it.
pub(super) fn value_of(name: &str, name_text: &str, rest: &str) -> ScriptValue {
    // `key` names everything, `=>` begins a function, and `==` compares.
    let is_other = name.eq_ignore_ascii_case("key")
        || name_text.trim_end().ends_with("=>")
        || rest.starts_with('=');
    if is_other {
        return ScriptValue::default();
    }
    if rest.starts_with(['[', '{']) {
        let length = brackets::end(rest, 0);
        let inner = rest.get(..length).unwrap_or_default();
        let has_literal = inner.contains(['"', '\'', '`']);
        return ScriptValue { secret: has_literal.then_some(0..length), length };
    }
    match literal(rest).filter(|place| rest.get(place.clone()).is_some_and(may_be_secret)) {
        Some(place) => ScriptValue { length: place.end, secret: Some(place) },
        None => ScriptValue::default(),
    }
}

/// Returns the place of the literal that a text begins with, or that is the default of an expression.
fn literal(rest: &str) -> Option<Range<usize>> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(DEFAULT).ok());
    let is_literal = rest.starts_with(['"', '\'', '`']);
    let start = if is_literal { 0 } else { PATTERN.as_ref()?.find(rest)?.end() };
    let quote = *rest.as_bytes().get(start)?;
    let is_quote = matches!(quote, b'"' | b'\'' | b'`');
    is_quote.then(|| start + 1..literal_end(rest.as_bytes(), start + 1, quote))
}

/// The minimum length of the constant text of a template that may be a secret, in bytes.
const MIN_CONSTANT_BYTES: usize = 8;

/// Returns false for the beginning of credentials, a template for them, and the name of a field.
fn may_be_secret(literal: &str) -> bool {
    static EXPRESSION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{[^}]*\}").ok());
    let text = literal.trim();
    if text.is_empty() || is_scheme(text) || is_exact(text) {
        return false;
    }
    let Some(constant) = EXPRESSION.as_ref().map(|pattern| pattern.replace_all(text, "")) else {
        return true;
    };
    let words = constant.split_whitespace().filter(|word| !is_scheme(word));
    constant == text || words.map(str::len).sum::<usize>() >= MIN_CONSTANT_BYTES
}

/// Returns the place of the quote that ends a literal, or the end of the text.
fn literal_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let end = quote_after(bytes, start, quote);
    work::count(end - start);
    end
}

fn quote_after(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            _ if byte == quote => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use crate::api::mask::{MASK, body};

    fn masked(media_type: &str, source: &str) -> String {
        let masked = body(media_type, source.as_bytes());
        masked.map_or(source.to_owned(), |masked| String::from_utf8_lossy(&masked).into_owned())
    }

    #[test]
    fn only_text_literals_of_source_text_are_hidden() {
        for (source, expected) in [
            ("const token = getToken()", "const token = getToken()"),
            (
                "const token = await getToken();\nuse(token)",
                "const token = await getToken();\nuse(token)",
            ),
            ("if (token === null) next(token)", "if (token === null) next(token)"),
            ("for (i = 0; i<tokens.length; i++) f()", "for (i = 0; i<tokens.length; i++) f()"),
            ("f({token: this.token, key: \"id\"})", "f({token: this.token, key: \"id\"})"),
            ("tokens.map(token => token.id)", "tokens.map(token => token.id)"),
            ("class A { password: string; }", "class A { password: string; }"),
            ("window.apiKey = \"fish\";", "window.apiKey = \"#\";"),
            ("const token = 'fi\\'sh', b = 'kept'", "const token = '#', b = 'kept'"),
            ("var token=`fish`", "var token=`#`"),
            ("token = process.env.TOKEN || \"fish\";", "token = process.env.TOKEN || \"#\";"),
            ("const passwords = [\"fish\", \"b\"];", "const passwords = #;"),
            ("const token = \"\"", "const token = \"\""),
            ("h = {Authorization: 'Bearer ' + token}", "h = {Authorization: 'Bearer ' + token}"),
            ("h = {Authorization: `Bearer ${token}`}", "h = {Authorization: `Bearer ${token}`}"),
            ("const TOKEN_KEY = 'auth_token';", "const TOKEN_KEY = 'auth_token';"),
            ("h = {Authorization: 'Bearer fish'}", "h = {Authorization: '#'}"),
        ] {
            let expected = expected.replace('#', MASK);
            assert_eq!(masked("text/javascript", source), expected, "{source}");
            let page = |script: &str| format!("<html><script>{script}</script><p>kept</p></html>");
            assert_eq!(masked("text/html", &page(source)), page(&expected), "{source}");
        }
        let data = "<script type=\"application/json\">{\"token\": \"fish\"}</script>";
        assert!(!masked("text/html", data).contains("fish"));
    }

    #[test]
    fn style_sheets_stay() {
        let sheet = ".token:hover{color:red}.password{top:0}";
        assert_eq!(masked("text/css", sheet), sheet);
        let page = format!("<html><style>{sheet}</style><p>kept</p></html>");
        assert_eq!(masked("text/html", &page), page);
    }
}
