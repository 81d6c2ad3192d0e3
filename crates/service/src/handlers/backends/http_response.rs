//! HTTP response backends: an answer that HTTP can carry.

use std::collections::BTreeMap;

use ginnel_api::id::prefix;
use ginnel_api::remote::backends::http_response::{
    Create, Delete, Get, HttpResponseBackend, List, Update,
};
use ginnel_gateway::modules::header_edits::check_header;

use super::{Context, Handler, OperationResult, delete_unused, on, resource};
use crate::context::found;
use crate::{Refusal, code};

/// The longest body, in bytes (remote API sheet, section 6).
const LONGEST_BODY: usize = 64 * 1024;

resource! { HttpResponseBackend }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let body = check_body(params.body.unwrap_or_default())?;
    let headers = check_headers(params.headers.unwrap_or_default())?;
    let status_code = check_status(params.status_code.unwrap_or(200))?;
    let create = service.change(move |change| {
        let backend = HttpResponseBackend {
            id: change.new_id(prefix::HTTP_RESPONSE)?,
            created_at: Some(change.now()),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            body: Some(body),
            headers: Some(headers),
            status_code: Some(status_code),
            ..HttpResponseBackend::default()
        };
        change.put(&backend)?;
        Ok(backend)
    });
    create.await
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    service.page::<List, _>(params.before_id, params.limit).await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    service.find(params.id).await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let body = params.body.map(check_body).transpose()?;
    let headers = params.headers.map(check_headers).transpose()?;
    let status_code = params.status_code.map(check_status).transpose()?;
    let update = service.change(move |change| {
        let mut backend: HttpResponseBackend = found(change, &params.id)?;
        backend.description = params.description.or(backend.description);
        backend.metadata = params.metadata.or(backend.metadata);
        backend.body = body.or(backend.body);
        backend.headers = headers.or(backend.headers);
        backend.status_code = status_code.or(backend.status_code);
        change.put(&backend)?;
        Ok(backend)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    service.write(move |change| delete_unused::<HttpResponseBackend>(change, &params.id)).await
}

fn check_body(body: String) -> Result<String, Refusal> {
    if body.len() > LONGEST_BODY {
        let message = format!("body: is {} bytes long, the limit is {LONGEST_BODY}", body.len());
        return Err(Refusal::new(code::RESPONSE_BODY, message));
    }
    Ok(body)
}

/// Names come back in lower case.
fn check_headers(headers: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    let mut checked = BTreeMap::new();
    for (name, value) in headers {
        check_header("headers", &name, &value)?;
        checked.insert(name.to_ascii_lowercase(), value);
    }
    Ok(checked)
}

fn check_status(status: i64) -> Result<i64, Refusal> {
    if (200..=599).contains(&status) {
        return Ok(status);
    }
    let message = format!("status_code: {status} is not from 200 to 599");
    Err(Refusal::new(code::RESPONSE_STATUS, message))
}
