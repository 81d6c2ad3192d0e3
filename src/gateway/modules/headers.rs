//! Headers that are removed and added.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What is done to the headers of a message: removed first, then added.
#[derive(Debug, Default)]
pub(crate) struct HeaderEdits {
    add: Vec<(HeaderName, HeaderValue)>,
    remove: Vec<HeaderName>,
}

impl HeaderEdits {
    /// Reads changes; what HTTP cannot carry, and what says where a message ends, is left out.
    pub(crate) fn new<'a>(
        add: impl Iterator<Item = (&'a String, &'a String)>,
        remove: impl Iterator<Item = &'a String>,
    ) -> Self {
        let name = |name: &String| HeaderName::from_bytes(name.as_bytes()).ok().filter(is_free);
        let header = |(field, value): (&String, &String)| {
            Some((name(field)?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
        };
        Self { add: add.filter_map(header).collect(), remove: remove.filter_map(name).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in self.remove.iter().filter(|name| *name != HOST) {
            headers.remove(name);
        }
        for (name, value) in &self.add {
            // A message has one host.
            if name == HOST {
                headers.insert(name, value.clone());
            } else {
                headers.append(name, value.clone());
            }
        }
    }
}

fn is_free(name: &HeaderName) -> bool {
    ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name)
}
