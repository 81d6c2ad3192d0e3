//! HTTP response backends: an answer that HTTP can carry.

use std::collections::BTreeMap;

use ginnel_api::remote::backends::http_response::{Create, HttpResponseBackend, Update};
use ginnel_gateway::modules::header_edits::check_header;

use super::backend;
use crate::handlers::prelude::*;

/// The longest body, in bytes (remote API sheet, section 6).
const LONGEST_BODY: usize = 64 * 1024;

backend! { HttpResponseBackend }

usual_handlers! { backends::http_response }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let body = check_body(params.body.unwrap_or_default())?;
    let headers = check_headers(params.headers.unwrap_or_default())?;
    let status_code = check_status(params.status_code.unwrap_or(200))?;
    let create = service.write_resource(move |change| {
        stored(
            change,
            new_item!(change, params => HttpResponseBackend {
                body: Some(body),
                headers: Some(headers),
                status_code: Some(status_code),
            }),
        )
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let body = params.body.map(check_body).transpose()?;
    let headers = params.headers.map(check_headers).transpose()?;
    let status_code = params.status_code.map(check_status).transpose()?;
    let update = service.write_resource(move |change| {
        let mut backend = changed_item!(
            change, params => HttpResponseBackend { description, metadata }
        );
        backend.body = body.or(backend.body);
        backend.headers = headers.or(backend.headers);
        backend.status_code = status_code.or(backend.status_code);
        stored(change, backend)
    });
    update.await
}

fn check_body(body: String) -> Result<String> {
    if body.len() > LONGEST_BODY {
        let message = format!("body: is {} bytes long, the limit is {LONGEST_BODY}", body.len());
        return Err(Refusal::new(code::RESPONSE_BODY, message));
    }
    Ok(body)
}

/// Names come back in lower case.
fn check_headers(headers: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let mut checked = BTreeMap::new();
    for (name, value) in headers {
        check_header("headers", &name, &value)?;
        checked.insert(name.to_ascii_lowercase(), value);
    }
    Ok(checked)
}

fn check_status(status: i64) -> Result<i64> {
    if (200..=599).contains(&status) {
        return Ok(status);
    }
    let message = format!("status_code: {status} is not from 200 to 599");
    Err(Refusal::new(code::RESPONSE_STATUS, message))
}
