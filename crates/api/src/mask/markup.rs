//! Masks secrets in XML, even where it is cut off.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::escapes::{Entities, escape_markup, resolve_references};
use super::labels::{LabelReach, PairRole, pair_role};
use super::pieces::{Pieces, VOID_ELEMENTS, local_name, tag_name};
use super::{MASK, markup_pairs};
use crate::secrets::{is_secret, is_visible_scalar};

/// A function that masks a text.
type MaskText<'f> = &'f dyn Fn(&str) -> String;

/// The declaration of an entity with its text.
const ENTITY: &str = r#"<!ENTITY\s+(?:%\s+)?([^\s"'<>]+)\s+(?:"([^"]*)"|'([^']*)')"#;

/// The text with the attributes masked whose names are secret, and all that is in elements that are.
/// An element is secret by its own name, by the name that an attribute gives it, or because the element before it or
/// next to it has the name of a secret.
///
/// `mask` masks texts and attributes that are written with references.
pub(super) fn mask_markup(text: &str, mask: MaskText<'_>) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut secret: Option<SecretElement<'_>> = None;
    let entities = declared_entities(text);
    let pairs = markup_pairs::secret_values(text, &entities);
    for (start, piece) in Pieces::of(text) {
        if let Some(element) = secret.as_mut() {
            if element.ends_at(piece) {
                element.write_masked(&mut masked);
                masked.push_str(piece);
                secret = None;
                continue;
            }
            if !element.is_void || !piece.starts_with('<') {
                element.hides_some |= !piece.trim().is_empty();
                element.content.push_str(piece);
                continue;
            }
            element.write_masked(&mut masked);
            secret = None;
        }
        match piece.as_bytes() {
            [b'<', b'!', ..] => masked.push_str(&mask_declaration(piece)),
            [b'<', b'?' | b'/', ..] => masked.push_str(piece),
            [b'<', first, ..] if !first.is_ascii_whitespace() => {
                let pair = pairs.get(&start).map(String::as_str);
                let is_secret = write_tag(piece, (&entities, mask), &mut masked) || pair.is_some();
                if is_secret && !piece.ends_with("/>") {
                    secret = Some(SecretElement::new(piece, pair));
                }
            }
            _ => masked.push_str(&with_references(piece, &entities, mask)),
        }
    }
    if let Some(element) = &secret {
        element.write_masked(&mut masked);
    }
    masked
}

/// Returns the texts of the entities that a document declares.
fn declared_entities(text: &str) -> Entities<'_> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ENTITY).ok());
    let pattern = PATTERN.as_ref().filter(|_| text.contains("<!ENTITY"));
    let found = pattern.iter().flat_map(|pattern| pattern.captures_iter(text));
    let pairs = found.filter_map(|found| found.get(1).zip(found.get(2).or(found.get(3))));
    Entities::new(pairs.map(|(name, text)| (name.as_str(), text.as_str())).collect(), text.len())
}

/// Returns a declaration without the text of an entity and without the default of a secret attribute.
///
/// The text of an entity may be used in any element. Those that are only references to characters stay.
fn mask_declaration(piece: &str) -> Cow<'_, str> {
    static LITERAL: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"("[^"]*"?|'[^']*'?)"#).ok());
    static CHARACTERS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"^["'](?:&#?[A-Za-z0-9]{1,10};)*["']?$"#).ok());
    let is_external = || piece.contains(" SYSTEM ") || piece.contains(" PUBLIC ");
    let hides = match piece {
        piece if piece.starts_with("<!ENTITY") => !is_external(),
        piece if piece.starts_with("<!ATTLIST") => {
            piece.split_whitespace().any(|word| is_secret(word.trim_matches(['"', '\''])))
        }
        _ => false,
    };
    let Some((literal, characters)) = LITERAL.as_ref().zip(CHARACTERS.as_ref()) else {
        return MASK.into();
    };
    match hides {
        true => literal.replace_all(piece, |found: &regex::Captures<'_>| {
            let written = found.get(0).map_or("", |it| it.as_str());
            let quote = written.get(..1).unwrap_or_default();
            match characters.is_match(written) {
                true => written.to_owned(),
                false => [quote, MASK, quote].concat(),
            }
        }),
        false => piece.into(),
    }
}

