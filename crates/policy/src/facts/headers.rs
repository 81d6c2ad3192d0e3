//! Headers as a map of lists, in which upper and lower case are the same. In requests, the spellings that CGI and
//! WSGI cannot tell apart are the same as well.

use std::borrow::Cow;
use std::sync::OnceLock;

use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Iterator as Entries, Sizer};
use cel::common::types::{CelInt, CelList, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, Val};
use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_http1::SpelledValues;

use super::super::expression::pay_for_view;
use super::plain::readable_value;
use super::source::Message;
use super::text_list;

/// Headers as a map of lists of texts; nothing is copied.
#[derive(Debug, Clone)]
pub(in super::super) struct HeaderMapFact<'h> {
    message: Message,
    headers: &'h HeaderMap,
    names: OnceLock<Vec<CelString<'h>>>,
}

impl<'h> HeaderMapFact<'h> {
    pub(in super::super) fn new(message: Message, headers: &'h HeaderMap) -> Self {
        Self { message, headers, names: OnceLock::new() }
    }

    fn header_values(&self, name: &str) -> Option<CelList<'h>> {
        // A text that cannot be a name is the name of no header.
        let name = HeaderName::try_from(name).ok()?;
        let values: Vec<_> = match self.message {
            Message::Request => {
                SpelledValues::new(self.headers, name.as_str()).map(header_text).collect()
            }
            Message::Response => self.headers.get_all(&name).iter().map(header_text).collect(),
        };
        (!values.is_empty()).then(|| text_list(values))
    }

    fn header_names(&self) -> &[CelString<'h>] {
        self.names.get_or_init(|| self.headers.keys().map(|it| it.as_str().into()).collect())
    }
}

fn header_text(value: &HeaderValue) -> CelString<'_> {
    match readable_value(value) {
        Cow::Borrowed(text) => CelString::from(text),
        Cow::Owned(text) => CelString::from(text),
    }
}

impl Val for HeaderMapFact<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }
}

impl Container for HeaderMapFact<'_> {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        let name = value.downcast_ref::<CelString>();
        let name = name.and_then(|name| HeaderName::try_from(name.inner()).ok());
        Ok(name
            .is_some_and(|name| self.message.header_values(self.headers, &name).next().is_some()))
    }
}

impl Indexer for HeaderMapFact<'_> {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = index.downcast_ref::<CelString>().map(CelString::inner).unwrap_or_default();
        let values = self.header_values(name).ok_or_else(|| ExecutionError::no_such_key(name))?;
        pay_for_view(values.len())?;
        Ok(CowVal::owned(values))
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

impl Sizer for HeaderMapFact<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.headers.keys_len()).unwrap_or(i64::MAX))
    }
}

impl Iterable for HeaderMapFact<'_> {
    fn iter<'b, 'v>(&'b self) -> Box<dyn Entries<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(HeaderNames(self.header_names().iter()))
    }
}

struct HeaderNames<'b, 'h>(std::slice::Iter<'b, CelString<'h>>);

impl<'b, 'v, 'h: 'v> Entries<'b, 'v> for HeaderNames<'b, 'h> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|name| name as &'b (dyn Val + 'v))
    }
}
