//! Which events of public traffic somebody wants to see.

use serde_json::{Map, Value};

use ginnel_api::{Field, Kind};
use ginnel_gateway::Event;
use ginnel_policy::Cidr;

use crate::{Refusal, Result, code};

const fn text_field(name: &'static str, doc: &'static str) -> Field {
    let kind = Kind::Text { max: Some(256) };
    Field { name, doc, kind, required: false, is_public: false }
}

/// The filter as parameters of a query.
pub(super) const PARAMETERS: &[Field] = &[
    text_field("host", " A part of the host name.\n"),
    text_field("path", " A part of the path.\n"),
    text_field("edge", " The identifier of the edge, the route or the backend.\n"),
    text_field("status", " A status such as 404, or a class such as 5xx.\n"),
    text_field("rule", " A part of the name of the rule that decided.\n"),
    text_field("module", " The module or the action that decided.\n"),
    text_field("source", " An address, or a network in CIDR notation, of visitors.\n"),
];

/// Everything that is named must hold.
#[derive(Debug, Default)]
pub(super) struct TrafficFilter {
    host: String,
    path: String,
    edge: String,
    status: Option<(u16, u16)>,
    rule: String,
    module: String,
    source: Option<Cidr>,
}

impl TrafficFilter {
    /// Reads the parameters of a query.
    pub fn from_arguments(arguments: &Map<String, Value>) -> Result<Self> {
        let text = |name: &str| {
            let text = arguments.get(name).and_then(Value::as_str).unwrap_or_default();
            text.trim().to_ascii_lowercase()
        };
        let source = text("source");
        let source = (!source.is_empty()).then(|| parse_network(&source)).transpose()?;
        let status = text("status");
        let status = (!status.is_empty()).then(|| parse_statuses(&status)).transpose()?;
        Ok(Self {
            host: text("host"),
            path: text("path"),
            edge: text("edge"),
            status,
            rule: text("rule"),
            module: text("module"),
            source,
        })
    }

    /// Whether an event is one of those.
    pub fn matches_event(&self, event: &Event) -> bool {
        let ids = [&event.edge_id, &event.route_id, &event.backend_id];
        let deciders = [event.module.as_deref(), event.action.as_deref()];
        contains_text(event.host.as_deref(), &self.host)
            && contains_text(event.path.as_deref(), &self.path)
            && contains_text(event.rule.as_deref(), &self.rule)
            && (self.edge.is_empty()
                || ids.into_iter().any(|id| equals_text(id.as_deref(), &self.edge)))
            && (self.module.is_empty()
                || deciders.into_iter().any(|it| equals_text(it, &self.module)))
            && self.status.is_none_or(|(low, high)| {
                event.status.is_some_and(|status| (low..=high).contains(&status))
            })
            && self.source.is_none_or(|source| source.contains(event.peer.ip().to_canonical()))
    }
}

/// Whether a part of a text is the part that is looked for, which is in lower case.
fn contains_text(text: Option<&str>, part: &str) -> bool {
    part.is_empty() || text.is_some_and(|text| text.to_ascii_lowercase().contains(part))
}

fn equals_text(text: Option<&str>, whole: &str) -> bool {
    text.is_some_and(|text| text.eq_ignore_ascii_case(whole))
}

fn parse_network(text: &str) -> Result<Cidr> {
    let network = text.parse::<Cidr>();
    network.map_err(|_| invalid_value(format!("source: {text:?} is neither an address nor a CIDR")))
}

fn parse_statuses(text: &str) -> Result<(u16, u16)> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
    let exact = || text.parse::<u16>().ok().map(|status| (status, status));
    let range = class.map(|class| (class * 100, class * 100 + 99)).or_else(exact);
    let valid = range.filter(|(low, _)| (100..1000).contains(low));
    valid.ok_or_else(|| invalid_value(format!("status: {text:?} is neither like 404 nor like 5xx")))
}

fn invalid_value(message: String) -> Refusal {
    Refusal::new(code::INVALID_VALUE, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Event {
        serde_json::from_value(json!({
            "time": "2026-01-01T00:00:00Z", "proto": "https", "peer": "192.0.2.7:1234",
            "host": "Shop.example", "path": "/Orders?x=1", "status": 404, "edge_id": "edghts_1",
            "route_id": "edghtsrt_1", "module": "policy", "rule": "No bots", "action": "deny",
            "logs": [], "duration_ms": 1.5,
        }))
        .unwrap()
    }

    fn holds(name: &str, text: &str) -> Result<bool> {
        let arguments = Map::from_iter([(name.to_owned(), text.into())]);
        TrafficFilter::from_arguments(&arguments).map(|filter| filter.matches_event(&event()))
    }

    #[test]
    fn each_part_of_a_filter_is_held_against_an_event() {
        for (name, yes, no) in [
            ("host", "shop", "other"),
            ("path", "orders", "/carts"),
            ("edge", "edghts_1", "edghts_"),
            ("edge", "edghtsrt_1", "edghts_2"),
            ("status", "404", "200"),
            ("status", "4XX", "5xx"),
            ("rule", "bots", "people"),
            ("module", "policy", "pol"),
            ("module", "Deny", "custom-response"),
            ("source", "192.0.2.0/24", "10.0.0.0/8"),
            ("source", "192.0.2.7", "192.0.2.8"),
            ("host", "", "carts"),
        ] {
            assert_eq!((holds(name, yes), holds(name, no)), (Ok(true), Ok(false)), "{name}");
        }
    }

    #[test]
    fn what_no_event_can_have_is_refused() {
        for (name, text) in [("status", "many"), ("status", "99"), ("source", "example.com")] {
            assert!(holds(name, text).is_err(), "{name}={text}");
        }
    }
}
