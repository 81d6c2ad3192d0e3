//! `restrict-ips`: let only some addresses in.

use http::StatusCode;
use serde_json::json;

use ginnel_api::policy_document::ENFORCE;

use super::super::Phase;
use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::cidr::Cidr;
use super::super::config::Config;
use super::super::ip_rules::{self, IpRules};
use super::super::problem::{DocumentPath, code};
use super::super::template::Template;
use super::super::turn::{Flow, Turn};
use super::super::verdict::{LocalResponse, Verdict};

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

    fn guards(&self) -> bool {
        self.enforce
    }

    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let address = turn.exchange.connection.client.ip();
        let own = [IpRules { allow: known(&self.allow, turn)?, deny: known(&self.deny, turn)? }];
        let policies = self.ip_policies.iter().map(|id| turn.world.ip_policy(id));
        let policies: Vec<_> = policies.collect();
        let rules = own.iter().chain(policies.iter().map(|rules| &**rules));
        let decision = ip_rules::decide(address, rules);
        turn.result(json!({
            "action": if decision.allowed { "allow" } else { "deny" },
            "matched_cidr": decision.matched.map_or_else(String::new, |cidr| cidr.to_string()),
        }));
        if decision.allowed || !self.enforce {
            return Ok(Flow::Continue);
        }
        if turn.phase == Phase::Connect {
            return Ok(Flow::End(Verdict::Close));
        }
        Ok(Flow::End(Verdict::Respond(blocked())))
    }
}

/// What visitors get whose address is not allowed.
pub fn blocked() -> LocalResponse {
    let sentence = "The address of the visitor is not allowed.";
    LocalResponse::refusal(StatusCode::FORBIDDEN, 3205, sentence)
}

fn known(ranges: &[Range], turn: &Turn<'_>) -> Result<Vec<Cidr>, ActionError> {
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

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(RestrictIps {
        enforce: config.truth(ENFORCE, true),
        allow: ranges(config, "allow"),
        deny: ranges(config, "deny"),
        ip_policies: ip_policies(config),
    })
}

fn ranges(config: &mut Config<'_>, name: &'static str) -> Vec<Range> {
    let texts = config.texts(name, 0..=ENTRIES);
    texts.into_iter().filter_map(|(place, text)| range(config, &place, text)).collect()
}

fn range(config: &mut Config<'_>, place: &DocumentPath, text: &str) -> Option<Range> {
    let template = config.checker().template(place, text);
    if template.fixed().is_none() || text.contains("${") {
        return Some(Range::Computed(template));
    }
    let range = text.parse().map(Range::Fixed);
    range.map_err(|error| config.refuse_at(place, code::CIDR, format!("{error}"))).ok()
}

fn ip_policies(config: &mut Config<'_>) -> Vec<String> {
    let ids = config.texts("ip_policies", 0..=ENTRIES);
    for (place, id) in ids.iter().filter(|(_, id)| !is_id(id)) {
        config.refuse_at(place, code::IP_POLICY, format!("{id:?} is not an IP policy"));
    }
    ids.into_iter().map(|(_, id)| id.to_owned()).collect()
}

fn is_id(text: &str) -> bool {
    text.len() == ID
        && text.starts_with("ipp_")
        && text[4..].bytes().all(|byte| byte.is_ascii_alphanumeric())
}
