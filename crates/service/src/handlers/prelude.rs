//! The names that most handlers use.

pub(crate) use ginnel_api::id::prefix;
pub(crate) use ginnel_store::{Transaction, View};

pub(super) use super::stored::{
    changed_item, check_unused, delete, get, list, new_item, resource, stored, usual_handlers,
};
pub(super) use super::{Context, Handler, OperationResult, on};
pub(crate) use crate::address::Base;
pub(crate) use crate::context::{RemovalContext, StoredResource, find_or_refuse, remove_or_refuse};
pub(crate) use crate::{Refusal, Result, code};
