//! `restrict-ips`: let only some addresses in.

use http::StatusCode;
use serde_json::json;

use ginnel_api::policy_document::ENFORCE;

use super::super::Phase;
use super::super::cidr::Cidr;
use super::super::ip_rules::{self, IpRules};
use super::super::problem::DocumentPath;
use super::prelude::*;

/// How many entries a list may have.
const ENTRIES: usize = 1000;

/// How long an identifier is: `ipp_` and 27 characters.
const ID: usize = 31;

/// Turns visitors away whose address is not allowed, or is denied.
///
/// Traffic policy sheet, section 11.
#[derive(Debug)]
pub struct RestrictIps {
    /// Whether the verdict counts; without, it is only recorded.
    pub enforce: bool,
    /// The addresses that may come in.
    pub allow: Vec<Range>,
    /// The addresses that may not, even if allowed.
    pub deny: Vec<Range>,
    /// The policies whose rules count as well.
    pub ip_policies: Vec<String>,
}

/// A range of addresses that may be known only when the visitor is.
#[derive(Debug)]
pub enum Range {
    /// A range.
    Fixed(Cidr),
    /// A range to be read once its expressions have values.
    Computed(Template),
}

impl Action for RestrictIps {
    fn ip_policies(&self) -> &[String] {
        &self.ip_policies
    }

    fn fails_closed(&self) -> bool {
        self.enforce
    }

    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let address = turn.exchange.connection.client.ip();
        let own = [IpRules {
            allow: resolve_ranges(&self.allow, turn)?,
            deny: resolve_ranges(&self.deny, turn)?,
        }];
        let policies = self.ip_policies.iter().map(|id| turn.world.ip_policy(id));
        let policies: Vec<_> = policies.collect();
        let rules = own.iter().chain(policies.iter().map(|rules| &**rules));
        let decision = ip_rules::decide_access(address, rules);
        turn.set_result(json!({
            "action": if decision.allowed { "allow" } else { "deny" },
            "matched_cidr": decision.matched.map_or_else(String::new, |cidr| cidr.to_string()),
        }));
        if decision.allowed || !self.enforce {
            return Ok(Flow::Continue);
        }
        if turn.phase == Phase::Connect {
            return Ok(Flow::End(Verdict::Close));
        }
        Ok(Flow::End(Verdict::Respond(blocked_response())))
    }
}

/// What visitors get whose address is not allowed.
pub fn blocked_response() -> LocalResponse {
    let sentence = "The address of the visitor is not allowed.";
    LocalResponse::refusal(StatusCode::FORBIDDEN, 3205, sentence)
}

fn resolve_ranges(ranges: &[Range], turn: &Turn<'_>) -> ActionResult<Vec<Cidr>> {
    let known = |range: &Range| match range {
        Range::Fixed(range) => Ok(*range),
        Range::Computed(template) => {
            let text = turn.render(template)?;
            text.parse()
                .map_err(|error| ActionError::fatal(code::CIDR, format!("{text:?}: {error}")))
        }
    };
    ranges.iter().map(known).collect()
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(RestrictIps {
        enforce: config.bool_field(ENFORCE, true),
        allow: read_ranges(config, "allow"),
        deny: read_ranges(config, "deny"),
        ip_policies: read_ip_policies(config),
    })
}

fn read_ranges(config: &mut Config<'_>, name: &'static str) -> Vec<Range> {
    let texts = config.text_entries(name, 0..=ENTRIES);
    texts.into_iter().filter_map(|(place, text)| read_range(config, &place, text)).collect()
}

fn read_range(config: &mut Config<'_>, place: &DocumentPath, text: &str) -> Option<Range> {
    let template = config.checker().compile_template(place, text);
    if template.fixed_text().is_none() || text.contains("${") {
        return Some(Range::Computed(template));
    }
    let range = text.parse().map(Range::Fixed);
    range.map_err(|error| config.record_problem_at(place, code::CIDR, format!("{error}"))).ok()
}

fn read_ip_policies(config: &mut Config<'_>) -> Vec<String> {
    let ids = config.text_entries("ip_policies", 0..=ENTRIES);
    for (place, id) in ids.iter().filter(|(_, id)| !is_id(id)) {
        config.record_problem_at(place, code::IP_POLICY, format!("{id:?} is not an IP policy"));
    }
    ids.into_iter().map(|(_, id)| id.to_owned()).collect()
}

fn is_id(text: &str) -> bool {
    text.len() == ID
        && text.starts_with("ipp_")
        && text[4..].bytes().all(|byte| byte.is_ascii_alphanumeric())
}
