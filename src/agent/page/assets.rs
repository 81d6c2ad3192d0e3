//! The files of the page, inside the program.

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

const SCRIPT_MEDIA_TYPE: &str = "text/javascript; charset=utf-8";

/// Name, media type and content.
const ASSETS: [(&str, &str, &str); 12] = [
    ("style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("requests.js", SCRIPT_MEDIA_TYPE, include_str!("assets/requests.js")),
    ("status.js", SCRIPT_MEDIA_TYPE, include_str!("assets/status.js")),
    ("body.js", SCRIPT_MEDIA_TYPE, include_str!("assets/body.js")),
    ("detail.js", SCRIPT_MEDIA_TYPE, include_str!("assets/detail.js")),
    ("difference.js", SCRIPT_MEDIA_TYPE, include_str!("assets/difference.js")),
    ("dom.js", SCRIPT_MEDIA_TYPE, include_str!("assets/dom.js")),
    ("editor.js", SCRIPT_MEDIA_TYPE, include_str!("assets/editor.js")),
    ("list.js", SCRIPT_MEDIA_TYPE, include_str!("assets/list.js")),
    ("live.js", SCRIPT_MEDIA_TYPE, include_str!("assets/live.js")),
    ("server.js", SCRIPT_MEDIA_TYPE, include_str!("assets/server.js")),
];

/// The file of this name.
pub(super) fn find(name: &str, headers: &HeaderMap) -> Option<Response> {
    let (_, media_type, content) = ASSETS.iter().find(|(asset_name, _, _)| *asset_name == name)?;
    let digest = Sha256::digest(content.as_bytes());
    let tag = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>();
    let tag = HeaderValue::from_str(&format!("\"{tag}\"")).ok()?;
    let asset_name = headers.get(IF_NONE_MATCH) == Some(&tag);
    let mut response = Response::new(Body::from(if asset_name { "" } else { *content }));
    if asset_name {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ETAG, tag);
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small() {
        let bytes = ASSETS.iter().map(|(_, _, content)| content.len()).sum::<usize>();

        assert!(bytes <= 150_000, "{bytes}");
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        for (name, _, content) in ASSETS {
            let named = content.replace("http://www.w3.org/", "");
            assert!(!named.contains("http://") && !named.contains("https://"), "{name}");
            assert!(!content.contains("innerHTML") && !content.contains("eval("), "{name}");
        }
    }
}
