//! A list of rules that can be changed at any time.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use super::matcher::{RequestMatcher, RequestView, ascii_host};

/// How many rules of one kind there may be.
const MAX_RULES: usize = 100;
/// How long an identifier may be.
const MAX_ID_BYTES: usize = 64;

/// What a rule does with a request that matches.
pub trait RuleAction: Sized {
    /// What such a rule is called.
    const KIND: &'static str;

    /// The fields that have a value although nobody gave one.
    fn default_fields() -> Value;

    /// Fields of which only the one that was given last counts.
    const ALTERNATIVES: &'static [&'static str] = &[];

    /// Fields whose empty text is a value like any other, and does not stand for none.
    const EXACT: &'static [&'static str] = &[];

    /// Reads the fields; the problems name theirs.
    fn from_fields(fields: &Map<String, Value>) -> Result<Self, Vec<String>>;
}

/// A rule: which requests, and what happens to them.
#[derive(Debug)]
pub struct InterceptRule<A> {
    /// What it is called.
    pub id: String,
    /// Whether it is switched on.
    pub is_enabled: bool,
    /// What happens to a request that matches.
    pub action: A,
    /// Whether it stands in the configuration file.
    pub from_file: bool,
    fields: Map<String, Value>,
    matcher: RequestMatcher,
    hits: AtomicI64,
}

/// Why a rule was not added or changed.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RuleError {
    /// There is no such rule.
    #[error("there is no such rule")]
    Unknown,
    /// Fields are unusable; one line for each.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

impl RuleError {
    fn from_problem(problem: String) -> Self {
        Self::Invalid(vec![problem])
    }
}

/// The rules of one kind, in the order in which requests are compared with them.
#[derive(Debug)]
pub struct InterceptRules<A> {
    list: Mutex<Vec<Arc<InterceptRule<A>>>>,
    /// How many had no identifier.
    unnamed: AtomicU32,
}

impl<A> Default for InterceptRules<A> {
    fn default() -> Self {
        Self { list: Mutex::default(), unnamed: AtomicU32::new(0) }
    }
}

impl<A: RuleAction> InterceptRules<A> {
    /// All rules.
    pub fn all(&self) -> Vec<Arc<InterceptRule<A>>> {
        self.lock_rules().clone()
    }

    /// The rule with this identifier.
    pub fn find(&self, id: &str) -> Option<Arc<InterceptRule<A>>> {
        self.lock_rules().iter().find(|rule| rule.id == id).cloned()
    }

    pub(super) fn has_enabled(&self) -> bool {
        self.lock_rules().iter().any(|rule| rule.is_enabled)
    }

    /// The first rule that matches and takes the request, which counts this one.
    pub(super) fn find_match<T>(
        &self,
        request: &RequestView<'_>,
        take: impl Fn(&InterceptRule<A>) -> Option<T>,
    ) -> Option<(Arc<InterceptRule<A>>, T)> {
        let list = self.lock_rules();
        let mut matching =
            list.iter().filter(|rule| rule.is_enabled && rule.matcher.matches_request(request));
        let (found, taken) = matching.find_map(|rule| Some((rule, take(rule)?)))?;
        // Under the lock, so that no two requests are the last hit.
        found.hits.fetch_add(1, Ordering::Relaxed);
        Some((found.clone(), taken))
    }

    pub(super) fn add(
        &self,
        mut fields: Map<String, Value>,
        from_file: bool,
    ) -> Result<Arc<InterceptRule<A>>, RuleError> {
        let id = match fields.remove("id") {
            Some(Value::String(id)) => Some(checked_id(id)?),
            _ => None,
        };
        if let Value::Object(defaults) = A::default_fields() {
            defaults.into_iter().for_each(|(name, value)| {
                fields.entry(name).or_insert(value);
            });
        }
        fields.retain(|name, value| !is_none::<A>(name, value));
        let mut rule = InterceptRule::from_fields(String::new(), fields, from_file, 0)?;
        let mut list = self.lock_rules();
        let is_taken = |id: &str| list.iter().any(|other| other.id == id);
        rule.id = id.unwrap_or_else(|| self.free_id(is_taken));
        if is_taken(&rule.id) {
            return Err(RuleError::from_problem(format!(
                "id: {} {:?} already exists",
                A::KIND,
                rule.id
            )));
        }
        if list.len() >= MAX_RULES {
            return Err(RuleError::from_problem(format!(
                "there are {MAX_RULES} {}s already",
                A::KIND
            )));
        }
        let rule = Arc::new(rule);
        list.push(rule.clone());
        Ok(rule)
    }

