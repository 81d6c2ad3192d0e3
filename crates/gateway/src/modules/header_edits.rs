//! Headers that are removed and added.

use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_http1::is_framing;
use ginnel_policy::head_change::{remove_spellings, remove_twins};

use crate::modules::edge_module::{InvalidModule, ModuleResult};

/// What is done to the headers of a message: removed first, then added.
#[derive(Debug, Default)]
pub struct HeaderEdits {
    add: Vec<(HeaderName, HeaderValue)>,
    remove: Vec<HeaderName>,
}

impl HeaderEdits {
    /// Reads changes; what HTTP cannot carry, and what says where a message ends, is left out. None
    /// where nothing is left.
    pub fn new<'a>(
        add: impl Iterator<Item = (&'a String, &'a String)>,
        remove: impl Iterator<Item = &'a String>,
    ) -> Option<Self> {
        let name = |name: &String| {
            HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !is_framing(name))
        };
        let header = |(field, value): (&String, &String)| {
            Some((name(field)?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
        };
        let add: Vec<_> = add.filter_map(header).collect();
        let remove: Vec<_> = remove.filter_map(name).collect();
        (!add.is_empty() || !remove.is_empty()).then_some(Self { add, remove })
    }

    /// Changes the headers of a request, also where they are spelled in a way that CGI and WSGI take for
    /// the same name.
    pub fn apply_to_request(&self, headers: &mut HeaderMap) {
        for name in self.remove.iter().filter(|name| *name != HOST) {
            remove_spellings(headers, name);
        }
        for (name, _) in &self.add {
            remove_twins(headers, name);
        }
        self.add_to(headers);
    }

    /// Changes the headers of a response.
    pub fn apply_to_response(&self, headers: &mut HeaderMap) {
        for name in self.remove.iter().filter(|name| *name != HOST) {
            headers.remove(name);
        }
        self.add_to(headers);
    }

    fn add_to(&self, headers: &mut HeaderMap) {
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

/// Refuses headers that HTTP cannot carry.
pub fn check<'a>(
    add: impl Iterator<Item = (&'a String, &'a String)>,
    mut remove: impl Iterator<Item = &'a String>,
) -> ModuleResult<()> {
    for (name, value) in add {
        check_header("add", name, value)?;
    }
    remove.try_for_each(|name| check_name("remove", name))
}

/// Refuses a header that HTTP cannot carry.
pub fn check_header(field: &str, name: &str, value: &str) -> ModuleResult<()> {
    check_name(field, name)?;
    if HeaderValue::from_bytes(value.as_bytes()).is_ok() {
        return Ok(());
    }
    let message = format!("{field}.{name}: holds a character that header values may not hold");
    Err(InvalidModule::from_message(message))
}

fn check_name(field: &str, name: &str) -> ModuleResult<()> {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok(()),
        Err(_) => Err(InvalidModule::from_message(format!(
            "{field}: {name:?} is not the name of a header"
        ))),
    }
}
