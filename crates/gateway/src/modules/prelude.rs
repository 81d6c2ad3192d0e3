//! The names that most modules use.

pub use crate::message::request_context::RequestContext;
pub use crate::message::{BoxFuture, error_response};
pub use crate::modules::edge_module::{
    BuildModule, CheckedModule, EdgeModule, InvalidModule, ModuleBuilder, ModuleChecker,
    ModuleResult, ReferenceField, parse_references,
};
pub use crate::modules::module::{
    HeadFilter, Module, ModuleAnswer, ModuleInput, ModuleKind, NextModule,
};
