//! Masks secrets in XML, even where it is cut off.

use super::name_value::{PairRole, pair_role};
use super::{MASK, markup_pairs};
use crate::api::secrets::{is_secret, is_visible_scalar};

/// The text with the attributes masked whose names are secret, and all that is in elements that are.
/// An element is secret by its own name, by the name that an attribute gives it, or because the element before it or
/// next to it has the name of a secret.
pub(super) fn masked(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut secret: Option<SecretElement<'_>> = None;
    let pairs = markup_pairs::secret_values(text);
    let mut rest = text;
    while !rest.is_empty() {
        let start = text.len() - rest.len();
        let (piece, after) = rest.split_at(length(rest));
        rest = after;
        if let Some(element) = secret.as_mut() {
            if element.ends_at(piece) {
                element.hide(&mut masked);
                masked.push_str(piece);
                secret = None;
                continue;
            }
            if !element.is_void || !piece.starts_with('<') {
                element.hides_some |= !piece.trim().is_empty();
                element.content.push_str(piece);
                continue;
            }
            element.hide(&mut masked);
            secret = None;
        }
        match piece.as_bytes() {
            [b'<', b'?' | b'!' | b'/', ..] => masked.push_str(piece),
            [b'<', ..] => {
                let pair = pairs.get(&start).copied();
                let is_secret = tag(piece, &mut masked) || pair.is_some();
                if is_secret && !piece.ends_with("/>") {
                    secret = Some(SecretElement::new(piece, pair));
                }
            }
            _ => masked.push_str(piece),
        }
    }
    if let Some(element) = &secret {
        element.hide(&mut masked);
    }
    masked
}

/// An element whose content is hidden.
struct SecretElement<'a> {
    name: &'a str,
    /// The name of the secret.
    secret: &'a str,
    /// How many elements of the same name are open inside of it.
    depth: usize,
    /// True for elements that HTML never closes: they end with the next tag.
    is_void: bool,
    /// True if the content is more than blanks.
    hides_some: bool,
    /// The content, which is shown if it is blank, or the number of a quantity.
    content: String,
}

impl<'a> SecretElement<'a> {
    fn new(tag: &'a str, secret: Option<&'a str>) -> Self {
        let name = tag_name(tag);
        let secret = secret.unwrap_or(name);
        let is_void = VOID_ELEMENTS.iter().any(|known| name.eq_ignore_ascii_case(known));
        Self { name, secret, depth: 0, is_void, hides_some: false, content: String::new() }
    }

    /// Returns true for the tag that closes this element.
    fn ends_at(&mut self, piece: &str) -> bool {
        if let Some(closing) = piece.strip_prefix("</") {
            let is_own = closing.trim_end_matches('>').trim().eq_ignore_ascii_case(self.name);
            if is_own && self.depth == 0 {
                return true;
            }
            self.depth -= usize::from(is_own);
        } else if piece.starts_with('<') && !piece.ends_with("/>") {
            self.depth += usize::from(tag_name(piece).eq_ignore_ascii_case(self.name));
        }
        false
    }

    fn hide(&self, masked: &mut String) {
        let is_visible = !self.hides_some || is_visible_scalar(self.secret, &self.content, false);
        masked.push_str(if is_visible { &self.content } else { MASK });
    }
}

/// Elements that have no end tag in HTML. XML has some of them with content, such as `param`.
pub(super) const VOID_ELEMENTS: [&str; 13] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "wbr",
];

pub(super) fn tag_name(tag: &str) -> &str {
    let name = tag.trim_start_matches('<');
    name.get(..name.find([' ', '\t', '\r', '\n', '/', '>']).unwrap_or(name.len())).unwrap_or(name)
}

const CDATA: (&str, &str) = ("<![CDATA[", "]]>");

/// How long what the text begins with is: a tag, a comment and its like, or text until the next.
pub(super) fn length(text: &str) -> usize {
    for (start, end) in [CDATA, ("<!--", "-->"), ("<?", "?>")] {
        if text.starts_with(start) {
            return text.find(end).map_or(text.len(), |at| at + end.len());
        }
    }
    if !text.starts_with('<') {
        return text.find('<').unwrap_or(text.len());
    }
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            // A tag does not reach into the next one.
            (_, b'<') => return at,
            _ => {}
        }
    }
    text.len()
}

/// The attribute of `meta` that has a value, besides those that [`pair_role`] knows.
const CONTENT: &str = "content";
/// Attributes that name the value of a tag, but not the content of its element.
const TAG_NAMES: [&str; 2] = ["id", "type"];

