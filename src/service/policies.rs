//! Traffic policies and user agent filters: compiled when they are set, so that nothing invalid is
//! ever stored.

use tokio::task::spawn_blocking;

use crate::api::remote::edges::modules::{TrafficPolicy, UserAgentFilter};
use crate::policy::user_agent::Filter;
use crate::policy::{Policy, Problem, Scope};
use crate::service::Refusal;
use crate::service::code::{self, Code};

/// How many problems a message names; the rest are counted.
const NAMED: usize = 10;

/// Checks a traffic policy; gives it as it is stored, with the IP policies that it names.
pub(super) async fn check(
    given: TrafficPolicy,
    scope: Scope,
) -> Result<(TrafficPolicy, Vec<String>), Refusal> {
    let policy = TrafficPolicy { enabled: given.enabled.or(Some(true)), ..given };
    let document = serde_json::to_value(&policy)
        .map_err(|error| Refusal::new(code::INVALID_VALUE, error.to_string()))?;
    let named = compiled(move || {
        let policy = Policy::compile(&document, scope)?;
        Ok(policy.ip_policy_ids().map(str::to_owned).collect())
    });
    Ok((policy, named.await?))
}

/// Checks a user agent filter; gives it as it is stored.
pub(super) async fn check_filter(given: UserAgentFilter) -> Result<UserAgentFilter, Refusal> {
    let allow = given.allow.clone().unwrap_or_default();
    let deny = given.deny.clone().unwrap_or_default();
    compiled(move || Filter::compile(&allow, &deny).map(drop)).await?;
    Ok(UserAgentFilter { enabled: given.enabled.or(Some(true)), ..given })
}

/// Compiles away from the threads that answer requests: it may take a while.
async fn compiled<T: Send + 'static>(
    compile: impl FnOnce() -> Result<T, Vec<Problem>> + Send + 'static,
) -> Result<T, Refusal> {
    match spawn_blocking(compile).await {
        Ok(compiled) => compiled.map_err(|problems| refusal(&problems)),
        Err(_) => Err(Refusal::new(code::UNEXPECTED, "unexpected failure")),
    }
}

/// The first problem gives the code, the message names them all.
fn refusal(problems: &[Problem]) -> Refusal {
    let mut message: Vec<String> =
        problems.iter().take(NAMED).map(|problem| problem.to_string().replace('\n', " ")).collect();
    if problems.len() > NAMED {
        message.push(format!("and {} more", problems.len() - NAMED));
    }
    let code = problems.first().map_or(code::INVALID_VALUE, |first| Code::of_policy(first.code));
    Refusal::new(code, message.join("; "))
}
