//! Traffic policies at work: the rules are pure, and here is the world that they ask.

mod buffered_body;
mod connection;
mod execution;
mod internal_fetch;
pub mod module;
mod rules;

pub use connection::ConnectionExecution;
pub use rules::Rules;

use ginnel_policy::Problem;

/// Problems in one line.
pub fn describe_problems(problems: &[Problem]) -> String {
    problems.iter().map(|one| one.to_string().replace('\n', " ")).collect::<Vec<_>>().join("; ")
}
