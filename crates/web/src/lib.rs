//! What the pages of the agent and of the service share: the files of one design system, how files are
//! served, what a page may load, and how data goes into it.
//!
//! Pages are plain ES modules without a build step. A page serves its own files and these below one
//! path, so modules import each other as `./dom.js`.
//!
//! | File | What it has |
//! |---|---|
//! | `style.css` | tokens (colors, sizes) and components for light and dark |
//! | `dom.js` | elements from text, never from markup; sizes and times with units |
//! | `server.js` | calls that return JSON or a problem |
//! | `ui.js` | dialogs, tabs, toasts, badges, copy buttons, empty states |
//! | `table.js` | a grid with sorting, columns to choose, selection, 10,000 rows |
//! | `plot.js` | plots over time with axes and units, heat maps, bars |
//!
//! # Invariants
//!
//! - Pages load nothing from other hosts.

mod assets;

use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, HeaderName};
use serde::Serialize;

/// Checks of the files of a page, for tests.
#[cfg(any(test, feature = "test-support"))]
pub use assets::checks;
pub use assets::{Asset, serve_asset};

/// What a page may load and do: nothing but what comes from the server that sent it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob:; media-src 'self' blob:; connect-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

/// Adds what keeps other sites and injected markup away from a page, its files and its data.
pub async fn add_security_headers(mut response: Response) -> Response {
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let cache = HeaderValue::from_static("no-store");
    response.headers_mut().entry(CACHE_CONTROL).or_insert(cache);
    response
}

/// JSON that may stand in a `<script type="application/json">`, whatever its texts hold.
pub fn script_data(value: &impl Serialize) -> String {
    // The types of pages always make JSON.
    let data = serde_json::to_string(value).unwrap_or_default();
    // In JSON these stand in texts alone, where an escape means the same; in HTML they would end the data.
    data.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
