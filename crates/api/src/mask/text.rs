//! Texts of no form that is known: names with values, elements, and what credentials look like.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use percent_encoding::percent_decode_str;
use regex::Regex;

use super::comments::{CommentEnds, begins_comment};
use super::credentials::{credentials, is_plain};
use super::schemes::is_scheme;
use super::script::ScriptPlaces;
use super::{
    MASK, brackets, commands, elements, escapes, graphql, json, markup, name_value, script, work,
    yaml,
};
use crate::secrets::{is_secret, is_visible_scalar};

/// How many texts may be inside each other, such as JSON in a string of JSON.
pub(super) const MAX_DEPTH: u8 = 8;

/// How many texts may be inside of a text of XML that is written with references.
const MAX_REFERENCE_DEPTH: u8 = 2;

/// A name that a value follows: `name: value`, `name=value`, `"name": "value"`, `name is: value`, `a["name"] = "value"`.
/// A comment may be in front of the separator.
const NAMED: &str = concat!(
    r#"(\$?)([A-Za-z0-9_.%\u{80}-\u{10ffff}-]+)(\\?["'`]?)(?:\s{0,2}(?:\]|</[A-Za-z]{1,8}>)){0,2}(?:\s{1,2}is)?\s{0,8}"#,
    r"(=>|(?:[:+?!|]|\|\||\?\?)?={1,3}|:|/[*/]|is\s{0,4}<)\s{0,8}"
);
/// The value that follows a name.
const VALUE: &str = r#"(?xs)^(?:
    (?:[\[\]A-Za-z0-9_!]+\s{0,8}=\s{0,8})?"""(?:[^"]|"[^"]|""[^"])*(?:""")?
    | [\[\]A-Za-z0-9_!]+\s{0,8}=\s{0,8}"(?:[^"\\]|\\.)*"?
    | \\"(?:[^"\\]|\\\\\\"|\\[^"])*(?:\\")?
    | "(?:[^"\\]|\\.)*"?
    | '(?:[^'\\]|\\.)*'?
    | `(?:[^`\\]|\\.)*`?
    | (?i:[bnefru]{1,2})(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)
    | (?i:(?:basic|bearer|digest|token)\s{1,4})?[^\s,;&<>{}"']+
)"#;
/// Headers whose values may have blanks and separators in them.
const HEADERS: [&str; 7] = [
    "authentication-info",
    "authorization",
    "cookie",
    "cookies",
    "proxy-authentication-info",
    "proxy-authorization",
    "set-cookie",
];
/// A sentence behind the name of a header has at least so many words.
const MIN_SENTENCE_WORDS: usize = 3;
/// Words that sentences have and passphrases seldom do.
const SENTENCE_WORDS: [&str; 18] = [
    "a", "an", "and", "are", "be", "for", "header", "is", "must", "not", "of", "or", "see", "that",
    "the", "this", "to", "with",
];
/// Longer numbers are not parts of a sentence, in bytes.
const MAX_NUMBER_BYTES: usize = 5;

/// The maximum length of a type in GraphQL, in bytes. Longer texts are values.
const MAX_TYPE_BYTES: usize = 256;

/// A text without what looks like a secret.
pub fn text(shown: &str) -> Cow<'_, str> {
    nested(shown, MAX_DEPTH)
}

/// The same, where `depth` more texts may be inside.
pub(super) fn nested(shown: &str, depth: u8) -> Cow<'_, str> {
    nested_with(shown, depth, &loose)
}

/// A page of HTML without what looks like a secret.
pub(super) fn page(shown: &str) -> Cow<'_, str> {
    nested_with(shown, MAX_DEPTH, &|shown| loose_in(shown, false, ScriptPlaces::in_page))
}

fn nested_with<'a>(
    shown: &'a str,
    depth: u8,
    loose: &dyn Fn(&str) -> Cow<'_, str>,
) -> Cow<'a, str> {
    if is_plain(shown) {
        return shown.into();
    }
    if shown.trim_start().starts_with(['{', '[']) {
        return json::nested(shown, depth).into();
    }
    let elements = match shown.contains('<') {
        true => Cow::Owned(markup::masked(shown, &|inner| {
            nested(inner, depth.min(MAX_REFERENCE_DEPTH)).into_owned()
        })),
        false => Cow::Borrowed(shown),
    };
    match yaml::looks_like_yaml(&elements) {
        true => Cow::Owned(yaml::masked(&elements, false)),
        false => then(elements, loose),
    }
}

/// A text without the values that follow the names of secrets or are in a pair with one, and without credentials.
pub(super) fn loose(shown: &str) -> Cow<'_, str> {
    loose_with(shown, false)
}

/// The same. If `is_typed` is true, numbers, booleans and null stay.
pub(super) fn loose_with(shown: &str, is_typed: bool) -> Cow<'_, str> {
    loose_in(shown, is_typed, |_| ScriptPlaces::nowhere())
}

fn loose_in(
    shown: &str,
    is_typed: bool,
    find_scripts: impl Fn(&str) -> ScriptPlaces,
) -> Cow<'_, str> {
    let shown = then(name_value::masked(shown), commands::masked);
    let shown = then(shown, |shown| named(shown, is_typed, &find_scripts(shown)));
    then(then(shown, coded), credentials)
}

/// How many times a text may be percent-encoded.
const MAX_CODINGS: usize = 3;

/// A text without words that are percent-encoded and contain a secret, such as an address with a login.
pub(super) fn coded(shown: &str) -> Cow<'_, str> {
    if !shown.contains('%') {
        return shown.into();
    }
    let is_other = |letter: char| !letter.is_ascii_alphanumeric() && !"-_.~*+!%".contains(letter);
    work::count(shown.len());
    let mut masked = String::new();
    let mut copied = 0;
    for word in shown.split(is_other).filter(|word| word.contains('%')) {
        let start = word.as_ptr().addr() - shown.as_ptr().addr();
        if has_coded_secret(word) {
            masked.push_str(shown.get(copied..start).unwrap_or_default());
            masked.push_str(MASK);
            copied = start + word.len();
        }
    }
    if copied == 0 {
        return shown.into();
    }
    masked.push_str(shown.get(copied..).unwrap_or_default());
    masked.into()
}

fn has_coded_secret(word: &str) -> bool {
    let mut text = Cow::Borrowed(word);
    for _ in 0..MAX_CODINGS {
        let inner = decoded(&text.replace('+', " ")).into_owned();
        if inner == *text {
            return false;
        }
        let without_pairs =
            then(name_value::masked(&inner), |shown| named(shown, false, &ScriptPlaces::nowhere()));
        if then(without_pairs, credentials) != inner {
            return true;
        }
        text = inner.into();
    }
    false
}

/// A style sheet without the values that follow the names of secrets and an equals sign, and without credentials.
pub(super) fn style_sheet(source: &str) -> Cow<'_, str> {
    then(named(source, false, &ScriptPlaces::in_style_sheet()), credentials)
}

/// Source text of JavaScript without the text literals that follow the names of secrets, and without credentials.
pub(super) fn code(source: &str) -> Cow<'_, str> {
    let masked = then(name_value::masked(source), |source| {
        named(source, false, &ScriptPlaces::everywhere())
    });
    then(masked, credentials)
}

/// The text with the values masked that follow the name of a secret.
fn named<'a>(shown: &'a str, is_typed: bool, scripts: &ScriptPlaces) -> Cow<'a, str> {
    static PATTERNS: LazyLock<Option<(Regex, Regex)>> =
        LazyLock::new(|| Regex::new(NAMED).ok().zip(Regex::new(VALUE).ok()));
    let Some((name, value)) = PATTERNS.as_ref() else { return MASK.into() };
    work::count(shown.len());
    let mut masked = String::new();
    let mut copied = 0;
    let mut read = 0;
    let mut lines = HeaderLines::default();
    let mut comments = CommentEnds::default();
    let variables = graphql::declared_variables(shown);
    let secret_variables = match variables.is_empty() {
        true => BTreeSet::new(),
        false => graphql::secret_variables(shown),
    };
    for found in name.captures_iter(shown) {
        let (Some(whole), Some(dollar), Some(name), Some(quote), Some(separator)) =
            (found.get(0), found.get(1), found.get(2), found.get(3), found.get(4))
        else {
            continue;
        };
        let name = match quote.as_str() {
            "\"" => escaped_name(shown, name.start(), name.end()),
            _ => None,
        }
        .unwrap_or_else(|| decoded(name.as_str()));
        // In YAML, the next line is not the value of a key.
        let is_empty = is_typed && whole.as_str().contains('\n');
        let is_variable = !dollar.is_empty() && secret_variables.contains(&*name);
        let is_selector = scripts.is_selector(whole.as_str());
        let is_named = || is_secret(&name) || is_label_of_words(shown, whole.start(), &name);
        if whole.start() < read || is_empty || is_selector || !is_variable && !is_named() {
            continue;
        }
        let value_start = match separator.as_str() {
            it if it.starts_with('/') => comments.value_start(shown, separator.start()),
            // Without another separator, a value is in an element.
            it if it.ends_with('<') => Some(separator.end() - 1)
                .filter(|at| shown.get(*at..).and_then(elements::tags_length).is_some()),
            _ => Some(whole.end()),
        };
        let Some(value_start) = value_start else { continue };
        let rest = shown.get(value_start..).unwrap_or_default();
        if scripts.contains(whole.start()) || script::is_declaration(shown, whole.range(), rest) {
            let value = script::value_of(&name, whole.as_str(), rest);
            for literal in value.secrets {
                let start = value_start + literal.start;
                masked.push_str(shown.get(copied..start).unwrap_or_default());
                masked.push_str(MASK);
                copied = value_start + literal.end;
            }
            read = value_start + value.length;
            continue;
        }
        let value_start = match begins_comment(rest) && !is_typed {
            true => Some(comments.skip(shown, value_start)).filter(|at| *at < shown.len()),
            false => None,
        }
        .unwrap_or(value_start);
        let in_element = elements::tags_length(shown.get(value_start..).unwrap_or_default());
        let value_start = value_start + in_element.unwrap_or_default();
        let rest = shown.get(value_start..).unwrap_or_default();
        let is_quoted = rest.starts_with(['"', '\'', '`']);
        if separator.as_str().starts_with('!') && !is_quoted {
            continue;
        }
        let is_header = HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known));
        let length = match rest.as_bytes().first() {
            Some(first)
                if is_header
                    && quote.is_empty()
                    && !matches!(first, b'"' | b'\'' | b'[' | b'{') =>
            {
                lines.value_length(value_start, rest)
            }
            Some(_) if in_element.is_some() => element_length(rest),
            Some(b'[' | b'{') if !is_declaration(rest) => brackets::end(rest, 0),
            Some(b'#') => graphql::commented_length(rest, |rest| value_length(value, rest)),
            Some(b'$') if graphql::is_variable(rest, &variables) => 0,
            _ => value_length(value, rest),
        };
        let written = rest.get(..length).unwrap_or_default();
        // In GraphQL, the type of a variable follows its name.
        let is_type = !dollar.is_empty()
            && written.len() <= MAX_TYPE_BYTES
            && !written.contains(['"', '[', '{', '=']);
        let scalar = match written.starts_with('[') {
            true => written,
            false => written.trim_end_matches([')', ']']),
        };
        if length == 0
            || is_type
            || is_masked(written)
            || is_visible_scalar(&name, scalar, is_typed || !quote.is_empty())
        {
            continue;
        }
        masked.push_str(shown.get(copied..value_start).unwrap_or_default());
        masked.push_str(MASK);
        copied = value_start + length;
        read = copied;
    }
    if copied == 0 {
        return shown.into();
    }
    masked.push_str(shown.get(copied..).unwrap_or_default());
    masked.into()
}

