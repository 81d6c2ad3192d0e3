//! The web inspection page: what was captured, to look at and to send again (agent sheet,
//! section 7).
//!
//! `html` renders the first view of each page, so that it is of use without script. The scripts in
//! `assets` take over from there and ask for data: `live` tells what is new, `view` shows records,
//! `filter` decides which, `again` sends them once more, and `copies` and `har` give them away.
//! Captured content is a stranger's: it is only ever text, and [`mask`](crate::api::mask) masks what is nobody
//! else's business. The local API beside it stays exact.

mod again;
mod assets;
mod content;
mod copies;
mod filter;
mod har;
mod html;
mod live;
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

use super::Shared;
use super::web::{Answer, House, Refusal, guard, read, whole};
use crate::api::mask;
use filter::Filter;
use live::Cursor;
use view::Detail;

/// How many requests the first view shows.
const FIRST: usize = 50;
/// How long a changed request may be, in base64 and JSON.
const LONGEST: usize = 8 << 20;
/// What a page may load and do: nothing but what comes from here.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// A path and query whose secrets are masked.
pub fn masked_target(target: &str) -> Cow<'_, str> {
    mask::target(target)
}

/// The query of a request for data.
#[derive(Debug, Default)]
struct Query {
    filter: String,
    since: Option<String>,
    before: Option<String>,
    form: Option<String>,
    ids: Vec<String>,
    reveal: bool,
}

