//! The web inspection page: what was captured, to look at and to send again (agent sheet,
//! section 7).
//!
//! `shell` sends the first view of each page as data. The scripts in `assets` draw it, and ask for more: `live` tells what is new, `view` shows records,
//! `filter` decides which, `edited_replay` sends them once more, `held` shows those that wait, `schedules` those that are sent again and again, `messages` those of streams, and `snippets` and `har` give them away.
//! Captured content comes from strangers: pages show it only as text, and [`mask`](ginnel_api::mask) hides secrets
//! in it. The local API beside it stays exact.

mod assets;
mod body_view;
mod edited_replay;
mod filter;
mod filter_terms;
mod har;
mod held;
mod live;
mod messages;
mod schedules;
mod shell;
mod snippets;
mod status;
mod traffic;
mod view;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::middleware::{map_request, map_response};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use serde::Serialize;

use super::capture::CaptureRecord;
use super::inner::AgentInner;
use super::web::{WebRejection, WebState, guard, longest_edit, read_body};
pub use body_view::{BodyView, PartView};
pub use filter::RequestFilter;
use ginnel_api::{json_response, mask, success_response};
use ginnel_web as web;
use live::{Cursor, MAX_UPDATE_REQUESTS};
use shell::FirstView;
use snippets::SnippetFormat;
pub use view::{DetailChoice, HeaderView, MessageView, RequestDetail, RequestSummary};

/// How many requests the first view shows.
const FIRST_VIEW_REQUESTS: usize = 50;
/// The header of a copy whose secrets are masked.
const SECRETS_MASKED: HeaderName = HeaderName::from_static("secrets-masked");
/// A path and query whose secrets are masked.
pub fn masked_target(target: &str) -> Cow<'_, str> {
    mask::target(target)
}

/// An answer, or why there is none.
type WebAnswer<T> = Result<T, WebRejection>;

/// The query of a request for data.
#[derive(Debug, Default)]
struct PageQuery {
    filter: String,
    since: Option<String>,
    before: Option<String>,
    form: Option<String>,
    ids: Vec<String>,
    reveal: bool,
    whole: bool,
}

impl<S: Sync> FromRequestParts<S> for PageQuery {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Infallible> {
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
                "whole" => query.whole = value == "1",
                _ => {}
            }
        }
        Ok(query)
    }
}

impl PageQuery {
    fn detail_choice(&self) -> DetailChoice {
        DetailChoice { reveal: self.reveal, whole: self.whole }
    }

    fn parse_filter(&self) -> Result<RequestFilter, WebRejection> {
        RequestFilter::parse_terms(&self.filter).map_err(WebRejection::invalid_parameter)
    }
}

/// The routes of the page, its files and its data.
pub(super) fn build_router() -> Router<Arc<WebState>> {
    let changes = Router::new()
        .route("/inspect/data/requests/{id}/replay", post(replay_request))
        .route("/inspect/data/held/{id}/release", post(release_request))
        .route_layer(map_request(require_json))
        .method_not_allowed_fallback(|uri: Uri| wrong_method(uri, "POST"));
    let data = Router::new()
        .route("/inspect/data/requests", get(list_requests))
        .route("/inspect/data/events", get(stream_events))
        .route("/inspect/data/status", get(status_data))
        .route("/inspect/data/held", get(held_requests))
        .route("/inspect/data/schedules", get(replay_schedules))
        .route("/inspect/data/traffic", get(traffic_data))
        .route("/inspect/data/export.har", get(export_har))
        .route("/inspect/data/requests/{id}", get(request_detail))
        .route("/inspect/data/requests/{id}/copy", get(request_snippet))
        .route("/inspect/data/requests/{id}/messages", get(stream_messages))
        .merge(changes)
        // These answers are for the page itself, not for one that embeds them.
        .route_layer(map_request(require_same_site));
    let mut router = data
        .route("/", get(redirect_to_requests))
        .route("/inspect", get(redirect_to_requests))
        .route("/inspect/", get(redirect_to_requests))
        .route("/inspect/assets/{name}", get(serve_asset))
        .route("/inspect/http/{id}", get(one_request));
    for (path, page) in [
        ("/status", get(status_page)),
        ("/inspect/http", get(all_requests)),
        ("/inspect/traffic", get(async || Html(shell::render_traffic()))),
        ("/inspect/rules", get(async || Html(shell::render_rules()))),
    ] {
        router = router.route(path, page.clone()).route(&format!("{path}/"), page);
    }
    router
        .method_not_allowed_fallback(|uri: Uri| wrong_method(uri, "GET, HEAD"))
        .layer(map_response(web::add_security_headers))
}

