//! Credentials: authtokens with which agents start sessions.

use crate::macros::{resource, wire};
use crate::{Description, Metadata, Secret};

wire! {
    /// An authtoken with which agents start sessions.
    pub struct Credential {
        item { prefix: "cr", noun: "credential", created: "When the credential was created.", description: "A description of what uses the credential" }
        /// The authtoken; present only in the response to `create`.
        pub token: Option<Secret>,
        /// What the credential may bind: `*`, or `bind:` and a domain, address or label; everything
        /// when empty; at most 256 entries.
        #[public(text)]
        pub acl: Option<Vec<String>>,
        /// The user or bot that owns the credential.
        #[public(text)]
        pub owner_id: Option<String>,
    }
}

resource! {
    /// Credentials: authtokens with which agents start sessions.
    "credentials" {
        /// Create a credential; only this response carries its token.
        #[issues(secret)]
        POST "/credentials" Create([
            description: Description,
            metadata: Metadata,
            acl: Vec<String>,
            /// The user or bot that is to own the credential; only an admin may name another than itself.
            owner_id: String,
        ]) -> Credential;
        /// List the credentials, newest first.
        GET "/credentials" List([before_id: String, limit: i64]) -> [credentials: Credential];
        /// Fetch one credential.
        GET "/credentials/{id}" Get(id: String) -> Credential;
        /// Change a credential; what is left out keeps its value, forbidden tunnels are stopped.
        PATCH "/credentials/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            acl: Vec<String>,
        ]) -> Credential;
        /// Delete a credential; the sessions that it started are ended at once.
        DELETE "/credentials/{id}" Delete(id: String);
    }
}
