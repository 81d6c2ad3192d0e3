//! Service users: the newer name of bot users.

use crate::Timestamp;
use crate::macros::{resource, wire};

wire! {
    /// A machine account that owns keys and credentials; the same as a bot user.
    pub struct ServiceUser {
        /// Unique identifier, `bot_` and 27 characters.
        pub id: String,
        /// The address of this service user.
        pub uri: String,
        /// When the service user was created.
        pub created_at: Option<Timestamp>,
        /// A name that no other service user has.
        pub name: Option<String>,
        /// False for a service user whose keys and credentials are refused.
        pub active: Option<bool>,
    }
}

resource! {
    /// Service users: the newer name of bot users, which are the same accounts.
    "service_users" {
        /// Create a service user; needs an admin key.
        POST "/service_users" Create(name: String, [active: bool]) -> ServiceUser;
        /// List the service users, newest first.
        GET "/service_users" List([before_id: String, limit: i64]) -> [service_users: ServiceUser];
        /// Fetch one service user.
        GET "/service_users/{id}" Get(id: String) -> ServiceUser;
        /// Change a service user; needs an admin key. An inactive one loses its sessions at once.
        PATCH "/service_users/{id}" Update(id: String, [name: String, active: bool]) -> ServiceUser;
        /// Delete a service user with its keys, credentials and their sessions; needs an admin key.
        DELETE "/service_users/{id}" Delete(id: String);
    }
}