/// Returns the length of the text of an element that is a value. A sentence is not a value.
fn element_length(rest: &str) -> usize {
    let length = rest.find(['<', '\n', '\r']).unwrap_or(rest.len());
    work::count(length);
    let text = rest.get(..length).unwrap_or_default().trim_end();
    if is_sentence(text) { 0 } else { text.len() }
}

/// Last words of labels that are only the name of a secret with the word before: `verification code: 1234`.
const LAST_WORDS: [&str; 3] = ["code", "number", "phrase"];
/// Words before are not longer, in bytes.
const MAX_WORD_BYTES: usize = 32;

/// Returns true if a name and the word before it are the name of a secret.
fn is_label_of_words(shown: &str, start: usize, name: &str) -> bool {
    if !LAST_WORDS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return false;
    }
    let before = shown.get(..start).and_then(|before| before.strip_suffix(' ')).unwrap_or_default();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let length = before.bytes().rev().take(MAX_WORD_BYTES).take_while(is_word).count();
    let word = before.get(before.len() - length..).unwrap_or_default();
    !word.is_empty() && is_secret(&format!("{word}_{name}"))
}

/// The maximum length of a name in quotes with escapes, in bytes.
const MAX_ESCAPED_BYTES: usize = 256;

/// Returns the name in quotes that ends here, if it has escapes.
fn escaped_name(shown: &str, start: usize, end: usize) -> Option<Cow<'_, str>> {
    let before = shown.get(..start)?;
    if !before.ends_with('\\') {
        return None;
    }
    let mut from = start.saturating_sub(MAX_ESCAPED_BYTES);
    while !shown.is_char_boundary(from) {
        from += 1;
    }
    let quote = shown.get(from..start)?.rfind('"')?;
    Some(escapes::unescaped(shown.get(from + quote + 1..end)?))
}

