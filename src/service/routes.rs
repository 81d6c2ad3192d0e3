//! From paths to handlers: one route per path template of the table.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{any, get};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName};
use serde_json::{Map, Value};

use super::Refusal;
use super::context::ServiceState;
use super::handlers::{self, PathHandlers};
use super::pipeline::{self, EncodedResponse};
use crate::api::{Info, Output, Verb, openapi, remote};

const CONTENT_TYPE_JSON: (HeaderName, &str) = (CONTENT_TYPE, "application/json");

/// The root: where the lists are.
const ROOT: Info = Info {
    resource: "",
    name: "get",
    doc: " List the addresses of all lists.\n",
    method: Verb::GET,
    path: "/",
    parameters: &[],
    output: Output::Nothing,
};

/// The routes of the management API.
pub(super) fn router(shared: &Arc<ServiceState>) -> Router {
    let mut router = Router::new();
    for (template, endpoint) in PathHandlers::by_template(handlers::all()) {
        let endpoint = Arc::new(endpoint);
        // A trailing slash makes no difference (remote API sheet, section 1).
        for path in [template.to_owned(), format!("{template}/")] {
            let (shared, endpoint) = (shared.clone(), endpoint.clone());
            let answer = move |request| pipeline::answer(shared, endpoint, request);
            router = router.route(&path, any(answer));
        }
    }
    let root = shared.clone();
    let nowhere = shared.clone();
    let described = describe(shared);
    router
        .route("/openapi.json", get(move || async move { ([CONTENT_TYPE_JSON], described) }))
        .route("/", any(move |request| answer_root(root, request)))
        .fallback(move |request| answer_nowhere(nowhere, request))
        .layer(from_fn_with_state(shared.clone(), pipeline::identify))
}

/// The API as an OpenAPI document; it says nothing secret, so it needs no key.
fn describe(shared: &ServiceState) -> Bytes {
    let about = openapi::ApiDescription {
        title: "Management API",
        description: "Keys, IP policies, edges, backends and modules of a tunnel service.",
        server: shared.base.as_str(),
        authorized: true,
    };
    openapi::document(about, remote::resources()).to_string().into()
}

async fn answer_root(shared: Arc<ServiceState>, request: Request) -> Response {
    let (head, mut body) = request.into_parts();
    let result = if matches!(head.method, Method::GET | Method::HEAD) {
        let lists = lists(&shared);
        let serve = |_, _| async { Ok(EncodedResponse { status: 200, body: lists }) };
        pipeline::checked(&shared, &ROOT, &head, &mut body, serve).await
    } else {
        Err(Refusal::no_such_method("/", "GET, HEAD"))
    };
    pipeline::respond(&shared, &head.headers, &mut body, result).await
}

async fn answer_nowhere(shared: Arc<ServiceState>, request: Request) -> Response {
    let (head, mut body) = request.into_parts();
    let refusal = Refusal::no_such_path(head.uri.path());
    pipeline::respond(&shared, &head.headers, &mut body, Err(refusal)).await
}

/// `{"uri": …, "api_keys_uri": …, "backends_failover_uri": …}`.
fn lists(shared: &ServiceState) -> Vec<u8> {
    let mut lists = Map::new();
    lists.insert("uri".to_owned(), shared.base.at("/").into());
    for info in remote::operations().filter(|info| matches!(info.output, Output::Page { .. })) {
        let name = format!("{}_uri", info.resource.replace('.', "_"));
        lists.insert(name, shared.base.at(info.path).into());
    }
    Value::Object(lists).to_string().into_bytes()
}
