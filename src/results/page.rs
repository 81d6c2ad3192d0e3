//! A page of a list.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3::{PyTraverseError, PyVisit};

use super::json::JsonReader;
use super::plan::ClassPlan;
use super::problem::{DecodeProblem, DecodeResult};
use super::read_record;
use super::recent::RecentTexts;
use super::time_budget::TimeBudget;

/// A page: its items, its own address and that of the next page.
pub(crate) type ResultPage<'py> = (Bound<'py, PyList>, Option<String>, Option<String>);

/// A page that is being read.
pub(super) struct PageTree {
    field: Cow<'static, str>,
    plan: Arc<ClassPlan>,
    items: Py<PyList>,
    uri: Option<String>,
    next_page_uri: Option<String>,
    /// Whether the field of the items came.
    is_list: bool,
    step: PageStep,
}

/// What comes next.
enum PageStep {
    Start,
    Member,
    Item,
}

impl PageTree {
    pub(super) fn new(py: Python<'_>, field: Cow<'static, str>, plan: Arc<ClassPlan>) -> Self {
        let items = PyList::empty(py).unbind();
        let (uri, next_page_uri) = (None, None);
        Self { field, plan, items, uri, next_page_uri, is_list: false, step: PageStep::Start }
    }

    /// Reads until the page is complete, or until it is time to stop.
    pub(super) fn advance<'py>(
        &mut self,
        py: Python<'py>,
        json: &mut JsonReader<'_>,
        budget: &mut TimeBudget,
    ) -> DecodeResult<Option<ResultPage<'py>>> {
        loop {
            let more = match self.step {
                PageStep::Start => {
                    json.begin_container(b'{', b'}', "a value that is not an object")?
                }
                PageStep::Member => {
                    if self.read_member(py, json)? {
                        self.step = PageStep::Item;
                        continue;
                    }
                    json.take_separator(b'}')?
                }
                PageStep::Item => {
                    if !self.read_items(py, json, budget)? {
                        return Ok(None);
                    }
                    json.take_separator(b'}')?
                }
            };
            self.step = PageStep::Member;
            if !more {
                return self.finish_page(py).map(Some);
            }
        }
    }

    /// Takes a member; true where items follow.
    fn read_member(&mut self, py: Python<'_>, json: &mut JsonReader<'_>) -> DecodeResult<bool> {
        let key = json.take_key()?.name;
        match &*key {
            "uri" => {
                self.uri =
                    read_optional_text(json).map_err(|problem| problem.within_field("uri"))?
            }
            "next_page_uri" => {
                let address = read_optional_text(json)
                    .map_err(|problem| problem.within_field("next_page_uri"))?;
                // Some servers write an empty text at the end of a list.
                self.next_page_uri = address.filter(|address| !address.is_empty());
            }
            name if name == self.field => return self.begin_list(py, json),
            name => json.skip_value().map_err(|problem| problem.within_field(name))?,
        }
        Ok(false)
    }

    /// Begins the list; what an earlier field of that name held does not count.
    fn begin_list(&mut self, py: Python<'_>, json: &mut JsonReader<'_>) -> DecodeResult<bool> {
        if self.is_list {
            self.items = PyList::empty(py).unbind();
        }
        self.is_list = true;
        // How some servers write a list without items.
        if json.takes_null() {
            return Ok(false);
        }
        Ok(json
            .begin_container(b'[', b']', "a value that is not an array")
            .map_err(|problem| problem.within_field(&self.field))?)
    }

    /// Reads items; true at the end of the list, false when it is time to stop.
    fn read_items(
        &mut self,
        py: Python<'_>,
        json: &mut JsonReader<'_>,
        budget: &mut TimeBudget,
    ) -> DecodeResult<bool> {
        let items = self.items.bind(py);
        let mut recent = RecentTexts::default();
        loop {
            let item = read_record(py, json, &self.plan, &mut recent)
                .map_err(|problem| problem.within_item(items.len()).within_field(&self.field))?;
            items.append(item)?;
            if !json.take_separator(b']')? {
                return Ok(true);
            }
            if budget.is_over(json.read_bytes()) {
                return Ok(false);
            }
        }
    }

    fn finish_page<'py>(&mut self, py: Python<'py>) -> DecodeResult<ResultPage<'py>> {
        if !self.is_list {
            return Err(DecodeProblem::for_field(&self.field, "is missing").into());
        }
        Ok((self.items.bind(py).clone(), self.uri.take(), self.next_page_uri.take()))
    }

    /// Shows the objects of a page that is not complete to the collector of garbage.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.items)
    }
}

fn read_optional_text(json: &mut JsonReader<'_>) -> Result<Option<String>, DecodeProblem> {
    if json.takes_null() { Ok(None) } else { Ok(Some(json.take_string()?.into_owned())) }
}
