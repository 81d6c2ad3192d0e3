//! The variables of expressions: what is known of an exchange, looked up when it is asked for.
//!
//! Traffic policy sheet, section 7.

mod certificate;
mod cookies;
mod headers;
mod message;
mod place;
mod plain;
mod source;
mod url;
mod user_agent;

use std::borrow::Cow;
use std::collections::HashMap;

use cel::common::types::{CelBool, CelInt, CelList, CelMap, CelString, CelTimestamp};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value as Json;

use super::action_results::ActionResults;
use super::exchange::{Exchange, VisitorConnection};
use super::expression::value;
use super::secrets::SecretName;
use super::world::World;

pub(super) use self::cookies::pairs_in as cookies_in;
pub(super) use self::plain::{
    KnownHeader, NumberFact, TextFact, address_text, join_lines, media_type,
};
pub(super) use self::source::{FactSource, FieldValues, Message, is_named};
pub(super) use self::url::{
    Pairs, full_url, normalized_url, path_and_query, query_pairs, query_string, request_authority,
};

/// A value that borrows from what it is about.
type FactValue<'b> = Option<CowVal<'b, 'b>>;

/// What an exchange knows at one moment.
pub(super) struct Facts<'a> {
    exchange: &'a Exchange,
    world: &'a dyn World,
    /// What else has a name: a map.
    names: Option<&'a Json>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(exchange: &'a Exchange, world: &'a dyn World) -> Self {
        Self { exchange, world, names: None }
    }

    /// The exchange.
    pub(super) fn exchange(&self) -> &'a Exchange {
        self.exchange
    }

    /// What an exchange knows, and what some names mean besides.
    pub(super) fn with_names(
        exchange: &'a Exchange,
        world: &'a dyn World,
        names: &'a Json,
    ) -> Self {
        Self { exchange, world, names: Some(names) }
    }
}

impl VariableResolver for Facts<'_> {
    fn resolve<'b>(&'b self, name: &str) -> FactValue<'b> {
        if let Some(variable) = TextFact::from_name(name) {
            return text_value(variable.read_text(self.exchange)?);
        }
        if let Some(variable) = NumberFact::from_name(name) {
            return owned_value(CelInt::from(variable.read_number(self.exchange)?));
        }
        let (space, rest) = name.split_once('.').unwrap_or((name, ""));
        match space {
            "req" => message::request_variable(self.exchange, rest),
            "res" => message::response_variable(self.exchange, rest),
            "conn" => connection_variable(self.exchange, rest),
            "endpoint" => endpoint_variable(self.exchange, rest),
            "vars" => policy_variable(self.exchange, rest),
            "actions" => result_variable(&self.exchange.record.results, rest),
            "time" if rest == "now" => {
                let now = self.world.now();
                owned_value(CelString::from(now.to_rfc3339_opts(SecondsFormat::Millis, true)))
            }
            _ if let Some(secret) = SecretName::from_variable(name) => {
                owned_value(CelString::from(self.world.secret(&secret)?.to_string()))
            }
            _ => json_value(self.names?.get(name)?),
        }
    }
}

fn owned_value<'b>(value: impl Val + 'b) -> FactValue<'b> {
    Some(CowVal::owned(value))
}

fn text_value(text: Cow<'_, str>) -> FactValue<'_> {
    owned_value(match text {
        Cow::Borrowed(text) => CelString::from(text),
        Cow::Owned(text) => CelString::from(text),
    })
}

fn time_value<'b>(time: DateTime<Utc>) -> FactValue<'b> {
    owned_value(CelTimestamp::from(time.fixed_offset()))
}

/// A list of texts that borrow.
fn text_list<'b>(texts: impl IntoIterator<Item = CelString<'b>>) -> CelList<'b> {
    let entries = texts.into_iter().map(|text| Box::new(text) as Box<dyn Val + 'b>);
    CelList::from(entries.collect::<Vec<_>>())
}

fn connection_variable<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let connection: &VisitorConnection = &exchange.connection;
    match name {
        "ts.start" | "start_ts" => time_value(connection.started),
        "ts.end" | "end_ts" => exchange.ended.and_then(time_value),
        "client_ip.geo.location.is_eu" => owned_value(CelBool::from(place::is_eu(connection))),
        "client_ip.categories" => {
            owned_value(text_list(place::address_categories(connection).map(CelString::from)))
        }
        "client_ip.is_on_blocklist" => {
            let is_blocked = |category: &str| category.starts_with("blocklist.");
            owned_value(CelBool::from(place::address_categories(connection).any(is_blocked)))
        }
        "client_ip.is_tor_node" => {
            let mut categories = place::address_categories(connection);
            owned_value(CelBool::from(categories.any(|category| category == "proxy.anonymous.tor")))
        }
        "tls.session_resumed" => owned_value(CelBool::from(connection.tls.as_ref()?.resumed)),
        _ => {
            let name = name.strip_prefix("tls.client.")?;
            certificate::certificate_variable(&connection.tls.as_ref()?.client, name)
        }
    }
}

fn endpoint_variable<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let endpoint = &exchange.endpoint;
    let address = || format!("{}:{}", endpoint.host, endpoint.port);
    (name == "addr").then(|| owned_value(CelString::from(address())))?
}

/// A variable by its name alone; what is inside it, the engine looks up.
fn policy_variable<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    if name.is_empty() {
        let vars = exchange.record.vars.iter();
        let vars = vars.filter_map(|(name, value)| {
            Some((name.clone().into(), Box::<dyn Val>::try_from(value.clone()).ok()?))
        });
        return owned_value(CelMap::from(vars.collect::<HashMap<_, _>>()));
    }
    let value = exchange.record.vars.get(name)?;
    Box::<dyn Val>::try_from(value.clone()).ok().map(CowVal::Owned)
}

/// The results of actions; a name may lead into one.
fn result_variable<'b>(results: &ActionResults, name: &str) -> FactValue<'b> {
    let name = name.strip_prefix("ngrok")?;
    let Some(name) = name.strip_prefix('.') else {
        return name.is_empty().then(|| json_value(&Json::Object(results.to_json())))?;
    };
    let mut steps = name.split('.');
    let kind = steps.next().map(|kind| if kind == "compress_response" { "compress" } else { kind });
    let result = results.find_by_name(kind?)?;
    match steps.clone().try_fold(result, |value, step| value.get(step)) {
        Some(found) => json_value(found),
        None if has_failed(result) => None,
        None => no_error(steps),
    }
}

fn has_failed(result: &Json) -> bool {
    result.get("error").is_some_and(|error| !error.is_null())
}

/// The `error` of an action that has done what it should: rules log it without asking whether there is one.
fn no_error<'b, 's>(mut steps: impl Iterator<Item = &'s str>) -> FactValue<'b> {
    match (steps.next()?, steps.next(), steps.next()) {
        ("error", None, None) => json_value(&Json::Null),
        ("error", Some("code" | "message"), None) => text_value("".into()),
        _ => None,
    }
}

fn json_value<'b>(json: &Json) -> FactValue<'b> {
    value::from_json(json).ok().map(CowVal::Owned)
}