/// Writes a tag with its secret attributes masked; whether its element is secret.
fn tag(piece: &str, masked: &mut String) -> bool {
    let name_end = piece.find([' ', '\t', '\r', '\n', '/', '>']).unwrap_or(piece.len());
    let (name, attributes) = piece.split_at(name_end);
    let (mut is_named, mut has_secret_value) = (false, false);
    each_attribute(attributes, |_, name, value| {
        if TAG_NAMES.iter().any(|known| name.eq_ignore_ascii_case(known)) {
            has_secret_value |= is_secret(value.0);
        } else {
            is_named |= pair_role(name) == Some(PairRole::Name) && is_secret(value.0);
        }
    });
    // A form is not a field: its name is not that of a value.
    is_named &= !tag_name(piece).eq_ignore_ascii_case("form");
    has_secret_value |= is_named;
    masked.push_str(name);
    let rest = each_attribute(attributes, |before, name, (value, quote, end)| {
        let is_value =
            name.eq_ignore_ascii_case(CONTENT) || pair_role(name) == Some(PairRole::Value);
        let is_masked = (is_secret(name) || has_secret_value && is_value)
            && !value.is_empty()
            && !is_visible_scalar(name, value, false);
        masked.extend([before, quote, if is_masked { MASK } else { value }, end]);
    });
    masked.push_str(rest);
    is_named || is_secret(local(name.trim_start_matches('<')))
}

/// Goes through attributes with values: the text before the value, the name, and the value with its quotes. They
/// are empty if it has none; the second is empty if the value is cut off. Returns the rest, which has no value.
fn each_attribute<'a>(
    mut rest: &'a str,
    mut each: impl FnMut(&'a str, &'a str, (&'a str, &'a str, &'a str)),
) -> &'a str {
    while let Some(equals) = rest.find('=') {
        let after = rest.get(equals + 1..).unwrap_or_default();
        let start = rest.len() - after.trim_start().len();
        let (before, written) = rest.split_at(start);
        let name = rest.get(..equals).unwrap_or_default().split_whitespace().next_back();
        let quote =
            written.get(..1).filter(|first| matches!(*first, "\"" | "'")).unwrap_or_default();
        let value = written.get(quote.len()..).unwrap_or_default();
        let end = match quote {
            "" => value.find([' ', '\t', '\r', '\n', '>']),
            quote => value.find(quote),
        };
        let (value, after) = value.split_at(end.unwrap_or(value.len()));
        let closing = if after.is_empty() { "" } else { quote };
        each(before, local(name.unwrap_or_default()), (value, quote, closing));
        rest = after.get(closing.len()..).unwrap_or_default();
    }
    rest
}

/// A name without its namespace.
pub(super) fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_attributes_are_masked_and_nothing_else_changes() {
        for (text, expected) in [
            ("<a><b>1</b><Token x='1'>abc</Token></a>", "<a><b>1</b><Token x='1'>#</Token></a>"),
            ("<s:password>a&lt;b</s:password>", "<s:password>#</s:password>"),
            ("<p name=\"password\">abc</p>", "<p name=\"password\">#</p>"),
            ("<a key=\"k\" b='>' apiKey='abc'/>c", "<a key=\"#\" b='>' apiKey='#'/>c"),
            ("<input name=\"password\" value=\"abc\">d", "<input name=\"password\" value=\"#\">#"),
            ("<meta content='abc' name='csrf-token'/>d", "<meta content='#' name='csrf-token'/>d"),
            ("<input name='user' value='shown'>", "<input name='user' value='shown'>"),
            ("<secret> <in>abc</in> </secret>shown", "<secret>#</secret>shown"),
            ("<secret> </secret>shown", "<secret> </secret>shown"),
            ("<pwd><a>1</a><b><pwd>2</pwd>3</b>4</pwd>shown", "<pwd>#</pwd>shown"),
            ("<s:pwd><x>1</x></s:pwd><b>shown</b>", "<s:pwd>#</s:pwd><b>shown</b>"),
            ("<pwd><x>1</x><!-- 2 --><?p 3?><y", "<pwd>#"),
            (
                "<max_tokens>100</max_tokens><a total_tokens='5'/>",
                "<max_tokens>100</max_tokens><a total_tokens='5'/>",
            ),
            (
                "<form name='session'><b>shown</b></form>",
                "<form name='session'><b>shown</b></form>",
            ),
            ("<param name='password'>abc</param>shown", "<param name='password'>#</param>shown"),
            ("<input name=password value=abc>", "<input name=password value=#>"),
            ("<input name='password'><b>shown</b>", "<input name='password'><b>shown</b>"),
            ("<pwd><![CDATA[a]]b]]></pwd>", "<pwd>#</pwd>"),
            ("<pwd/>shown", "<pwd/>shown"),
            ("<!-- <pwd> --><?pi a='>'?>shown", "<!-- <pwd> --><?pi a='>'?>shown"),
            ("<pwd>cut o", "<pwd>#"),
            ("<pwd><![CDATA[cut o", "<pwd>#"),
            ("<a token='cut o", "<a token='#"),
            ("<a b='<pwd>abc</pwd>", "<a b='<pwd>#</pwd>"),
            ("<add key='password' value='abc'/>d", "<add key='#' value='#'/>d"),
            ("<entry key='password'>abc</entry>d", "<entry key='#'>#</entry>d"),
            ("<input type='password' value='abc'/>d", "<input type='password' value='#'/>d"),
            ("<div id='session'>shown</div>", "<div id='session'>shown</div>"),
            ("<", "<"),
            ("", ""),
        ] {
            assert_eq!(masked(text), expected.replace('#', MASK), "{text}");
        }
    }
}
