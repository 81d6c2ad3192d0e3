//! Traffic policy: document in, compiled rules, verdicts out. Pure, no I/O.
//!
//! [`Policy::compile`] checks a document and compiles all of it, so that nothing is left to be
//! compiled when traffic arrives. A policy never harms the process: expressions are limited in
//! size, depth and work.

pub mod action;
pub mod actions;
mod checker;
mod cidr;
mod config;
mod document;
pub mod expression;
mod headers;
mod phase;
pub mod problem;
mod regex;
mod rule;
pub mod template;
mod url;
pub mod user_agent;

pub use self::cidr::Cidr;
pub use self::document::Policy;
pub use self::phase::{Phase, Scope};
pub use self::problem::Problem;
pub use self::rule::Rule;
