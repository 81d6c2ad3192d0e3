//! Application users: visitors after their login.

use crate::Timestamp;
use crate::macros::{resource, wire};

wire! {
    /// Where a visitor has logged in.
    pub struct IdentityProvider {
        /// The host of the provider.
        pub name: Option<String>,
        /// The issuer; for OAuth without one, where the provider says who somebody is.
        pub url: Option<String>,
    }

    /// A visitor who has logged in.
    pub struct ApplicationUser {
        /// Unique identifier, `au_` and 27 characters.
        pub id: String,
        /// The address of this user.
        pub uri: String,
        /// Where the user has logged in.
        pub identity_provider: Option<IdentityProvider>,
        /// The name that the provider gives to nobody else.
        pub provider_user_id: Option<String>,
        /// The name that the user logs in with, if the provider says it.
        pub username: Option<String>,
        /// The email address that the provider says, verified or not.
        pub email: Option<String>,
        /// What the user is called.
        pub name: Option<String>,
        /// When the user first logged in.
        pub created_at: Option<Timestamp>,
        /// When the user last sent a request; a few minutes old.
        pub last_active: Option<Timestamp>,
        /// When the user last logged in.
        pub last_login: Option<Timestamp>,
    }
}

resource! {
    /// Application users: visitors after their login.
    "application_users" {
        /// List the users, newest first.
        GET "/app/users" List([before_id: String, limit: i64]) -> [application_users: ApplicationUser];
        /// Fetch one user.
        GET "/app/users/{id}" Get(id: String) -> ApplicationUser;
        /// Delete a user and end all sessions of theirs, on all nodes; they may log in again.
        DELETE "/app/users/{id}" Delete(id: String);
    }
}