impl Query {
    fn read(head: &Parts) -> Self {
        let mut query = Self::default();
        let given = head.uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(given.as_bytes()) {
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

    fn filter(&self) -> Result<Filter, Refusal> {
        Filter::read(&self.filter).map_err(Refusal::invalid_parameter)
    }
}

/// Answers a request for the page or its data; none when the path is not of the page.
pub(super) async fn serve(
    house: &House,
    head: &Parts,
    body: Incoming,
) -> Option<Result<Response<Answer>, Refusal>> {
    let path = head.uri.path();
    let answered = match path.strip_prefix("/inspect/data/") {
        Some(rest) => data(house, head, rest, body).await,
        None => view(house, head, path).await?,
    };
    Some(answered.map(|mut response| {
        protect(&mut response);
        response
    }))
}

/// The pages and their files.
async fn view(
    house: &House,
    head: &Parts,
    path: &str,
) -> Option<Result<Response<Answer>, Refusal>> {
    let wrong = || Some(Err(Refusal::wrong_method(path, "GET, HEAD")));
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let response = match path {
        "/" | "/inspect" | "/inspect/" => redirect("/inspect/http"),
        "/status" | "/status/" => page(html::status(&status::Status::of(&house.shared))),
        "/inspect/http" | "/inspect/http/" => match requests(house, head, None).await {
            Ok(response) => response,
            Err(refusal) => return Some(Err(refusal)),
        },
        _ => match (path.strip_prefix("/inspect/assets/"), path.strip_prefix("/inspect/http/")) {
            (Some(name), _) => match assets::find(name, &head.headers) {
                Some(response) => response,
                None => return Some(Err(Refusal::not_found(path))),
            },
            (_, Some(id)) => match requests(house, head, Some(id)).await {
                Ok(response) => response,
                Err(refusal) => return Some(Err(refusal)),
            },
            _ => return None,
        },
    };
    if is_read { Some(Ok(response)) } else { wrong() }
}

/// What the scripts ask for.
async fn data(
    house: &House,
    head: &Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<Answer>, Refusal> {
    // These answers are for the page itself, not for one that embeds them.
    guard::check_site(&head.headers)?;
    let (shared, query) = (&house.shared, Query::read(head));
    let parts = path.split('/').collect::<Vec<_>>();
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["requests"]) => listed(shared, &query).await,
        ("GET", ["events"]) => events(shared, head, &query),
        ("GET", ["status"]) => Ok(json(&status::Status::of(shared))),
        ("GET", ["export.har"]) => export(shared, query),
        ("GET", ["requests", id]) => {
            let (shared, id) = (shared.clone(), (*id).to_owned());
            let detail = in_background(move || found(&shared, &id, query.reveal)).await??;
            Ok(json(&detail))
        }
        ("GET", ["requests", id, "copy"]) => copied(house, id, query).await,
        ("POST", ["requests", id, "replay"]) => {
            let given = read(body, LONGEST).await?;
            Ok(json(&again::replay(shared, id, &given).await?))
        }
        (_, parts) => Err(match methods(parts) {
            Some(allow) => Refusal::wrong_method(head.uri.path(), allow),
            None => Refusal::not_found(head.uri.path()),
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
    house: &House,
    head: &Parts,
    id: Option<&str>,
) -> Result<Response<Answer>, Refusal> {
    let (shared, query, id) = (house.shared.clone(), Query::read(head), id.map(str::to_owned));
    in_background(move || page(first_view(&shared, query, id.as_deref()))).await
}

fn first_view(shared: &Shared, query: Query, id: Option<&str>) -> String {
    let (filter, problem) = match Filter::read(&query.filter) {
        Ok(filter) => (filter, None),
        Err(problem) => (Filter::default(), Some(problem)),
    };
    let all = shared.captures.list(usize::MAX, None);
    let shown = all.iter().filter(|record| filter.holds(record)).take(FIRST);
    html::requests(&html::Listed {
        problem,
        requests: shown.map(|record| view::Summary::of(record)).collect(),
        filter: query.filter,
        kept: all.len(),
        chosen: id.map(|id| found(shared, id, false).ok().map(Box::new)),
    })
}

fn found(shared: &Shared, id: &str, reveal: bool) -> Result<Detail, Refusal> {
    let record = shared.captures.find(id);
    let record =
        record.ok_or_else(|| Refusal::gone(format!("the request {id} is not kept any more")))?;
    Ok(Detail::of(shared, &record, reveal))
}

async fn listed(shared: &Arc<Shared>, query: &Query) -> Result<Response<Answer>, Refusal> {
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

fn events(shared: &Arc<Shared>, head: &Parts, query: &Query) -> Result<Response<Answer>, Refusal> {
    let filter = query.filter()?;
    let last = head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let since = last.or(query.since.as_deref()).and_then(Cursor::read);
    let events = live::Events::start(shared.clone(), filter, since);
    let mut response = Response::new(events.boxed_unsync());
    set_type(&mut response, "text/event-stream");
    Ok(response)
}

fn export(shared: &Arc<Shared>, query: Query) -> Result<Response<Answer>, Refusal> {
    let filter = query.filter()?;
    let shared = shared.clone();
    let pieces = har::Pieces::of(move |send| {
        let all = shared.captures.list(usize::MAX, None);
        let wanted = all.iter().rev().filter(|record| match query.ids.is_empty() {
            true => filter.holds(record),
            false => query.ids.contains(&record.id),
        });
        har::write(&shared, wanted.map(|record| record.as_ref()), query.reveal, send)
    });
    let mut response = Response::new(pieces.boxed_unsync());
    set_type(&mut response, "application/json");
    let name = HeaderValue::from_static("attachment; filename=\"requests.har\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(response)
}

async fn copied(house: &House, id: &str, query: Query) -> Result<Response<Answer>, Refusal> {
    let form = query.form.as_deref().and_then(copies::Form::named);
    let problem = "as: is one of curl, requests, ginnel, raw, url";
    let form = form.ok_or_else(|| Refusal::invalid_parameter(problem))?;
    let (shared, id) = (house.shared.clone(), id.to_owned());
    let detail = in_background(move || found(&shared, &id, query.reveal)).await??;
    let agent = format!("http://{}/api", house.address);
    let mut response = Response::new(whole(form.write(&detail, &agent)));
    set_type(&mut response, "text/plain; charset=utf-8");
    Ok(response)
}

/// Looks into bodies without holding up what else the agent does.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Refusal::gone("the agent is stopping"))
}

fn json(value: &impl Serialize) -> Response<Answer> {
    // The types of the page always make JSON.
    let mut response = Response::new(whole(serde_json::to_vec(value).unwrap_or_default()));
    set_type(&mut response, "application/json");
    response
}

fn page(html: String) -> Response<Answer> {
    let mut response = Response::new(whole(html));
    set_type(&mut response, "text/html; charset=utf-8");
    response
}

fn redirect(to: &'static str) -> Response<Answer> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

fn set_type(response: &mut Response<Answer>, media_type: &'static str) {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
}

fn protect(response: &mut Response<Answer>) {
    for (name, value) in [
        ("content-security-policy", POLICY),
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
