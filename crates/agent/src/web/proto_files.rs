//! Answers to the operations on proto files.

use ginnel_api::local::proto_files;
use ginnel_api::{Operation, Page, on};

use super::handler::{Shared, WebHandler, WebResult};
use super::rejection::WebRejection;
use crate::protobuf::ProtoError;

/// Every handler of this resource.
pub(super) fn all_handlers() -> Vec<WebHandler> {
    vec![
        on(list_proto_files),
        on(add_proto_files),
        on(get_proto_file),
        on(delete_proto_file),
        on(clear_proto_files),
    ]
}

async fn list_proto_files(agent: Shared, _: proto_files::List) -> WebResult<proto_files::List> {
    Ok(Page::whole(&proto_files::List::INFO, "/api", agent.proto_files.all()))
}

async fn add_proto_files(agent: Shared, add: proto_files::Add) -> WebResult<proto_files::Add> {
    let files = add.files.unwrap_or_default();
    if files.is_empty() && add.descriptor_set.is_none() {
        let problem = "files or descriptor_set must be there, with at least one file";
        return Err(WebRejection::invalid_body(problem));
    }
    // Some services have thousands of messages, and what else the agent does goes on.
    let reading = ginnel_base::tasks::spawn_blocking(move || {
        agent.proto_files.add(&files, add.descriptor_set.as_ref().map(|set| &*set.0))
    });
    let added = reading.await.map_err(|error| WebRejection::internal_error(error.to_string()))?;
    Ok(proto_files::AddedProtoFiles { proto_files: added.map_err(proto_file_rejection)? })
}

async fn get_proto_file(agent: Shared, get: proto_files::Get) -> WebResult<proto_files::Get> {
    agent.proto_files.find(&get.name).ok_or_else(WebRejection::not_found)
}

async fn delete_proto_file(
    agent: Shared,
    delete: proto_files::Delete,
) -> WebResult<proto_files::Delete> {
    match agent.proto_files.remove(&delete.name).map_err(proto_file_rejection)? {
        true => Ok(()),
        false => Err(WebRejection::not_found()),
    }
}

async fn clear_proto_files(agent: Shared, _: proto_files::Clear) -> WebResult<proto_files::Clear> {
    agent.proto_files.clear();
    Ok(())
}

fn proto_file_rejection(error: ProtoError) -> WebRejection {
    WebRejection::invalid_proto_file(&error.to_string())
}
