//! Credentials: authtokens with which agents start sessions.

use crate::macros::{resource, wire};
use crate::{Description, Metadata, Secret, Timestamp};

wire! {
    /// An authtoken with which agents start sessions.
    pub struct Credential {
        /// Unique identifier, `cr_` and 27 characters.
        #[public(text)]
        pub id: String,
        /// The address of this credential.
        #[public(text)]
        pub uri: String,
        /// When the credential was created.
        pub created_at: Option<Timestamp>,
        /// A description of what uses the credential; at most 255 bytes.
        #[public(text)]
        pub description: Option<Description>,
        /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
        #[public(text)]
        pub metadata: Option<Metadata>,
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