fn value_length(value: &Regex, rest: &str) -> usize {
    let length = value.find(rest).map_or(0, |found| found.len());
    work::count(length);
    length
}

/// Returns true for the name of a header with a sentence, which is not its value.
pub(super) fn is_sentence_about(name: &str, text: &str) -> bool {
    let is_header = HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known));
    is_header && is_sentence(text)
}

/// Finds the ends of the values of headers. Each line is searched once, however many names of headers it has.
#[derive(Debug, Default)]
struct HeaderLines {
    /// The end of the line that was searched last.
    end: usize,
    /// Values in that line that begin later are not sentences.
    last_start: Option<usize>,
}

impl HeaderLines {
    /// Returns the length of a header's value: up to the end of its line or the next tag. A sentence is not a value.
    fn value_length(&mut self, start: usize, rest: &str) -> usize {
        if start >= self.end {
            let length = rest.find(['\r', '\n', '<']).unwrap_or(rest.len());
            work::count(length);
            let line = rest.get(..length).unwrap_or_default();
            self.end = start + length;
            self.last_start = last_sentence_start(line).map(|at| start + at);
        }
        let length = self.end - start;
        let line = rest.get(..length).unwrap_or_default();
        match self.last_start.is_some_and(|last| start <= last) && !begins_with_scheme(line) {
            true => 0,
            false => length,
        }
    }
}

