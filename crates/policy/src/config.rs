//! Reads the configuration of an action, field by field.
//!
//! Every reader records what is wrong and answers with something harmless, so that one pass finds
//! all problems; a document with problems is never used.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value};

use ginnel_api::policy_document::{STATUS_CODE, TypedField};

use super::Phase;
use super::checker::{Checker, parse_duration};
use super::fields::{field_faults, find_field};
use super::problem::{DocumentPath, code};
use super::template::{PatternTemplate, Template};

/// The statuses of responses: those below 200 are interim (RFC 9110, section 15.2), and a visitor would wait for the
/// response.
pub(super) const FINAL_STATUS: RangeInclusive<u16> = 200..=599;

/// An object of a configuration, and which of its fields have been asked for.
pub(super) struct Config<'a> {
    checker: &'a mut Checker,
    place: DocumentPath,
    fields: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
}

impl<'a> Config<'a> {
    /// Opens an object; null is an object without fields.
    pub(super) fn from_value(
        checker: &'a mut Checker,
        place: DocumentPath,
        value: &'a Value,
    ) -> Self {
        if !value.is_object() && !value.is_null() {
            checker.record_problem(&place, code::CONFIG, "must be an object");
        }
        Self { checker, place, fields: value.as_object(), known: Vec::new() }
    }

    /// Refuses the fields that nobody has asked for, or that are there twice.
    pub(super) fn reject_unknown_fields(self) {
        for (name, fault) in self.fields.iter().flat_map(|fields| field_faults(fields, &self.known))
        {
            self.checker.record_problem(&self.place.field(name), code::CONFIG, fault);
        }
    }

    /// When the action runs.
    pub(super) fn phase(&self) -> Phase {
        self.checker.phase
    }

    /// Records a problem with a field.
    pub(super) fn record_problem(&mut self, name: &str, code: u16, message: impl Into<String>) {
        self.checker.record_problem(&self.place.field(name), code, message);
    }

    /// Records a problem with an entry that [`Config::list_entries`] gave.
    pub(super) fn record_problem_at(
        &mut self,
        place: &DocumentPath,
        code: u16,
        message: impl Into<String>,
    ) {
        self.checker.record_problem(place, code, message);
    }

    /// Gives the problems found since `start` the code that the action has for all of its own.
    ///
    /// Unknown fields and bad templates keep theirs.
    pub(super) fn override_codes(&mut self, start: usize, code: u16) {
        let kept = [code::CONFIG, code::TEMPLATE, code::TEMPLATE_EXPRESSION];
        let found = self.checker.problems.iter_mut().skip(start);
        found.filter(|it| !kept.contains(&it.code)).for_each(|it| it.code = code);
    }

    /// How many problems there are so far.
    pub(super) fn problem_count(&self) -> usize {
        self.checker.problems.len()
    }

