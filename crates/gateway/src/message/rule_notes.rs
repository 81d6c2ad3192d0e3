//! What an agent learns of the rules that acted on a request: a header that it alone knows, and takes out.

use http::{HeaderName, HeaderValue, Request};

/// How much is said of all rules together; later ones are left out.
const MAX_NOTES_BYTES: usize = 4 << 10;

/// What is to be said of the rules that acted on a request.
#[derive(Debug, Default, Clone)]
pub struct RuleNotes(pub Vec<HeaderValue>);

/// Adds the header that a target asks for to a request, if a rule has acted. Returns its name, so that the
/// header can be removed before the request goes elsewhere.
pub fn add_notes<B>(request: &mut Request<B>, header: Option<&HeaderName>) -> Option<HeaderName> {
    let RuleNotes(notes) = request.extensions().get()?;
    let name = header?.clone();
    let value = HeaderValue::from_bytes(&join_notes(notes)?).ok()?;
    request.headers_mut().insert(name.clone(), value);
    Some(name)
}

/// The value of the header; none where there is nothing to say.
pub fn join_notes<'n>(notes: impl IntoIterator<Item = &'n HeaderValue>) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for note in notes {
        if value.len() + 1 + note.len() > MAX_NOTES_BYTES {
            break;
        }
        if !value.is_empty() {
            value.push(b' ');
        }
        value.extend_from_slice(note.as_bytes());
    }
    Some(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_do_not_fit_are_left_out() {
        let note = HeaderValue::from_static("abc");
        let long = HeaderValue::try_from("x".repeat(MAX_NOTES_BYTES - 3));

        assert_eq!(join_notes([&note, &note]).as_deref(), Some(&b"abc abc"[..]));
        assert_eq!(join_notes([&note, &long.unwrap_or(note.clone())]).map(|it| it.len()), Some(3));
        assert_eq!(join_notes([]), None);
    }
}