fn is_sentence(line: &str) -> bool {
    last_sentence_start(line).is_some() && !begins_with_scheme(line)
}

fn begins_with_scheme(line: &str) -> bool {
    line.split_whitespace().next().is_some_and(is_scheme)
}

/// Returns the last place from which the rest of a line is a sentence.
///
/// A sentence has only words, and at least one of [`SENTENCE_WORDS`] or a full stop at its end.
fn last_sentence_start(line: &str) -> Option<usize> {
    let mut starts = Vec::new();
    let mut last_common = line.trim_end().ends_with('.').then_some(line.len());
    for word in line.split_whitespace() {
        let start = word.as_ptr().addr() - line.as_ptr().addr();
        let word = word.trim_matches(['"', '\'', '(', ')', '.', ',', ';', ':', '!', '?']);
        let is_number = word.len() <= MAX_NUMBER_BYTES
            && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let is_letter = |it: char| it.is_alphabetic() || it == '\'' || it == '-';
        if !is_number && word != MASK && !word.chars().all(is_letter) {
            return None;
        }
        starts.push(start);
        if SENTENCE_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)) {
            last_common = last_common.max(Some(start));
        }
    }
    let last = starts.len().checked_sub(MIN_SENTENCE_WORDS)?;
    last_common?.min(*starts.get(last)?).into()
}

fn is_masked(value: &str) -> bool {
    value.trim_matches(['"', '\'', '\\']) == MASK
}

/// Returns true for the type of a list in GraphQL that has a default, such as `[String!] = ["a"]`.
fn is_declaration(rest: &str) -> bool {
    let inner = rest.strip_prefix('[').unwrap_or_default();
    let end = inner.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let after = end.and_then(|end| inner.get(end..)).unwrap_or_default();
    after.trim_start_matches(['!', ']']).trim_start().starts_with("= \"")
}

fn decoded(name: &str) -> Cow<'_, str> {
    percent_decode_str(name).decode_utf8_lossy()
}

