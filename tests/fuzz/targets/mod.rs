//! The targets, one file each.

pub mod addresses;
pub mod bodies;
pub mod calls;
pub mod configurations;
pub mod expressions;
pub mod frames;
pub mod ids;
pub mod json;
pub mod lists;
pub mod masks;
pub mod media_types;
pub mod paths;
pub mod policies;
pub mod raw_targets;
pub mod requests;
pub mod responses;
pub mod secrets;
pub mod visitors;
