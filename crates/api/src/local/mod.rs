//! The local agent API: one file per resource, and the table of all of them.
//!
//! Paths are relative to the address of the API, by default `http://127.0.0.1:4040/api`.

pub mod endpoints;
pub mod held_requests;
pub mod holds;
pub mod match_fields;
pub mod mocks;
pub mod proto_files;
pub mod replay_schedules;
pub mod requests;
pub mod root;
pub mod status;
pub mod tunnels;

use super::{Info, Resource};

/// Every resource of the API.
const RESOURCES: &[Resource] = &[
    root::RESOURCE,
    status::RESOURCE,
    tunnels::RESOURCE,
    endpoints::RESOURCE,
    requests::RESOURCE,
    mocks::RESOURCE,
    holds::RESOURCE,
    held_requests::RESOURCE,
    proto_files::RESOURCE,
    replay_schedules::RESOURCE,
];

/// Every resource of the API.
pub fn resources() -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter()
}

/// Every operation of the API.
pub fn operations() -> impl Iterator<Item = &'static Info> {
    resources().flat_map(|resource| resource.operations.iter().copied())
}
