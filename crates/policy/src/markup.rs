//! Finds HTML markup in text.

/// The elements of the HTML standard, in alphabetical order: those of its index of elements, and the obsolete ones that
/// browsers still show.
const ELEMENTS: &str = "\
    a abbr acronym address applet area article aside audio b base basefont bdi bdo bgsound big blink \
    blockquote body br button canvas caption center cite code col colgroup data datalist dd del details \
    dfn dialog dir div dl dt em embed fieldset figcaption figure font footer form frame frameset h1 h2 \
    h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd keygen label legend li link \
    listing main map mark marquee math menu menuitem meta meter multicol nav nextid nobr noembed \
    noframes noscript object ol optgroup option output p param picture plaintext pre progress q rb rp rt \
    rtc ruby s samp script search section select selectedcontent slot small source spacer span strike \
    strong style sub summary sup svg table tbody td template textarea tfoot th thead time title tr track \
    tt u ul var video wbr xmp";

/// The elements that pages use without attributes, and whose names are not words for a placeholder.
const STRUCTURE: &str = "\
    b blockquote body br center div dl em h1 h2 h3 h4 h5 h6 head hr html i li ol p pre span strong \
    table tbody td th thead tr ul wbr";

/// Returns true if a text contains an HTML comment, the HTML document type, or a tag that can only be HTML: a closing
/// tag, an opening tag with an attribute, or one of an element such as `p`. Other bare opening tags do not count, because
/// `<object>` and `<code>` are also placeholders. XML is not HTML, unless its root is `html`.
pub(super) fn is_html(text: &str) -> bool {
    let is_xml = is_xml(text);
    // All markup ends with this sign.
    let mut rest = text.rfind('>').and_then(|end| text.get(..=end)).unwrap_or_default();
    while let Some((_, behind)) = rest.split_once('<') {
        let is_markup = if is_xml {
            tag_name(behind).is_some_and(|name| name.eq_ignore_ascii_case("html"))
        } else {
            behind.starts_with("!--") || is_document_type(behind) || is_certain_tag(behind)
        };
        if is_markup {
            return true;
        }
        rest = behind;
    }
    false
}

/// Returns true if a text begins with a tag of an HTML element, an HTML comment, the HTML document type or an XML
/// declaration, after blanks.
pub(super) fn begins_with_markup(text: &str) -> bool {
    is_xml(text)
        || text.trim_start().strip_prefix('<').is_some_and(|behind| {
            behind.starts_with("!--")
                || is_document_type(behind)
                || tag_name(behind).is_some_and(is_element)
        })
}

fn is_xml(text: &str) -> bool {
    starts_with(text.trim_start(), "<?xml")
}

/// Returns true for a tag, without its opening `<`, that is not a placeholder such as `<object>`.
fn is_certain_tag(text: &str) -> bool {
    let Some(name) = tag_name(text).filter(|name| is_element(name)) else { return false };
    text.starts_with('/')
        || STRUCTURE.split_ascii_whitespace().any(|known| known.eq_ignore_ascii_case(name))
        || has_attribute(text.get(name.len()..).unwrap_or_default())
}

/// Returns true if the text behind the name of a tag has an attribute with a value.
fn has_attribute(text: &str) -> bool {
    let end = text.find(['<', '>']).unwrap_or(text.len());
    let attributes = text.get(..end).unwrap_or_default();
    attributes.split_once('=').is_some_and(|(names, _)| {
        names.trim_ascii_end().ends_with(|it: char| it.is_ascii_alphanumeric() || it == '-')
    })
}

/// Returns the name in a tag without its opening `<`.
fn tag_name(text: &str) -> Option<&str> {
    let text = text.strip_prefix('/').unwrap_or(text);
    let end = text.find(|it: char| !it.is_ascii_alphanumeric())?;
    let (name, rest) = text.split_at_checked(end)?;
    let is_whole = rest.starts_with(|it: char| it.is_ascii_whitespace() || matches!(it, '/' | '>'));
    is_whole.then_some(name)
}

fn is_element(name: &str) -> bool {
    ELEMENTS.split_ascii_whitespace().any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns true for `!DOCTYPE html` (HTML standard, section 13.1.1).
fn is_document_type(text: &str) -> bool {
    let word = "!doctype";
    starts_with(text, word)
        && text.get(word.len()..).is_some_and(|rest| {
            rest.starts_with(|it: char| it.is_ascii_whitespace())
                && starts_with(rest.trim_ascii_start(), "html")
        })
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_found_anywhere_and_in_any_case() {
        for text in [
            "<b>x</b>",
            "see <a href=\"/\">there</a>",
            "<H2>x</H2>",
            "<table\n><tr></tr\n>",
            "<meta charset=\"utf-8\">",
            "<INPUT disabled NAME = x>",
            "<a href=\u{fffc}>",
            "<a href=\"\u{fffc}\">",
            "<hr>",
            "<html>sorry",
            "<P>Hi",
            "<br/>",
            "x<br>",
            "</p>",
            "<img src=x >",
            "a < b <i>c</i>",
            "<!-- x -->",
            "\n<!DOCTYPE  HTML>",
            "<?xml version=\"1.0\"?><html lang=\"de\">",
        ] {
            assert!(is_html(text), "{text}");
        }
        for text in [
            "",
            "a < b > c",
            "a<b",
            "<b",
            "<bee>",
            "<b-x>",
            "<ns:b>",
            "<1>",
            "< b>",
            "<>",
            "</>",
            "<\u{fffc}b>",
            "<b\u{fffc}>",
            "<!doctype",
            "<!doctypehtml>",
            "<!doctype svg>",
            "<!--",
            "<?xml version=\"1.0\"?><feed><title>x</title></feed>",
            "me <me@a.test>",
            "GET /v1/<object>/<id>",
            "<code> <data> <time> <label> <source> <link> <title> <output>",
            "<object of that name>",
            "<object> a=b>",
            "<object =>",
            "<time \u{fffc}=>",
            "</id>",
        ] {
            assert!(!is_html(text), "{text}");
        }
    }

    #[test]
    fn markup_at_the_beginning_is_told_from_text() {
        for text in ["<b>x", "\n <A HREF=x", "<!-- x", "<!doctype html>", "<?xml ?>", "</p>"] {
            assert!(begins_with_markup(text), "{text}");
        }
        for text in ["", "x <b>", "\u{fffc}<b>", "<\u{fffc}b>", "<id>", "<", "{<b>"] {
            assert!(!begins_with_markup(text), "{text}");
        }
    }
}
