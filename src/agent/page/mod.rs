//! The web inspection page: what was captured, to look at and to send again (agent sheet,
//! section 7).
//!
//! `html` renders the first view of each page, so that it is of use without script. The scripts in
//! `assets` take over from there and ask for data: `live` tells what is new, `view` shows records,
//! `filter` decides which, `edited_replay` sends them once more, and `snippets` and `har` give them away.
//! Captured content is a stranger's: it is only ever text, and [`mask`](crate::api::mask) masks what is nobody
//! else's business. The local API beside it stays exact.

mod assets;
mod content;
mod edited_replay;
mod filter;
mod har;
mod html;
mod live;
mod snippets;
mod status;
mod view;

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, LOCATION};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;

use super::inner::AgentInner;
use super::web::{WebBody, WebRejection, WebState, guard, read, whole};
use crate::api::mask;
use filter::RequestFilter;
use live::Cursor;
use view::Detail;

/// How many requests the first view shows.
const FIRST_VIEW_REQUESTS: usize = 50;
/// How long a changed request may be, in base64 and JSON.
const MAX_REPLAY_BYTES: usize = 8 << 20;
/// What a page may load and do: nothing but what comes from here.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// A path and query whose secrets are masked.
pub fn masked_target(target: &str) -> Cow<'_, str> {
    mask::target(target)
}

/// The query of a request for data.
#[derive(Debug, Default)]
struct PageQuery {
    filter: String,
    since: Option<String>,
    before: Option<String>,
    form: Option<String>,
    ids: Vec<String>,
    reveal: bool,
}

impl PageQuery {
    fn read(head: &Parts) -> Self {
        let mut query = Self::default();
        let text = head.uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            match name.as_ref() {
                "filter" => query.filter = value.into_owned(),
                "since" => query.since = Some(value.into_owned()),
                "before" => query.before = Some(value.into_owned()),
                "as" => query.form = Some(value.into_owned()),
                "id" => query.ids.push(value.into_owned()),
                "reveal" => query.reveal = value == "1",
                _ => {}
            }
        }
        query
    }

    fn filter(&self) -> Result<RequestFilter, WebRejection> {
        RequestFilter::read(&self.filter).map_err(WebRejection::invalid_parameter)
    }
}

/// Answers a request for the page or its data; none when the path is not of the page.
pub(super) async fn serve(
    state: &WebState,
    head: &Parts,
    body: Incoming,
) -> Option<Result<Response<WebBody>, WebRejection>> {
    let path = head.uri.path();
    let answered = match path.strip_prefix("/inspect/data/") {
        Some(rest) => data(state, head, rest, body).await,
        None => view(state, head, path).await?,
    };
    Some(answered.map(|mut response| {
        protect(&mut response);
        response
    }))
}

/// The pages and their files.
async fn view(
    state: &WebState,
    head: &Parts,
    path: &str,
) -> Option<Result<Response<WebBody>, WebRejection>> {
    let wrong = || Some(Err(WebRejection::wrong_method(path, "GET, HEAD")));
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let response = match path {
        "/" | "/inspect" | "/inspect/" => redirect("/inspect/http"),
        "/status" | "/status/" => page(html::status(&status::StatusPage::of(&state.shared))),
        "/inspect/http" | "/inspect/http/" => match requests(state, head, None).await {
            Ok(response) => response,
            Err(rejection) => return Some(Err(rejection)),
        },
        _ => match (path.strip_prefix("/inspect/assets/"), path.strip_prefix("/inspect/http/")) {
            (Some(name), _) => match assets::find(name, &head.headers) {
                Some(response) => response,
                None => return Some(Err(WebRejection::not_found(path))),
            },
            (_, Some(id)) => match requests(state, head, Some(id)).await {
                Ok(response) => response,
                Err(rejection) => return Some(Err(rejection)),
            },
            _ => return None,
        },
    };
    if is_read { Some(Ok(response)) } else { wrong() }
}

/// What the scripts ask for.
async fn data(
    state: &WebState,
    head: &Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<WebBody>, WebRejection> {
    // These answers are for the page itself, not for one that embeds them.
    guard::check_site(&head.headers)?;
    let (shared, query) = (&state.shared, PageQuery::read(head));
    let parts = path.split('/').collect::<Vec<_>>();
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["requests"]) => listed(shared, &query).await,
        ("GET", ["events"]) => events(shared, head, &query),
        ("GET", ["status"]) => Ok(json(&status::StatusPage::of(shared))),
        ("GET", ["export.har"]) => export(shared, query),
        ("GET", ["requests", id]) => {
            let (shared, id) = (shared.clone(), (*id).to_owned());
            let detail = in_background(move || detail_of(&shared, &id, query.reveal)).await??;
            Ok(json(&detail))
        }
        ("GET", ["requests", id, "copy"]) => snippet(state, id, query).await,
        ("POST", ["requests", id, "replay"]) => {
            let text = read(body, MAX_REPLAY_BYTES).await?;
            Ok(json(&edited_replay::replay(shared, id, &text).await?))
        }
        (_, parts) => Err(match methods(parts) {
            Some(allow) => WebRejection::wrong_method(head.uri.path(), allow),
            None => WebRejection::not_found(head.uri.path()),
        }),
    }
}