    pub(super) fn update(
        &self,
        id: &str,
        changes: Map<String, Value>,
    ) -> Result<Arc<InterceptRule<A>>, RuleError> {
        let mut list = self.lock_rules();
        let place = list.iter_mut().find(|rule| rule.id == id).ok_or(RuleError::Unknown)?;
        let mut fields = place.fields.clone();
        if A::ALTERNATIVES.iter().any(|name| changes.contains_key(*name)) {
            fields.retain(|name, _| !A::ALTERNATIVES.contains(&name.as_str()));
        }
        let hits = if changes.contains_key("times") { 0 } else { place.hits() };
        fields.extend(changes);
        fields.retain(|name, value| name != "id" && !is_none::<A>(name, value));
        *place =
            Arc::new(InterceptRule::from_fields(id.to_owned(), fields, place.from_file, hits)?);
        Ok(place.clone())
    }

    /// Removes one rule or all; false where there was none.
    pub(super) fn remove(&self, id: Option<&str>) -> bool {
        let mut list = self.lock_rules();
        let before = list.len();
        list.retain(|rule| id.is_some_and(|id| rule.id != id));
        list.len() < before
    }

    fn free_id(&self, is_taken: impl Fn(&str) -> bool) -> String {
        loop {
            let number = self.unnamed.fetch_add(1, Ordering::Relaxed) + 1;
            let id = format!("{}-{number}", A::KIND);
            if !is_taken(&id) {
                return id;
            }
        }
    }

    fn lock_rules(&self) -> MutexGuard<'_, Vec<Arc<InterceptRule<A>>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: RuleAction> InterceptRule<A> {
    fn from_fields(
        id: String,
        mut fields: Map<String, Value>,
        from_file: bool,
        hits: i64,
    ) -> Result<Self, RuleError> {
        if let Some(Value::String(host)) = fields.get_mut("host") {
            *host = ascii_host(host).map_err(RuleError::from_problem)?;
        }
        let matcher = serde_json::from_value::<RequestMatcher>(Value::Object(fields.clone()));
        let matcher = matcher.map_err(|error| RuleError::from_problem(error.to_string()))?;
        let mut problems = matcher.find_problems();
        let action = A::from_fields(&fields);
        let action = match action {
            Ok(action) if problems.is_empty() => action,
            action => {
                problems.extend(action.err().into_iter().flatten());
                return Err(RuleError::Invalid(problems));
            }
        };
        let is_enabled = fields.get("enabled").and_then(Value::as_bool).unwrap_or(true);
        let hits = AtomicI64::new(hits);
        Ok(Self { id, is_enabled, action, from_file, fields, matcher, hits })
    }

    /// How many requests it has met.
    pub fn hits(&self) -> i64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The rule as the local API shows it.
    pub fn to_json(&self) -> Value {
        let mut shown = self.fields.clone();
        shown.insert("id".to_owned(), self.id.as_str().into());
        shown.insert("uri".to_owned(), format!("/api/{}s/{}", A::KIND, self.id).into());
        shown.insert("hits".to_owned(), self.hits().into());
        shown.insert("from_file".to_owned(), self.from_file.into());
        Value::Object(shown)
    }
}

/// Whether the value of a field stands for none.
fn is_none<A: RuleAction>(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() && !A::EXACT.contains(&name),
        _ => false,
    }
}

fn checked_id(id: String) -> Result<String, RuleError> {
    let is_usable = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_path = id == "." || id == "..";
    if id.is_empty() || id.len() > MAX_ID_BYTES || is_path || !id.bytes().all(is_usable) {
        let problem = format!("id: {id:?} is not 1 to {MAX_ID_BYTES} of A-Z a-z 0-9 _ . -");
        return Err(RuleError::from_problem(problem));
    }
    Ok(id)
}
