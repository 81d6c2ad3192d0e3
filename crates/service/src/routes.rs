//! From paths to handlers: one route per path template of the table.
//!
//! The templates are matched here, and not by `axum::Router`, whose layers and routes are boxed anew
//! for every request: 25 of 51 allocations of a read (`docs/benchmarks.md`).

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, request};
use hyper::body::Incoming;
use serde_json::{Map, Value};

use ginnel_api::remote::{self, DATABASE_BACKUP};
use ginnel_api::{Info, Output, Verb, openapi};
use ginnel_net::ApiService;
use ginnel_web as web;

use super::Refusal;
use super::backup::Download;
use super::console::{ConsoleResponse, ServiceConsole};
use super::context::{Context, ServiceState};
use super::handlers::{self, PathHandlers};
use super::home;
use super::not_offered::{self, NOT_OFFERED};
use super::pipeline::{self, EncodedResponse};

/// The root: where the lists are.
const ROOT: Info = Info {
    resource: "",
    name: "get",
    doc: " List the addresses of all lists.\n",
    method: Verb::GET,
    path: "/",
    parameters: &[],
    output: Output::Nothing,
    issues_secret: false,
};

/// The methods of what can only be read.
const READING: &str = "GET, HEAD";

/// What a path leads to.
enum ApiPath {
    Root,
    /// The OpenAPI document. Only the first request for it writes it, because that takes longer than the rest of
    /// the routes.
    Description(OnceLock<Bytes>),
    /// A copy of the database.
    Download,
    Operations(PathHandlers),
    /// What there is not, and what takes its place.
    NotOffered(&'static str),
    /// The page for people, with all that is below it.
    Console,
}

/// The management API.
struct ApiRoutes {
    shared: Arc<ServiceState>,
    console: Option<ServiceConsole>,
    paths: matchit::Router<Arc<ApiPath>>,
}

/// The management API, for the connections of a listener.
pub(super) fn api_service(
    shared: &Arc<ServiceState>,
    console: Option<ServiceConsole>,
) -> ApiService {
    let routes = Arc::new(ApiRoutes::new(shared.clone(), console));
    Arc::new(move |request| {
        let routes = routes.clone();
        Box::pin(async move {
            pipeline::with_request_id(&routes.shared, request, |request| routes.respond(request))
                .await
        })
    })
}

impl ApiRoutes {
    fn new(shared: Arc<ServiceState>, console: Option<ServiceConsole>) -> Self {
        let mut routes = Self { shared, console, paths: matchit::Router::new() };
        if routes.console.is_some() {
            routes.add_path("/console", ApiPath::Console);
            routes.insert_path("/console/{*path}".to_owned(), Arc::new(ApiPath::Console));
        }
        routes.add_path("/", ApiPath::Root);
        routes.add_path("/openapi.json", ApiPath::Description(OnceLock::new()));
        routes.add_path(DATABASE_BACKUP.path, ApiPath::Download);
        for (path, instead) in NOT_OFFERED {
            routes.add_path(path, ApiPath::NotOffered(instead));
            routes.insert_path(format!("{path}/{{*rest}}"), Arc::new(ApiPath::NotOffered(instead)));
        }
        for (template, handlers) in PathHandlers::by_template(handlers::all_handlers()) {
            routes.add_path(template, ApiPath::Operations(handlers));
        }
        routes
    }

    /// Adds a path; a slash at its end makes no difference (remote API sheet, section 1).
    fn add_path(&mut self, template: &str, leads_to: ApiPath) {
        let leads_to = Arc::new(leads_to);
        let template = template.trim_end_matches('/');
        for path in [template.to_owned(), format!("{template}/")] {
            if !path.is_empty() {
                self.insert_path(path, leads_to.clone());
            }
        }
    }