/// The methods of a path below the data, in parts; none where nothing is there.
fn methods(parts: &[&str]) -> Option<&'static str> {
    match parts {
        ["requests" | "events" | "status" | "export.har"]
        | ["requests", _]
        | ["requests", _, "copy"] => Some("GET, HEAD"),
        ["requests", _, "replay"] => Some("POST"),
        _ => None,
    }
}

async fn requests(
    state: &WebState,
    head: &Parts,
    id: Option<&str>,
) -> Result<Response<WebBody>, WebRejection> {
    let (shared, query, id) = (state.shared.clone(), PageQuery::read(head), id.map(str::to_owned));
    in_background(move || page(first_view(&shared, query, id.as_deref()))).await
}

fn first_view(shared: &AgentInner, query: PageQuery, id: Option<&str>) -> String {
    let (filter, problem) = match RequestFilter::read(&query.filter) {
        Ok(filter) => (filter, None),
        Err(problem) => (RequestFilter::default(), Some(problem)),
    };
    let all = shared.captures.list(usize::MAX, None);
    let shown = all.iter().filter(|record| filter.holds(record)).take(FIRST_VIEW_REQUESTS);
    html::requests(&html::RequestList {
        problem,
        requests: shown.map(|record| view::Summary::of(record)).collect(),
        filter: query.filter,
        kept: all.len(),
        chosen: id.map(|id| detail_of(shared, id, false).ok().map(Box::new)),
    })
}

fn detail_of(shared: &AgentInner, id: &str, reveal: bool) -> Result<Detail, WebRejection> {
    let record = shared.captures.find(id);
    let record =
        record.ok_or_else(|| WebRejection::gone(format!("the request {id} is no longer kept")))?;
    Ok(Detail::of(shared, &record, reveal))
}

async fn listed(
    shared: &Arc<AgentInner>,
    query: &PageQuery,
) -> Result<Response<WebBody>, WebRejection> {
    let filter = query.filter()?;
    let (shared, before) = (shared.clone(), query.before.clone());
    let since = query.since.as_deref().and_then(Cursor::read);
    in_background(move || match before {
        Some(before) => {
            let (requests, more) = live::older(&shared, &filter, &before);
            json(&serde_json::json!({"requests": requests, "more": more}))
        }
        None => json(&live::update(&shared, &filter, since)),
    })
    .await
}

fn events(
    shared: &Arc<AgentInner>,
    head: &Parts,
    query: &PageQuery,
) -> Result<Response<WebBody>, WebRejection> {
    let filter = query.filter()?;
    let last = head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let since = last.or(query.since.as_deref()).and_then(Cursor::read);
    let events = live::LiveEvents::start(shared.clone(), filter, since);
    let mut response = Response::new(events.boxed_unsync());
    set_type(&mut response, "text/event-stream");
    Ok(response)
}

fn export(shared: &Arc<AgentInner>, query: PageQuery) -> Result<Response<WebBody>, WebRejection> {
    let filter = query.filter()?;
    let shared = shared.clone();
    let pieces = har::HarBody::of(move |send| {
        let all = shared.captures.list(usize::MAX, None);
        let matching = all.iter().rev().filter(|record| match query.ids.is_empty() {
            true => filter.holds(record),
            false => query.ids.contains(&record.id),
        });
        har::write(&shared, matching.map(|record| record.as_ref()), query.reveal, send)
    });
    let mut response = Response::new(pieces.boxed_unsync());
    set_type(&mut response, "application/json");
    let name = HeaderValue::from_static("attachment; filename=\"requests.har\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(response)
}

async fn snippet(
    state: &WebState,
    id: &str,
    query: PageQuery,
) -> Result<Response<WebBody>, WebRejection> {
    let form = query.form.as_deref().and_then(snippets::SnippetFormat::named);
    let problem = "as: must be one of curl, requests, ginnel, raw, url";
    let form = form.ok_or_else(|| WebRejection::invalid_parameter(problem))?;
    let (shared, id) = (state.shared.clone(), id.to_owned());
    let detail = in_background(move || detail_of(&shared, &id, query.reveal)).await??;
    let agent = format!("http://{}/api", state.address);
    let mut response = Response::new(whole(form.write(&detail, &agent)));
    set_type(&mut response, "text/plain; charset=utf-8");
    Ok(response)
}

/// Looks into bodies without holding up what else the agent does.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WebRejection> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| WebRejection::gone("the agent is stopping"))
}

fn json(value: &impl Serialize) -> Response<WebBody> {
    // The types of the page always make JSON.
    let mut response = Response::new(whole(serde_json::to_vec(value).unwrap_or_default()));
    set_type(&mut response, "application/json");
    response
}

fn page(html: String) -> Response<WebBody> {
    let mut response = Response::new(whole(html));
    set_type(&mut response, "text/html; charset=utf-8");
    response
}

fn redirect(to: &'static str) -> Response<WebBody> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

fn set_type(response: &mut Response<WebBody>, media_type: &'static str) {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
}

fn protect(response: &mut Response<WebBody>) {
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let cache = HeaderValue::from_static("no-store");
    response.headers_mut().entry("cache-control").or_insert(cache);
}