async fn wrong_method(uri: Uri, allow: &'static str) -> WebRejection {
    WebRejection::wrong_method(allow).with_path(uri.path())
}

async fn require_same_site(request: Request) -> Result<Request, WebRejection> {
    guard::check_site(request.headers()).map(|()| request)
}

async fn require_json(request: Request) -> Result<Request, WebRejection> {
    guard::check_type(request.headers()).map(|()| request)
}

async fn redirect_to_requests() -> Response {
    (StatusCode::FOUND, [(LOCATION, "/inspect/http")]).into_response()
}

async fn serve_asset(Path(name): Path<String>, uri: Uri, headers: HeaderMap) -> Response {
    let asset = web::serve_asset(assets::ASSETS, &name, &headers);
    asset.unwrap_or_else(|| WebRejection::not_found().with_path(uri.path()).into_response())
}

async fn status_page(State(state): State<Arc<WebState>>) -> Html<String> {
    Html(shell::render_status(&status::StatusPage::from_agent(&state.shared)))
}

async fn all_requests(
    State(state): State<Arc<WebState>>,
    query: PageQuery,
) -> WebAnswer<Html<String>> {
    requests_page(state, query, None).await
}

async fn one_request(
    State(state): State<Arc<WebState>>,
    Path(id): Path<String>,
    query: PageQuery,
) -> WebAnswer<Html<String>> {
    requests_page(state, query, Some(id)).await
}

async fn requests_page(
    state: Arc<WebState>,
    query: PageQuery,
    id: Option<String>,
) -> WebAnswer<Html<String>> {
    in_background(move || Html(first_view(&state.shared, query, id.as_deref()))).await
}

fn first_view(shared: &AgentInner, query: PageQuery, id: Option<&str>) -> String {
    let filter = RequestFilter::parse_terms(&query.filter);
    let update = |filter| live::update_since(shared, filter, None, FIRST_VIEW_REQUESTS);
    shell::render_requests(&FirstView {
        update: filter.as_ref().ok().map(update),
        problem: filter.err(),
        filter: query.filter,
        chosen: id.and_then(|id| find_detail(shared, id, DetailChoice::default()).ok()),
    })
}

fn find_detail(
    shared: &AgentInner,
    id: &str,
    choice: DetailChoice,
) -> Result<RequestDetail, WebRejection> {
    Ok(RequestDetail::from_record(shared, &find_record(shared, id)?, choice))
}

fn find_record(shared: &AgentInner, id: &str) -> Result<Arc<CaptureRecord>, WebRejection> {
    let record = shared.captures.find(id);
    record.ok_or_else(|| WebRejection::gone(format!("the request {id} is no longer kept")))
}

async fn list_requests(
    State(state): State<Arc<WebState>>,
    query: PageQuery,
) -> WebAnswer<Response> {
    let filter = query.parse_filter()?;
    let since = query.since.as_deref().and_then(Cursor::from_text);
    in_background(move || match query.before {
        Some(before) => {
            let (requests, more) = live::requests_before(&state.shared, &filter, &before);
            to_json_response(&serde_json::json!({"requests": requests, "more": more}))
        }
        None => to_json_response(&live::update_since(
            &state.shared,
            &filter,
            since,
            MAX_UPDATE_REQUESTS,
        )),
    })
    .await
}

async fn stream_events(
    State(state): State<Arc<WebState>>,
    headers: HeaderMap,
    query: PageQuery,
) -> WebAnswer<Response> {
    let filter = query.parse_filter()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let since = last.or(query.since.as_deref()).and_then(Cursor::from_text);
    let events = live::start(state.shared.clone(), filter, since);
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(events)).into_response())
}

async fn status_data(State(state): State<Arc<WebState>>) -> Response {
    to_json_response(&status::StatusPage::from_agent(&state.shared))
}

