//! API keys: they authenticate calls to the management API.

use crate::macros::{resource, wire};
use crate::{Description, Metadata, Secret};

wire! {
    /// A key that authenticates calls to the management API.
    pub struct ApiKey {
        item { prefix: "ak", noun: "key", created: "When the key was created.", description: "A description of what uses the key" }
        /// The bearer token; present only in the response to `create`.
        pub token: Option<Secret>,
        /// The user or bot that owns the key.
        #[public(text)]
        pub owner_id: Option<String>,
    }
}

resource! {
    /// API keys: they authenticate calls to the management API.
    "api_keys" {
        /// Create an API key; only this response carries its token.
        #[issues(secret)]
        POST "/api_keys" Create([
            description: Description,
            metadata: Metadata,
            /// The user or bot that is to own the key; only an admin may name another than itself.
            owner_id: String,
        ]) -> ApiKey;
        /// List the API keys, newest first.
        GET "/api_keys" List([before_id: String, limit: i64]) -> [keys: ApiKey];
        /// Fetch one API key.
        GET "/api_keys/{id}" Get(id: String) -> ApiKey;
        /// Change an API key; what is left out keeps its value.
        PATCH "/api_keys/{id}" Update(id: String, [description: Description, metadata: Metadata]) -> ApiKey;
        /// Delete an API key; its next call is rejected.
        DELETE "/api_keys/{id}" Delete(id: String);
    }
}