/// Masks what was masked before.
fn then<'a>(shown: Cow<'a, str>, mask: impl Fn(&str) -> Cow<'_, str>) -> Cow<'a, str> {
    match shown {
        Cow::Borrowed(shown) => mask(shown),
        Cow::Owned(shown) => mask(&shown).into_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_masked_and_nothing_else_changes() {
        for (shown, expected) in [
            ("Authorization: Basic swordfish", "Authorization: $"),
            ("see https://me:sword@fish@x.test/", "see https://$@x.test/"),
            ("see https://x.test/me@y.test", "see https://x.test/me@y.test"),
            ("a eyJhbGciOi.swordfish.0f1e2d b", "a $ b"),
            ("say bearer swordfish.", "say bearer $"),
            ("{\"password\": \"swordfish\", \"cut", "{\"password\": \"$\", \"cut"),
            ("<a><Token x='1'>swordfish</Token></a>", "<a><Token x='1'>$</Token></a>"),
            ("<a token=\"swordfish\" b='c'>d</a>", "<a token=\"$\" b='c'>d</a>"),
            ("a=1&%74oken=swordfish&b", "a=1&%74oken=$&b"),
            ("secret = 'sword fish', a", "secret = $, a"),
            ("nothing: here, at 12:30", "nothing: here, at 12:30"),
            ("eyJhbGciOi.swordfish", "$"),
            ("sk_12345678", "$"),
            ("sk_1234567", "sk_1234567"),
            ("//me:swordfish@x.test", "//$@x.test"),
            ("//me@x.test", "//$@x.test"),
            ("", ""),
            ("log {\"passwords\": [\"swordfish\", \"b\"]} end", "log {\"passwords\": $} end"),
            ("[info] tokens = ['swordfish', 2] user: me", "[info] tokens = $ user: me"),
            ("max_tokens=100 total_tokens: 5, pin: 1234", "max_tokens=100 total_tokens: 5, pin: $"),
            ("\"pin\": 1234", "\"pin\": 1234"),
            ("{:password=>\"swordfish\", :a=>1}", "{:password=>$, :a=>1}"),
            ("contraseña=swordfish", "contraseña=$"),
            ("recovery_codes: swordfish", "recovery_codes: $"),
            ("Total tokens: 512", "Total tokens: 512"),
            ("Authorization: see the manual", "Authorization: see the manual"),
            ("<p>Authorization: see the manual</p>", "<p>Authorization: see the manual</p>"),
            ("<p>Authorization: Bearer swordfish</p>", "<p>Authorization: $</p>"),
            ("Authorization: Custom swordfish", "Authorization: $"),
            ("Authorization: Token sword fish", "Authorization: $"),
            ("Authorization: sword-1 fish it", "Authorization: $"),
            ("Cookie: a small file", "Cookie: a small file"),
            ("<p>Cookies: we use cookies.</p>", "<p>Cookies: we use cookies.</p>"),
            ("Set-Cookie: see RFC 6265.", "Set-Cookie: see RFC 6265."),
            ("your password is: swordfish", "your password is: $"),
            ("Cookie: a=sword; b=fish", "Cookie: $"),
            ("Authentication-Info: nextnonce=\"sword\", qop=auth", "Authentication-Info: $"),
            ("Proxy-Authentication-Info: rspauth=sword fish", "Proxy-Authentication-Info: $"),
            ("token_endpoint: https://a.test/b", "token_endpoint: https://a.test/b"),
            ("const token = getToken()", "const token = getToken()"),
            ("let token = \"swordfish\"", "let token = $"),
            ("const token = await api.getToken();", "const token = await api.getToken();"),
            ("const token = process.env.TOKEN;", "const token = process.env.TOKEN;"),
            ("var DB_PASSWORD=swordfish", "var DB_PASSWORD=$"),
            ("export const API_KEY=abcd1234", "export const API_KEY=$"),
            ("--set var password=hunter2", "--set var password=$"),
            ("var password=hunter2.abc", "var password=$"),
            ("{\"msg\":\"please let password=x\"}", "{\"msg\":\"please let password=$\"}"),
            ("Authorization: correct horse battery staple", "Authorization: $"),
            ("the Cookie: see the cookie: swordfish", "the Cookie: see the cookie: $"),
            ("Cookie: see cookie: correct horse fish", "Cookie: see cookie: $"),
            ("Cookie: see the authorization: token of it", "Cookie: see the authorization: $"),
            ("a[\"password\"] = \"sword fish\"", "a[\"password\"] = $"),
            ("process.env['PASSWORD']='sword fish'; b", "process.env['PASSWORD']=$; b"),
            ("d[ 'password' ] += 'sword'", "d[ 'password' ] += $"),
            ("log a[\\\"token\\\"] = \\\"sword fish\\\" b", "log a[\\\"token\\\"] = $ b"),
            ("a[b['password']] ||= \"fish\"", "a[b['password']] ||= $"),
            ("user[password]=fish&b=c", "user[password]=$&b=c"),
            ("password := \"sword fish\"", "password := $"),
            ("a `token`: `sword fish` b", "a `token`: $ b"),
            ("PASSWORD ?= fish", "PASSWORD ?= $"),
            ("if password == \"sword fish\" {", "if password == $ {"),
            ("log {\"password\": /* a */ \"sword fish\"}", "log {\"password\": /* a */ $}"),
            ("log {'token' // a: b\n : \"fish\", b: 1}", "log {'token' // a: b\n : $, b: 1}"),
            ("log {token /* a */: // b\n [\"fish\"]}", "log {token /* a */: // b\n $}"),
            ("<p>Password:<br>fish</p>", "<p>Password:<br>$</p>"),
            ("<span>API key</span>: <i>fish</i> kept", "<span>API key</span>: <i>$</i> kept"),
            ("a['token'] !== 'sword fish'", "a['token'] !== $"),
            ("token != null", "token != null"),
            ("Your password is <b>fish</b>.", "Your password is <b>$</b>."),
            ("the token is <unknown> kept", "the token is <unknown> kept"),
            ("your verification code: fish", "your verification code: $"),
            ("One-time code is: fish, kept", "One-time code is: $, kept"),
            ("card number: 4111", "card number: $"),
            ("country code: kept, number: 5", "country code: kept, number: 5"),
            ("password = b\"sword fish\", PASSWORD = N'sword fish'", "password = $, PASSWORD = $"),
            ("token: /* cut off", "token: $ cut off"),
            ("log {\"token\": /* a */ null}", "log {\"token\": /* a */ null}"),
            ("password // is required", "password // is required"),
            ("a https%3A%2F%2Fada%3Afish%40a.test%2Fb c", "a $ c"),
            (
                "https://a.test/?b=https%253A%252F%252Fada%253Afish%2540c.test&d=e",
                "https://a.test/?b=$&d=e",
            ),
            ("a?next=%2Fb%3Ftoken%3Dfish&c=d", "a?next=$&c=d"),
            ("a=https%3A%2F%2Fkept.test%2Fb%40c 100%", "a=https%3A%2F%2Fkept.test%2Fb%40c 100%"),
            ("<p>Password: <b>sword fish</b> kept</p>", "<p>Password: <b>$</b> kept</p>"),
            ("<b>Password:</b> sword <i>kept</i>", "<b>Password:</b> $ <i>kept</i>"),
            (
                "<td>API key:</td>\n<td class='a'><code>fish</code></td>",
                "<td>API key:</td>\n<td class='a'>$</td>",
            ),
            ("<p>token is:&nbsp;<span>fish</span>", "<p>token is:&nbsp;<span>$</span>"),
            (
                "<label>Password: <input name=a></label> kept",
                "<label>Password: <input name=a></label> kept",
            ),
            ("<div>Password:</div><div>kept</div>", "<div>Password:</div><div>kept</div>"),
            ("<b>Token:</b> this is the token of it.", "<b>Token:</b> this is the token of it."),
            ("[session]\nuser = kept", "[session]\nuser = kept"),
        ] {
            let expected = expected.replace('$', MASK);
            assert_eq!(text(shown), expected, "{shown}");
            assert_eq!(text(&expected), expected, "{shown} twice");
        }
    }

    #[test]
    fn arguments_of_graphql_are_masked() {
        for (shown, expected) in [
            (
                "mutation { login(user: \"ada\", password: \"swordfish\") { id } }",
                "mutation { login(user: \"ada\", password: #) { id } }",
            ),
            ("mutation { a(tokens: [\"swordfish\"], b: 1) }", "mutation { a(tokens: #, b: 1) }"),
            (
                "mutation { a(in: {password: {v: \"swordfish\"}}) }",
                "mutation { a(in: {password: #}) }",
            ),
            ("{ a(secret: \"\"\"sword \"fish\" x\"\"\") }", "{ a(secret: #) }"),
            (
                "query A($password: String!) { a(max_tokens: 5) }",
                "query A($password: String!) { a(max_tokens: 5) }",
            ),
            ("query A($password: String = \"swordfish\") { a }", "query A($password: #) { a }"),
            (
                "mutation($p:String!) { login(password:$p) { id } }",
                "mutation($p:String!) { login(password:$p) { id } }",
            ),
            (
                "mutation($p: String = \"swordfish\") { login(password: $p) }",
                "mutation($p: #) { login(password: $p) }",
            ),
            (
                "mutation { login(password: # c\n \"swordfish\") }",
                "mutation { login(password: #) }",
            ),
        ] {
            assert_eq!(text(shown), expected.replace('#', MASK), "{shown}");
        }
    }
}
