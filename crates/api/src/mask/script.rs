//! Source text of JavaScript, in which only text literals can be secrets.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::quotes::closing_quote;
use super::schemes::is_scheme;
use super::{brackets, pieces, work};
use crate::secrets::{is_exact, is_secret};

/// The start of a script or a style sheet in a page.
const START_TAG: &str = r"(?i)<(?:script|style)(?-u:\b)[^>]{0,2000}>";
/// Contents of `type` of scripts that are data, or templates for texts.
const OTHER_TYPES: [&str; 3] = ["json", "template", "text/x-"];
/// Words that declare a variable.
const DECLARATIONS: [&str; 3] = ["const", "let", "var"];
/// A call, or a member of an object.
const CALL: &str = concat!(
    r"^(?:await |new )?(?:",
    r"[A-Za-z_$][0-9A-Za-z_$]{0,63}(?:\.[A-Za-z_$][0-9A-Za-z_$]{0,63}){0,8}\(",
    r"|[A-Za-z_$]{1,64}(?:\.[A-Za-z_$]{1,64}){1,8}(?:[;,)\s]|$))",
);

/// The places of a text that are source text.
#[derive(Debug)]
pub(super) struct ScriptPlaces {
    places: Vec<Range<usize>>,
    /// True if names with a colon are selectors.
    is_style_sheet: bool,
}

impl ScriptPlaces {
    /// The whole text is source text.
    pub fn everywhere() -> Self {
        let whole = 0..usize::MAX;
        Self { places: Vec::from([whole]), is_style_sheet: false }
    }

    /// No place is source text.
    pub fn nowhere() -> Self {
        Self { places: Vec::new(), is_style_sheet: false }
    }

    /// The text is a style sheet, in which only an equals sign separates a name from a value.
    pub fn in_style_sheet() -> Self {
        Self { is_style_sheet: true, ..Self::nowhere() }
    }

    /// The contents of the scripts of a page.
    pub fn in_page(text: &str) -> Self {
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(START_TAG).ok());
        let mut places: Vec<Range<usize>> = Vec::new();
        let mut unclosed: Vec<&str> = Vec::new();
        let pattern = PATTERN.as_ref().filter(|_| pieces::is_page(text));
        for tag in pattern.iter().flat_map(|pattern| pattern.find_iter(text)) {
            let is_inside = places.last().is_some_and(|last| tag.start() < last.end);
            let other = tag.as_str().to_ascii_lowercase();
            let name = pieces::tag_name(tag.as_str());
            let is_named = |known: &&str| known.eq_ignore_ascii_case(name);
            let Some(name) = pieces::RAW_ELEMENTS.into_iter().find(is_named) else { continue };
            if is_inside
                || unclosed.contains(&name)
                || OTHER_TYPES.iter().any(|known| other.contains(known))
            {
                continue;
            }
            let rest = text.get(tag.end()..).unwrap_or_default();
            match pieces::raw_length(rest, name) {
                Some(length) => places.push(tag.end()..tag.end() + length),
                None => unclosed.push(name),
            }
        }
        Self { places, is_style_sheet: false }
    }

    /// Returns true for a selector of a style sheet.
    pub fn is_selector(&self, name_text: &str) -> bool {
        self.is_style_sheet && !name_text.contains('=')
    }

    /// Returns true if a place is in source text.
    pub fn contains(&self, at: usize) -> bool {
        let next = self.places.partition_point(|place| place.end <= at);
        self.places.get(next).is_some_and(|place| place.contains(&at))
    }
}

/// Returns true for the declaration of a variable with a call or a member of an object, which are not secrets.
///
/// Texts without a script have other values behind these words as well, such as `var PASSWORD=x` in a shell.
pub(super) fn is_declaration(text: &str, name: Range<usize>, rest: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(CALL).ok());
    let before = text.get(..name.start).unwrap_or_default().strip_suffix(' ');
    let is_declared =
        before.is_some_and(|before| DECLARATIONS.iter().any(|word| before.ends_with(word)));
    is_declared && PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(rest))
}

/// A value in source text.
#[derive(Debug, Default)]
pub(super) struct ScriptValue {
    /// The places of the secret literals, without their quotes.
    pub secrets: Vec<Range<usize>>,
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
        let length = brackets::group_end(rest, 0);
        let inner = rest.get(..length).unwrap_or_default();
        let has_literal = inner.contains(['"', '\'', '`']);
        let secrets = has_literal.then_some(0..length).into_iter().collect();
        return ScriptValue { secrets, length };
    }
    let (literals, length) = literals_of_expression(rest);
    let secrets = literals.into_iter().filter(|literal| {
        let text = rest.get(literal.place.clone()).unwrap_or_default();
        let is_name = (literal.is_argument || names_field(name)) && is_exact(text.trim());
        may_be_secret(text) && !is_name
    });
    ScriptValue { secrets: secrets.map(|literal| literal.place).collect(), length }
}