    /// A field, unless it is missing or null.
    pub(super) fn field_value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        find_field(self.fields?, name).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub(super) fn required_field(&mut self, name: &'static str) -> Option<&'a Value> {
        let value = self.field_value(name);
        if value.is_none() {
            self.record_problem(name, code::EMPTY, format!("{name} is required"));
        }
        value
    }

    /// A truth, or the default.
    pub(super) fn bool_field(&mut self, field: TypedField, default: bool) -> bool {
        let name = field.name();
        let Some(value) = self.field_value(name) else { return default };
        value.as_bool().unwrap_or_else(|| {
            self.record_problem(name, code::CONFIG, format!("{name} must be true or false"));
            default
        })
    }

    /// A whole number within limits, or the default.
    pub(super) fn integer_field(
        &mut self,
        field: TypedField,
        default: Option<u64>,
        limits: RangeInclusive<u64>,
    ) -> u64 {
        let name = field.name();
        let value =
            if default.is_some() { self.field_value(name) } else { self.required_field(name) };
        let fallback = default.unwrap_or_default();
        let Some(value) = value else { return fallback };
        if !(value.is_i64() || value.is_u64()) {
            self.record_problem(name, code::CONFIG, format!("{name} must be a whole number"));
            return fallback;
        }
        let number = value.as_u64().filter(|number| limits.contains(number));
        number.unwrap_or_else(|| {
            let (least, most) = limits.into_inner();
            self.record_problem(
                name,
                code::RANGE,
                format!("{name} must be from {least} to {most}"),
            );
            fallback
        })
    }

    /// An HTTP status within limits, or the default.
    pub(super) fn status_field(&mut self, default: u16, limits: RangeInclusive<u16>) -> u16 {
        let (least, most) = limits.into_inner();
        let limits = u64::from(least)..=u64::from(most);
        self.integer_field(STATUS_CODE, Some(default.into()), limits).try_into().unwrap_or(default)
    }

    /// A number within limits, or the default.
    pub(super) fn number_field(
        &mut self,
        field: TypedField,
        default: f64,
        limits: RangeInclusive<f64>,
    ) -> f64 {
        let name = field.name();
        let Some(value) = self.field_value(name) else { return default };
        let Some(number) = value.as_f64() else {
            self.record_problem(name, code::CONFIG, format!("{name} must be a number"));
            return default;
        };
        if !limits.contains(&number) {
            let (least, most) = limits.into_inner();
            self.record_problem(
                name,
                code::RANGE,
                format!("{name} must be from {least} to {most}"),
            );
        }
        number
    }

    /// A text.
    pub(super) fn text_field(&mut self, name: &'static str) -> Option<&'a str> {
        let value = self.field_value(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.record_problem(name, code::CONFIG, format!("{name} must be a text"));
        }
        text
    }

    /// One of several words, or the default.
    pub(super) fn choice_field<T: Copy>(
        &mut self,
        name: &'static str,
        code: u16,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text_field(name)?;
        let chosen = words.iter().find(|(word, _)| *word == text);
        if chosen.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.record_problem(name, code, format!("{name} must be one of {}", words.join(", ")));
        }
        chosen.map(|(_, value)| *value)
    }

    /// A duration within limits, or the default.
    pub(super) fn duration_field(
        &mut self,
        name: &'static str,
        default: Duration,
        limits: RangeInclusive<Duration>,
    ) -> Duration {
        let Some(text) = self.text_field(name) else { return default };
        let Some(duration) = parse_duration(text) else {
            self.record_problem(
                name,
                code::DURATION,
                format!("{name} must be a duration such as 90s"),
            );
            return default;
        };
        if !limits.contains(&duration) {
            let (least, most) = (limits.start().as_secs(), limits.end().as_secs());
            let message = format!("{name} must be from {least}s to {most}s");
            self.record_problem(name, code::RANGE, message);
        }
        duration
    }

    /// A text with expressions.
    pub(super) fn template_field(&mut self, name: &'static str) -> Option<Template> {
        let text = self.text_field(name)?;
        Some(self.checker.compile_template(&self.place.field(name), text))
    }

    /// A text with expressions that must be there and not be empty.
    pub(super) fn required_template(&mut self, name: &'static str) -> Template {
        let Some(value) = self.required_field(name) else { return Template::default() };
        if value.as_str() == Some("") {
            self.record_problem(name, code::EMPTY, format!("{name} must not be empty"));
        }
        self.template_field(name).unwrap_or_default()
    }

    /// A regular expression with expressions in it.
    pub(super) fn pattern_field(&mut self, name: &'static str) -> Option<PatternTemplate> {
        let template = self.template_field(name)?;
        self.checker.compile_pattern(&self.place.field(name), template)
    }

    /// The entries of a list with so many entries; a list that is missing is empty.
    pub(super) fn list_entries(
        &mut self,
        name: &'static str,
        limits: RangeInclusive<usize>,
    ) -> Vec<(DocumentPath, &'a Value)> {
        let (least, most) = limits.into_inner();
        let value = if least > 0 { self.required_field(name) } else { self.field_value(name) };
        let Some(value) = value else { return Vec::new() };
        let Some(entries) = value.as_array() else {
            self.record_problem(name, code::CONFIG, format!("{name} must be a list"));
            return Vec::new();
        };
        if entries.len() < least {
            self.record_problem(name, code::EMPTY, format!("{name} must not be empty"));
        }
        if entries.len() > most {
            self.record_problem(
                name,
                code::ENTRIES,
                format!("{name} has more than {most} entries"),
            );
            return Vec::new();
        }
        let place = self.place.field(name);
        entries.iter().enumerate().map(|(index, entry)| (place.entry(index), entry)).collect()
    }

    /// The entries of a list of texts.
    pub(super) fn text_entries(
        &mut self,
        name: &'static str,
        limits: RangeInclusive<usize>,
    ) -> Vec<(DocumentPath, &'a str)> {
        let entries = self.list_entries(name, limits);
        let text = |(place, entry): (DocumentPath, &'a Value)| match entry.as_str() {
            Some(text) => Some((place, text)),
            None => {
                self.record_problem_at(&place, code::CONFIG, "must be a text");
                None
            }
        };
        entries.into_iter().filter_map(text).collect()
    }

    /// The part of the checker that compiles things, for entries of lists.
    pub(super) fn checker(&mut self) -> &mut Checker {
        self.checker
    }

    /// Where the object is.
    pub(super) fn place(&self) -> &DocumentPath {
        &self.place
    }

    /// Opens an object inside this one.
    pub(super) fn open_entry(&mut self, place: DocumentPath, value: &'a Value) -> Config<'_> {
        Config::from_value(self.checker, place, value)
    }

    /// Opens an object that is a field of this one; a missing one is without fields.
    pub(super) fn open_object(&mut self, name: &'static str) -> Config<'_> {
        let value = self.field_value(name).unwrap_or(&Value::Null);
        let place = self.place.field(name);
        Config::from_value(self.checker, place, value)
    }
}
