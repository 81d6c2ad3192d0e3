//! Audit events: read by admins, and changed by nobody.

use ginnel_api::remote::audit_events::{AuditEvent, Get, List};
use ginnel_api::{Operation, Page, Timestamp, encode_operation};
use ginnel_store::{EventQuery, StoreError};

use crate::audit::{operation_term, principal_term, resource_term, to_micros};
use crate::context::check_before;
use crate::handlers::prelude::*;

/// How many events a page has unless its size is given.
const DEFAULT_LIMIT: usize = 100;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_admin(&service)?;
    check_before(params.before_id.as_deref(), prefix::AUDIT_EVENT)?;
    let limit = params.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
    let query = EventQuery {
        after: params
            .created_after
            .as_ref()
            .map(|at| parse_time("created_after", at))
            .transpose()?,
        before: params
            .created_before
            .as_ref()
            .map(|at| parse_time("created_before", at))
            .transpose()?,
        before_id: params.before_id.clone(),
        terms: search_terms(&params),
        // One more than is shown tells whether there is a next page.
        limit: limit + 1,
    };
    let bodies = service.read(move |view| Ok(view.audit_events(&query)?)).await?;
    let is_more = bodies.len() > limit;
    let shown = bodies.iter().take(limit).map(|body| decode_event(&service, body));
    let items = shown.collect::<Result<Vec<_>, _>>()?;
    let next = items.last().filter(|_| is_more).map(|last| next_page(&params, &last.id, limit));
    let base = &service.shared.base;
    Ok(Page {
        field: List::INFO.list_field().to_owned(),
        items,
        uri: base.path_url(List::INFO.path),
        next_page_uri: next.transpose()?.map(|target| base.path_url(&target)),
        is_whole: false,
    })
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    check_admin(&service)?;
    let body = service.read(move |view| Ok(view.audit_event(&params.id)?)).await?;
    decode_event(&service, &body.ok_or_else(Refusal::not_found)?)
}

/// The trail tells about everybody, so not everybody may read it.
fn check_admin(service: &Context) -> Result<()> {
    service.caller.check_admin(code::AUDIT_NEEDS_ADMIN, "read audit events")
}

/// What the events must have; the term that the fewest of them have comes first.
fn search_terms(params: &List) -> Vec<String> {
    let resource = params.resource_id.as_deref().map(resource_term);
    let principal = params.principal.as_deref().map(principal_term);
    let operation = params.operation.as_deref().map(operation_term);
    [resource, principal, operation].into_iter().flatten().collect()
}

fn parse_time(name: &str, at: &Timestamp) -> Result<i64> {
    let parsed = chrono::DateTime::parse_from_rfc3339(&at.0);
    parsed.map(|at| to_micros(at.into())).map_err(|_| {
        let message = format!("{name}: {:?} is not a time such as 2026-01-02T03:04:05Z", at.0);
        Refusal::new(code::INVALID_VALUE, message)
    })
}

/// Where the next page is: the same question, after the last event of this page.
fn next_page(params: &List, last: &str, limit: usize) -> Result<String> {
    let next = List {
        before_id: Some(last.to_owned()),
        limit: i64::try_from(limit).ok(),
        ..params.clone()
    };
    let call = encode_operation(&next);
    call.map(|call| call.target).map_err(|error| Refusal::new(code::UNEXPECTED, error.to_string()))
}

fn decode_event(service: &Context, body: &str) -> Result<AuditEvent> {
    let mut event: AuditEvent = serde_json::from_str(body).map_err(StoreError::from)?;
    event.uri = service.shared.base.path_url(&format!("{}/{}", List::INFO.path, event.id));
    Ok(event)
}