async fn traffic_data(State(state): State<Arc<WebState>>, query: PageQuery) -> Response {
    let from = query.since.as_deref().and_then(|since| since.parse().ok()).unwrap_or_default();
    to_json_response(&traffic::TrafficData::from_agent(&state.shared, from))
}

async fn export_har(State(state): State<Arc<WebState>>, query: PageQuery) -> WebAnswer<Response> {
    let filter = query.parse_filter()?;
    let archive = har::body_of(move |send| {
        let all = state.shared.captures.list(usize::MAX, None);
        let matching = all.iter().rev().filter(|record| match query.ids.is_empty() {
            true => filter.matches_record(record),
            false => query.ids.contains(&record.id),
        });
        har::write_archive(
            &state.shared,
            matching.map(|record| record.as_ref()),
            query.reveal,
            send,
        )
    });
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CONTENT_DISPOSITION, "attachment; filename=\"requests.har\""),
    ];
    Ok((headers, Body::new(archive)).into_response())
}

async fn request_detail(
    State(state): State<Arc<WebState>>,
    Path(id): Path<String>,
    query: PageQuery,
) -> WebAnswer<Response> {
    let detail =
        in_background(move || find_detail(&state.shared, &id, query.detail_choice())).await??;
    Ok(to_json_response(&detail))
}

async fn request_snippet(
    State(state): State<Arc<WebState>>,
    Path(id): Path<String>,
    query: PageQuery,
) -> WebAnswer<Response> {
    let form = query.form.as_deref().and_then(SnippetFormat::from_name);
    let form = form.ok_or_else(|| {
        let names = SnippetFormat::NAMES.map(|(name, _)| name).join(", ");
        WebRejection::invalid_parameter(format!("as: must be one of {names}"))
    })?;
    let agent = format!("http://{}/api", state.address);
    let record = find_record(&state.shared, &id)?;
    let render = move || form.render_request(&state.shared, &record, query.reveal, &agent);
    let snippet = in_background(render).await?;
    let content_type = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
    let mut response = (content_type, snippet.content).into_response();
    if snippet.is_masked {
        response.headers_mut().insert(SECRETS_MASKED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

async fn replay_request(
    State(state): State<Arc<WebState>>,
    Path(id): Path<String>,
    request: Request,
) -> WebAnswer<Response> {
    let edited = read_body(request.into_body(), longest_edit(&state.shared.captures)).await?;
    Ok(to_json_response(&edited_replay::replay_edited(&state.shared, &id, &edited).await?))
}

async fn stream_messages(
    State(state): State<Arc<WebState>>,
    Path(id): Path<String>,
    query: PageQuery,
) -> WebAnswer<Response> {
    let record = find_record(&state.shared, &id)?;
    let after = query.since.as_deref().and_then(|since| since.parse().ok()).unwrap_or_default();
    let page = move || {
        messages::MessagePage::from_record(&record, &state.shared.proto_files, after, query.reveal)
    };
    Ok(to_json_response(&in_background(page).await?))
}

async fn held_requests(
    State(state): State<Arc<WebState>>,
    query: PageQuery,
) -> WebAnswer<Response> {
    let held = in_background(move || held::list_held(&state.shared, query.reveal)).await?;
    Ok(to_json_response(&held))
}

async fn replay_schedules(State(state): State<Arc<WebState>>) -> Response {
    to_json_response(&schedules::list_schedules(&state.shared))
}

async fn release_request(
    State(state): State<Arc<WebState>>,
    Path(id): Path<String>,
    request: Request,
) -> WebAnswer<Response> {
    let edits = read_body(request.into_body(), longest_edit(&state.shared.captures)).await?;
    held::release_held(&state.shared, &id, &edits)?;
    Ok(success_response(204, Vec::new()))
}

/// Looks into bodies without holding up what else the agent does.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WebRejection> {
    let done = ginnel_base::tasks::spawn_blocking(work).await;
    done.map_err(|_| WebRejection::gone("the agent is stopping"))
}

fn to_json_response(value: &impl Serialize) -> Response {
    // The types of the page always make JSON.
    json_response(200, serde_json::to_vec(value).unwrap_or_default())
}
