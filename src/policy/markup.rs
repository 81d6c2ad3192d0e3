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

/// Returns true if a text contains a tag of an HTML element, an HTML comment or the HTML document type. XML is not
/// HTML, unless its root is `html`.
pub(super) fn is_html(text: &str) -> bool {
    let is_xml = starts_with(text.trim_start(), "<?xml");
    // All markup ends with this sign.
    let mut rest = text.rfind('>').and_then(|end| text.get(..=end)).unwrap_or_default();
    while let Some((_, behind)) = rest.split_once('<') {
        let is_markup = if is_xml {
            tag(behind).is_some_and(|name| name.eq_ignore_ascii_case("html"))
        } else {
            behind.starts_with("!--")
                || is_document_type(behind)
                || tag(behind).is_some_and(is_element)
        };
        if is_markup {
            return true;
        }
        rest = behind;
    }
    false
}

/// Returns the name in a tag without its opening `<`.
fn tag(text: &str) -> Option<&str> {
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
            "<H2>x",
            "<table\n><tr>",
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
        ] {
            assert!(!is_html(text), "{text}");
        }
    }
}