    fn insert_path(&mut self, path: String, leads_to: Arc<ApiPath>) {
        if let Err(error) = self.paths.insert(path, leads_to) {
            unreachable!("two operations have the same path: {error}");
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response {
        let (head, mut body) = request.into_parts();
        let shared = &self.shared;
        if let Err(refusal) = shared.live.load().limits.check_head(&head) {
            return pipeline::respond_encoded(shared, &head.headers, &mut body, Err(refusal)).await;
        }
        let found = self.find_path(&head);
        match (found.as_deref(), &self.console) {
            (Some(ApiPath::Console), Some(console)) => {
                self.respond_in_console(console, head, &mut body).await
            }
            _ => self.serve_request(found.as_deref(), &head, &mut body).await,
        }
    }

    /// What a request in the console leads to: a page, its data, or an operation.
    async fn respond_in_console(
        &self,
        console: &ServiceConsole,
        head: request::Parts,
        body: &mut Incoming,
    ) -> Response {
        match console.respond(head, body).await {
            ConsoleResponse::Done(response) => response,
            ConsoleResponse::Operation(head) => {
                let response =
                    self.serve_request(self.find_path(&head).as_deref(), &head, body).await;
                web::add_security_headers(response).await
            }
        }
    }

    fn find_path(&self, head: &request::Parts) -> Option<Arc<ApiPath>> {
        self.paths.at(head.uri.path()).ok().map(|found| found.value.clone())
    }

    /// Answers a request of a program.
    async fn serve_request(
        &self,
        path: Option<&ApiPath>,
        head: &request::Parts,
        body: &mut Incoming,
    ) -> Response {
        let shared = &self.shared;
        let refusal = match path {
            Some(ApiPath::Operations(handlers)) => {
                return pipeline::respond_to(shared, handlers, head, body).await;
            }
            Some(ApiPath::Root) => return self.respond_at_root(head, body).await,
            Some(ApiPath::Download) if head.method == Method::POST => {
                return self.download_backup(head, body).await;
            }
            Some(ApiPath::Download) => Refusal::no_such_method(head.uri.path(), "POST, OPTIONS"),
            Some(ApiPath::Description(document)) if is_read_request(head) => {
                let document = document.get_or_init(|| openapi_document(shared));
                return openapi_response(document.clone());
            }
            Some(ApiPath::Description(_)) => Refusal::no_such_method(head.uri.path(), READING),
            Some(ApiPath::NotOffered(instead)) => {
                not_offered::not_offered_refusal(head.uri.path(), instead)
            }
            Some(ApiPath::Console) | None => Refusal::no_such_path(head.uri.path()),
        };
        pipeline::respond_encoded(shared, &head.headers, body, Err(refusal)).await
    }

    /// A page for browsers, the addresses of all lists for programs.
    async fn respond_at_root(&self, head: &request::Parts, body: &mut Incoming) -> Response {
        let shared = &self.shared;
        if !is_read_request(head) {
            let refusal = Refusal::no_such_method("/", READING);
            return pipeline::respond_encoded(shared, &head.headers, body, Err(refusal)).await;
        }
        if home::is_for(&head.headers) {
            return home::page_response(&shared.base, self.console.is_some());
        }
        let lists = list_addresses(shared);
        let serve = |_, _| async { Ok(EncodedResponse { status: 200, body: lists }) };
        let result = pipeline::check_and_serve(shared, &ROOT, head, body, serve).await;
        pipeline::respond_encoded(shared, &head.headers, body, result).await
    }

    /// A copy of the database.
    async fn download_backup(&self, head: &request::Parts, body: &mut Incoming) -> Response {
        let shared = &self.shared;
        let serve = |Context { caller, .. }, _| async move {
            shared
                .downloads
                .start_download(shared.store.clone(), &caller)
                .await
                .map(backup_response)
        };
        let result = pipeline::check_and_serve(shared, &DATABASE_BACKUP, head, body, serve).await;
        pipeline::finish_response(shared, &head.headers, body, result).await
    }
}

fn backup_response(download: Download) -> Response {
    let mut response = Response::new(download.into_body());
    let database = HeaderValue::from_static("application/vnd.sqlite3");
    response.headers_mut().insert(CONTENT_TYPE, database);
    response
}

fn is_read_request(head: &request::Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
}

fn openapi_response(document: Bytes) -> Response {
    let mut response = Response::new(Body::from(document));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The API as an OpenAPI document; it says nothing secret, so it needs no key.
fn openapi_document(shared: &ServiceState) -> Bytes {
    let about = openapi::ApiDescription {
        title: "Management API",
        description: "Keys, IP policies, edges, backends and modules of a tunnel service.",
        server: shared.base.as_str(),
        authorized: true,
    };
    openapi::build_document(about, remote::resources()).to_string().into()
}

/// `{"uri": …, "api_keys_uri": …, "backends_failover_uri": …}`.
fn list_addresses(shared: &ServiceState) -> Vec<u8> {
    let mut lists = Map::new();
    lists.insert("uri".to_owned(), shared.base.path_url("/").into());
    // A list inside a row has no address of its own.
    let is_list = |info: &&Info| matches!(info.output, Output::Page { .. }) && info.name == "list";
    for info in remote::operations().filter(is_list) {
        let name = format!("{}_uri", info.resource.replace('.', "_"));
        lists.insert(name, shared.base.path_url(info.path).into());
    }
    Value::Object(lists).to_string().into_bytes()
}
