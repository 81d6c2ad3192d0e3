//! Files inside the program, and how they are served.

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

/// A file of a page.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    pub name: &'static str,
    pub content: &'static str,
}

/// The files that all pages use.
pub const SHARED: &[Asset] = &[
    Asset { name: "style.css", content: include_str!("assets/style.css") },
    Asset { name: "icon.svg", content: include_str!("assets/icon.svg") },
    Asset { name: "dom.js", content: include_str!("assets/dom.js") },
    Asset { name: "plot.js", content: include_str!("assets/plot.js") },
    Asset { name: "server.js", content: include_str!("assets/server.js") },
    Asset { name: "table.js", content: include_str!("assets/table.js") },
    Asset { name: "ui.js", content: include_str!("assets/ui.js") },
];

/// The file of this name among those of a page and those that all pages use.
pub fn serve_asset(own: &[Asset], name: &str, headers: &HeaderMap) -> Option<Response> {
    own.iter().chain(SHARED).find(|asset| asset.name == name).map(|asset| asset.serve(headers))
}

impl Asset {
    fn media_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        }
    }

    fn entity_tag(&self) -> String {
        let digest = Sha256::digest(self.content.as_bytes());
        let digits = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
        format!("\"{}\"", digits.collect::<String>())
    }

    /// The file, or that the browser has it already.
    fn serve(&self, request: &HeaderMap) -> Response {
        let tag = self.entity_tag();
        let is_known = request.get(IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
        let mut response = Response::new(Body::from(if is_known { "" } else { self.content }));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type()));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.extend(HeaderValue::from_str(&tag).map(|tag| (ETAG, tag)));
        response
    }
}

/// Checks of the files of a page, together with [`SHARED`]; for the tests of each page.
#[cfg(any(test, feature = "test-support"))]
pub mod checks {
    use std::io::Write;

    use super::*;

    /// How large a page and what it shares may be, compressed, in bytes.
    const MAX_PAGE_BYTES: usize = 160_000;

    /// The size of all files of a page, compressed as wheels and browsers do.
    #[allow(clippy::unwrap_used)]
    pub fn the_page_is_small(own: &[Asset]) {
        let compressed = own.iter().chain(SHARED).map(|asset| {
            let mut gzip =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip.write_all(asset.content.as_bytes()).unwrap();
            gzip.finish().unwrap().len()
        });
        let bytes = compressed.sum::<usize>();
        assert!(bytes <= MAX_PAGE_BYTES, "{bytes}");
    }

    /// No file names another site, or makes markup or code of text.
    pub fn nothing_comes_from_elsewhere(own: &[Asset]) {
        for Asset { name, content } in own.iter().chain(SHARED) {
            let named = content.replace("http://www.w3.org/", "");
            assert!(!named.contains("http://") && !named.contains("https://"), "{name}");
            for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "new Function"]
            {
                assert!(!content.contains(markup), "{name}: {markup}");
            }
        }
    }

    /// Every name is there once, so that no page hides a file that others import.
    pub fn names_are_unique(own: &[Asset]) {
        let names = own.iter().chain(SHARED).map(|asset| asset.name);
        let unique = names.clone().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(unique.len(), names.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = serve_asset(&[], "dom.js", &HeaderMap::new()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());

        let second = serve_asset(&[], "dom.js", &headers).unwrap();

        assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 304));
        assert_eq!(first.headers()[CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert!(serve_asset(&[], "../dom.js", &headers).is_none());
    }
}
