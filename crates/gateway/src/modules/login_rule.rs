//! What modules share that are a rule with a login.

use std::sync::Arc;

use serde_json::{Value, json};

use ginnel_policy::{Problem, Scope};

use crate::modules::prelude::*;
use crate::modules::traffic_policy::Rules;
use crate::modules::traffic_policy::module::PolicyModule;

/// What the places of problems of the rule begin with.
const PLACE_PREFIX: &str = "on_http_request[0].actions[0].config.";

/// The document of a rule with one action.
pub fn rule_document(action: &str, config: &Value) -> Value {
    json!({"on_http_request": [{"actions": [{"type": action, "config": config}]}]})
}

/// Seconds as a duration of a rule; none and 0 are what is usual.
pub(super) fn duration_text(seconds: Option<i64>) -> Option<String> {
    seconds.filter(|seconds| *seconds != 0).map(|seconds| format!("{seconds}s"))
}

/// A text in which nothing is an expression.
pub fn escape_literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// A problem with the rule as one with the module, by the fields of the rule and those of the module.
pub(super) fn module_problem(problem: Problem, fields: &[(&str, &str)]) -> Problem {
    let place = problem.place.strip_prefix(PLACE_PREFIX).unwrap_or(&problem.place).to_owned();
    let (field, entry) = place.split_at(place.find('[').unwrap_or(place.len()));
    let Some((_, name)) = fields.iter().find(|(known, _)| *known == field) else {
        return Problem { place, ..problem };
    };
    let message = problem.message.replace(field, name);
    Problem { place: format!("{name}{entry}"), message, ..problem }
}

/// Builds the login of a tunnel from the configuration of its action. The places of problems are fields of the tunnel.
///
/// # Errors
/// If the rule is refused, or the service has no client for the login.
pub(super) fn tunnel_login(
    kind: ModuleKind,
    (action, config): (&str, &Value),
    builder: &ModuleBuilder<'_>,
) -> ModuleResult<Option<Box<dyn Module>>> {
    let policy = builder.compile_policy(&rule_document(action, config), Scope::HttpTunnel);
    let policy = policy.map_err(|invalid| {
        let problems = invalid.problems.into_iter().map(|problem| of_tunnel(kind, problem));
        InvalidModule::from_problems(&problems.collect::<Vec<_>>())
    })?;
    let rules = Rules::new(policy, Arc::default(), builder.ip_policy);
    let rules = rules.with_applications(builder.applications.clone()).with_reach(builder.reach());
    Ok(Some(Box::new(PolicyModule { kind, rules })))
}

/// A problem with a field of the login of a tunnel.
pub(super) fn tunnel_problem(place: &str, code: u16, message: String) -> InvalidModule {
    InvalidModule::from_problems(&[Problem { code, place: place.to_owned(), message }])
}

/// A problem with the rule as one with the field of the tunnel.
fn of_tunnel(kind: ModuleKind, problem: Problem) -> Problem {
    let name = kind.name();
    let place = problem.place.strip_prefix(PLACE_PREFIX);
    let place = place.map_or_else(|| name.to_owned(), |field| format!("{name}.{field}"));
    Problem { place, ..problem }
}
