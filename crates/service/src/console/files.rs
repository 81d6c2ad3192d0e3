//! The page and its files: the same for everybody, with nothing in them that is secret.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode, request};

use ginnel_web::{self as web, Asset};

const PAGE: &str = include_str!("assets/console.html");

/// The files that only the console has.
const ASSETS: &[Asset] = &[
    Asset { name: "address.js", content: include_str!("assets/address.js") },
    Asset { name: "choice.js", content: include_str!("assets/choice.js") },
    Asset { name: "console.css", content: include_str!("assets/console.css") },
    Asset { name: "console.js", content: include_str!("assets/console.js") },
    Asset { name: "deliveries.js", content: include_str!("assets/deliveries.js") },
    Asset { name: "event_filter.js", content: include_str!("assets/event_filter.js") },
    Asset { name: "fields.js", content: include_str!("assets/fields.js") },
    Asset { name: "forms.js", content: include_str!("assets/forms.js") },
    Asset { name: "model.js", content: include_str!("assets/model.js") },
    Asset { name: "moment.js", content: include_str!("assets/moment.js") },
    Asset { name: "overview.js", content: include_str!("assets/overview.js") },
    Asset { name: "policy.js", content: include_str!("assets/policy.js") },
    Asset { name: "resources.js", content: include_str!("assets/resources.js") },
    Asset { name: "session.js", content: include_str!("assets/session.js") },
    Asset { name: "traffic.js", content: include_str!("assets/traffic.js") },
    Asset { name: "views.js", content: include_str!("assets/views.js") },
];

/// The page or the file at a path below `/console`.
pub(super) fn find_file(head: &request::Parts, path: &str) -> Option<Response> {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return None;
    }
    match path {
        "" => Some(redirect_response()),
        "/" => Some(page_response()),
        _ => web::serve_asset(ASSETS, path.strip_prefix("/assets/")?, &head.headers),
    }
}

/// Leads to the path that the cookie of a session counts for.
fn redirect_response() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("console/"));
    response
}

fn page_response() -> Response {
    let mut response = Response::new(Body::from(PAGE));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, html);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_its_own() {
        web::checks::the_page_is_small(ASSETS);
        web::checks::nothing_comes_from_elsewhere(ASSETS);
        web::checks::names_are_unique(ASSETS);
        assert!(!PAGE.contains("style=") && !PAGE.contains(" on") && !PAGE.contains("://"));
    }
}
