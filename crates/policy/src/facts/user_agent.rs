//! The variables of `req.user_agent`: the program of the visitor.

use cel::common::types::{CelBool, CelString};

use super::super::user_agent_facts::UserAgentFacts;
use super::{FactValue, owned_value};

/// The variable of this name, behind `req.user_agent.`.
pub(super) fn user_agent_variable<'f>(facts: &'f UserAgentFacts, name: &str) -> FactValue<'f> {
    let text = |text: &'f str| owned_value(CelString::from(text));
    let truth = |truth| owned_value(CelBool::from(truth));
    match name {
        "name" => text(&facts.name),
        "version" => text(&facts.version),
        "os" => text(&facts.os),
        "os_version" => text(&facts.os_version),
        "device" => text(&facts.device),
        "url" => text(&facts.url),
        "is_mobile" => truth(facts.is_mobile),
        "is_tablet" => truth(facts.is_tablet),
        "is_desktop" => truth(facts.is_desktop),
        "is_bot" => truth(facts.is_bot),
        _ => None,
    }
}