/// Endings of constants that have the names of fields.
const FIELD_ENDINGS: [&str; 4] = ["_FIELD", "_HEADER", "_KEY", "_NAME"];

/// Returns true for a constant with the name of a field, such as `TOKEN_KEY`, but not `API_KEY` and `SECRET_KEY`.
fn names_field(name: &str) -> bool {
    let stem = FIELD_ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    stem.is_some_and(|stem| is_secret(stem) && !stem.ends_with("SECRET"))
}

/// A text literal of an expression, without its quotes.
struct Literal {
    place: Range<usize>,
    /// True if it is inside of brackets.
    is_argument: bool,
}

/// Returns the literals of the expression that a text begins with, and the length of the expression.
///
/// The expression ends before a block, so that the names in it are found.
fn literals_of_expression(rest: &str) -> (Vec<Literal>, usize) {
    let bytes = rest.as_bytes();
    let mut literals = Vec::new();
    let (mut at, mut depth, mut before) = (0, 0_usize, b'=');
    while let Some(&byte) = bytes.get(at) {
        let after = rest.get(at..).unwrap_or_default();
        if byte.is_ascii_whitespace() {
            let end = at + (after.len() - after.trim_ascii_start().len());
            let has_line_end = bytes.get(at..end).is_some_and(|blank| blank.contains(&b'\n'));
            let next = bytes.get(end).copied().unwrap_or_default();
            let continues = b"=?:+|&".contains(&before) || b"?:+|&.".contains(&next);
            if has_line_end && depth == 0 && !continues {
                break;
            }
            at = end;
            continue;
        }
        if let Some(comment) = ["/*", "//"].into_iter().find(|start| after.starts_with(*start)) {
            let (end, end_bytes) = if comment == "/*" { ("*/", 2) } else { ("\n", 0) };
            let found = after.get(2..).unwrap_or_default().find(end);
            at += found.map_or(after.len(), |found| 2 + found + end_bytes);
            continue;
        }
        match byte {
            b'"' | b'\'' | b'`' => {
                let end = literal_end(bytes, at + 1, byte).min(bytes.len());
                literals.push(Literal { place: at + 1..end, is_argument: depth > 0 });
                at = end;
            }
            b'(' | b'[' => depth += 1,
            b')' | b']' if depth > 0 => depth -= 1,
            b')' | b']' | b'{' | b'}' | b';' => break,
            b',' if depth == 0 => break,
            b'=' if after.starts_with("=>") => break,
            _ => {}
        }
        before = byte;
        at += 1;
    }
    let length = at.min(bytes.len());
    work::count_bytes(length);
    (literals, length)
}

/// The minimum length of the constant text of a template that may be a secret, in bytes.
const MIN_CONSTANT_BYTES: usize = 8;

/// Returns false for the beginning of credentials and a template for them.
fn may_be_secret(literal: &str) -> bool {
    static EXPRESSION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{[^}]*\}").ok());
    let text = literal.trim();
    if text.is_empty() || is_scheme(text) {
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
    let end = closing_quote(bytes, start, quote).unwrap_or(bytes.len());
    work::count_bytes(end - start);
    end
}

#[cfg(test)]
mod tests {
    use crate::mask::{MASK, body};

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
            ("const AUTH_HEADER = \"X-Auth-Token\";", "const AUTH_HEADER = \"X-Auth-Token\";"),
            ("password = \"supersecret\"", "password = \"#\""),
            ("token=\"mytoken\"", "token=\"#\""),
            ("apiKey=\"my-api-key\"", "apiKey=\"#\""),
            ("API_KEY = \"my-api-key\"", "API_KEY = \"#\""),
            ("a({password: /*x*/ \"fish\"})", "a({password: /*x*/ \"#\"})"),
            ("password = prod ? \"fish\" : \"x\";", "password = prod ? \"#\" : \"#\";"),
            ("password = // x\n  a +\n  'fish'", "password = // x\n  a +\n  '#'"),
            ("const token = decode('fish')", "const token = decode('#')"),
            (
                "token = store.getItem('token')\na = 'kept'",
                "token = store.getItem('token')\na = 'kept'",
            ),
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
        let sheet = "/* token=swordfish */ .token:hover{background:url(a?token=swordfish)}";
        assert!(!masked("text/css", sheet).contains("swordfish"));
    }

    #[test]
    fn scripts_are_only_in_pages_and_have_an_end() {
        for source in [
            "<html><script>a()\ntoken=swordfish",
            "<html><style><p>token: swordfish</p>",
            "<html><script><password>swordfish</password>",
        ] {
            assert!(!masked("text/html", source).contains("swordfish"), "{source}");
        }
        let log = "<html><script>a()</script>\n<script>token=swordfish</script>";
        for source in [log.to_owned(), serde_json::json!({ "msg": log }).to_string()] {
            assert!(!masked("text/plain", &source).contains("swordfish"), "{source}");
        }
    }
}