/// Returns a text whose secrets are hidden if they are written with references.
fn with_references<'a>(
    piece: &'a str,
    entities: &Entities<'_>,
    mask: MaskText<'_>,
) -> Cow<'a, str> {
    if !piece.contains('&') {
        return piece.into();
    }
    let read = resolve_references(piece, entities);
    if read == piece {
        return piece.into();
    }
    let shown = mask(&read);
    match shown == read {
        true => piece.into(),
        false => escape_markup(&shown).into(),
    }
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

    fn write_masked(&self, masked: &mut String) {
        let is_visible = !self.hides_some || is_visible_scalar(self.secret, &self.content, false);
        masked.push_str(if is_visible { &self.content } else { MASK });
    }
}

/// The attribute of `meta` that has a value, besides those that [`pair_role`] knows.
const CONTENT: &str = "content";
/// Attributes that name the value of a tag, but not the content of its element.
const TAG_NAMES: [&str; 5] = ["id", "type", "path", "pointer", "loc"];

/// Writes a tag with its secret attributes masked, and returns true if its element is secret.
fn write_tag(
    piece: &str,
    (entities, mask): (&Entities<'_>, MaskText<'_>),
    masked: &mut String,
) -> bool {
    let name_end = piece.find([' ', '\t', '\r', '\n', '/', '>']).unwrap_or(piece.len());
    let (name, attributes) = piece.split_at(name_end);
    // A form is not a field: its name is not that of a value.
    let is_form = tag_name(piece).eq_ignore_ascii_case("form");
    let (mut is_named, mut reach) = (false, None);
    each_attribute(attributes, |_, name, value| {
        let text = resolve_references(value.0, entities);
        let is_tag_name = TAG_NAMES.iter().any(|known| name.eq_ignore_ascii_case(known));
        let found = match pair_role(name) {
            Some(PairRole::Name) => LabelReach::from_label(name, &text),
            _ if is_tag_name => is_secret(&text).then_some(LabelReach::Values),
            _ => None,
        };
        reach = reach.max(found.filter(|_| !is_form || is_tag_name));
        is_named |= found.is_some() && !is_tag_name && !is_form;
    });
    masked.push_str(name);
    let rest = each_attribute(attributes, |before, name, (value, quote, end)| {
        let role = match name.eq_ignore_ascii_case(CONTENT) {
            true => Some(PairRole::Value),
            false => pair_role(name),
        };
        let is_value = reach.zip(role).is_some_and(|(reach, role)| reach.hides_role(role));
        let is_masked = (is_secret(&resolve_references(name, entities)) || is_value)
            && !value.is_empty()
            && !is_visible_scalar(name, value, false);
        let shown = if is_masked { MASK.into() } else { with_references(value, entities, mask) };
        masked.extend([before, quote, &*shown, end]);
    });
    masked.push_str(rest);
    let element = local_name(name.trim_start_matches('<'));
    // In listings and property lists, the element is the name of a file or a label.
    let is_key = element.eq_ignore_ascii_case("key");
    let is_name =
        !element.contains(|letter: char| letter.is_ascii_punctuation() && !"_-.".contains(letter));
    is_named || is_name && !is_key && is_secret(element)
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
        each(before, local_name(name.unwrap_or_default()), (value, quote, closing));
        rest = after.get(closing.len()..).unwrap_or_default();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::text;

    fn masked(source: &str) -> String {
        super::mask_markup(source, &|inner| text(inner).into_owned())
    }

    #[test]
    fn elements_and_attributes_are_masked_and_nothing_else_changes() {
        for (text, expected) in [
            ("<a><b>1</b><Token x='1'>abc</Token></a>", "<a><b>1</b><Token x='1'>$</Token></a>"),
            ("<s:password>a&lt;b</s:password>", "<s:password>$</s:password>"),
            ("<p name=\"password\">abc</p>", "<p name=\"password\">$</p>"),
            ("<a key=\"k\" b='>' apiKey='abc'/>c", "<a key=\"$\" b='>' apiKey='$'/>c"),
            ("<input name=\"password\" value=\"abc\">d", "<input name=\"password\" value=\"$\">$"),
            ("<meta content='abc' name='csrf-token'/>d", "<meta content='$' name='csrf-token'/>d"),
            ("<input name='user' value='shown'>", "<input name='user' value='shown'>"),
            ("<secret> <in>abc</in> </secret>shown", "<secret>$</secret>shown"),
            ("<secret> </secret>shown", "<secret> </secret>shown"),
            ("<pwd><a>1</a><b><pwd>2</pwd>3</b>4</pwd>shown", "<pwd>$</pwd>shown"),
            ("<s:pwd><x>1</x></s:pwd><b>shown</b>", "<s:pwd>$</s:pwd><b>shown</b>"),
            ("<pwd><x>1</x><!-- 2 --><?p 3?><y", "<pwd>$"),
            (
                "<max_tokens>100</max_tokens><a total_tokens='5'/>",
                "<max_tokens>100</max_tokens><a total_tokens='5'/>",
            ),
            (
                "<form name='session'><b>shown</b></form>",
                "<form name='session'><b>shown</b></form>",
            ),
            ("<param name='password'>abc</param>shown", "<param name='password'>$</param>shown"),
            ("<input name=password value=abc>", "<input name=password value=$>"),
            ("<input name='password'><b>shown</b>", "<input name='password'><b>shown</b>"),
            ("<pwd><![CDATA[a]]b]]></pwd>", "<pwd>$</pwd>"),
            ("<pwd/>shown", "<pwd/>shown"),
            ("<!-- <pwd> --><?pi a='>'?>shown", "<!-- <pwd> --><?pi a='>'?>shown"),
            ("<pwd>cut o", "<pwd>$"),
            ("<pwd><![CDATA[cut o", "<pwd>$"),
            ("<a token='cut o", "<a token='$"),
            ("<a b='<pwd>abc</pwd>", "<a b='<pwd>$</pwd>"),
            ("<add key='password' value='abc'/>d", "<add key='$' value='$'/>d"),
            ("<entry key='password'>abc</entry>d", "<entry key='$'>$</entry>d"),
            ("<input type='password' value='abc'/>d", "<input type='password' value='$'/>d"),
            ("<div id='session'>shown</div>", "<div id='session'>shown</div>"),
            ("<p name='pass&#119;ord'>abc</p>", "<p name='pass&#119;ord'>$</p>"),
            ("<p name='pass&#x77;ord' value='abc'/>", "<p name='pass&#x77;ord' value='$'/>"),
            ("<p pass&#119;ord='abc'/>", "<p pass&#119;ord='$'/>"),
            ("<p field='password' text='abc'/>d", "<p field='password' text='$'/>d"),
            ("<p>pass&#119;ord=abc</p>", "<p>password=$</p>"),
            (
                "<p d='{&quot;token&quot;:&quot;abc&quot;}'/>",
                "<p d='{&quot;token&quot;:&quot;$&quot;}'/>",
            ),
            ("<p>a &amp; b, shown</p>", "<p>a &amp; b, shown</p>"),
            (
                "<!DOCTYPE a [<!ENTITY p \"abc\"><!ENTITY n '&#160;'>]><a>&p;</a>",
                "<!DOCTYPE a [<!ENTITY p \"$\"><!ENTITY n '&#160;'>]><a>&p;</a>",
            ),
            (
                "<!DOCTYPE a [<!ENTITY p '<b>abc</b>'>]><pwd>&p;</pwd>",
                "<!DOCTYPE a [<!ENTITY p '$'>]><pwd>$</pwd>",
            ),
            (
                "<!DOCTYPE a [<!ENTITY w 'w'>]><p name='pass&w;ord'>abc</p>",
                "<!DOCTYPE a [<!ENTITY w '$'>]><p name='pass&w;ord'>$</p>",
            ),
            ("<!ATTLIST a password CDATA 'abc'>", "<!ATTLIST a password CDATA '$'>"),
            (
                "<Contents><Key>a/shown.jpg</Key></Contents>",
                "<Contents><Key>a/shown.jpg</Key></Contents>",
            ),
            ("<token_type>shown</token_type>", "<token_type>shown</token_type>"),
            ("<cardNumber>4111</cardNumber>", "<cardNumber>$</cardNumber>"),
            ("a <tokens.length; b> shown", "a <tokens.length; b> shown"),
            ("a < token b < 5", "a < token b < 5"),
            ("<", "<"),
            ("", ""),
        ] {
            assert_eq!(masked(text), expected.replace('$', MASK), "{text}");
        }
    }
}
