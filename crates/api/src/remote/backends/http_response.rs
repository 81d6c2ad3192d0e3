//! HTTP response backends: one fixed response.

use std::collections::BTreeMap;

use crate::macros::{resource, wire};
use crate::{Description, Metadata};

wire! {
    /// A backend that gives one fixed response.
    pub struct HttpResponseBackend {
        item { prefix: "bkdhr", noun: "backend", created: "When the backend was created.", description: "Human-readable description of the backend" }
        /// The body of the response, at most 64 KiB.
        pub body: Option<String>,
        /// The headers of the response; names come back in lower case.
        pub headers: Option<BTreeMap<String, String>>,
        /// The status of the response, 200 by default.
        pub status_code: Option<i64>,
    }
}

resource! {
    /// HTTP response backends: one fixed response.
    "backends.http_response" {
        /// Create an HTTP response backend.
        POST "/backends/http_response" Create([
            description: Description,
            metadata: Metadata,
            body: String,
            headers: BTreeMap<String, String>,
            status_code: i64,
        ]) -> HttpResponseBackend;
        /// List the HTTP response backends, newest first.
        GET "/backends/http_response" List([before_id: String, limit: i64]) -> [backends: HttpResponseBackend];
        /// Fetch one HTTP response backend.
        GET "/backends/http_response/{id}" Get(id: String) -> HttpResponseBackend;
        /// Change an HTTP response backend; what is left out keeps its value.
        PATCH "/backends/http_response/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            body: String,
            headers: BTreeMap<String, String>,
            status_code: i64,
        ]) -> HttpResponseBackend;
        /// Delete an HTTP response backend; refused while something refers to it.
        DELETE "/backends/http_response/{id}" Delete(id: String);
    }
}
