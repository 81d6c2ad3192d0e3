//! The names that every action uses.

pub(in super::super) use super::super::action::Action;
pub(in super::super) use super::super::action_error::{ActionError, ActionResult};
pub(in super::super) use super::super::config::Config;
pub(in super::super) use super::super::problem::code;
pub(in super::super) use super::super::template::Template;
pub(in super::super) use super::super::turn::{Flow, Turn};
pub(in super::super) use super::super::verdict::{LocalResponse, Verdict};
