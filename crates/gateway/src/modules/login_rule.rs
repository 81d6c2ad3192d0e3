//! What modules share that are a rule with a login.

use serde_json::{Value, json};

use ginnel_policy::Problem;

/// What the places of problems of the rule begin with.
pub const PLACE_PREFIX: &str = "on_http_request[0].actions[0].config.";

/// The document of a rule with one action.
pub fn rule(action: &str, config: &Value) -> Value {
    json!({"on_http_request": [{"actions": [{"type": action, "config": config}]}]})
}

/// Seconds as a duration of a rule; none and 0 are what is usual.
pub(super) fn duration(seconds: Option<i64>) -> Option<String> {
    seconds.filter(|seconds| *seconds != 0).map(|seconds| format!("{seconds}s"))
}

/// A text in which nothing is an expression.
pub fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// A problem with the rule as one with the module, by the fields of the rule and those of the module.
pub(super) fn of_module(problem: Problem, fields: &[(&str, &str)]) -> Problem {
    let place = problem.place.strip_prefix(PLACE_PREFIX).unwrap_or(&problem.place).to_owned();
    let (field, entry) = place.split_at(place.find('[').unwrap_or(place.len()));
    let Some((_, name)) = fields.iter().find(|(known, _)| *known == field) else {
        return Problem { place, ..problem };
    };
    let message = problem.message.replace(field, name);
    Problem { place: format!("{name}{entry}"), message, ..problem }
}
