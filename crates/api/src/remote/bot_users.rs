//! Bot users: machine accounts that own keys and credentials.

use crate::Timestamp;
use crate::macros::{resource, wire};

wire! {
    /// A machine account that owns keys and credentials.
    pub struct BotUser {
        /// Unique identifier, `bot_` and 27 characters.
        #[public(text)]
        pub id: String,
        /// The address of this bot user.
        #[public(text)]
        pub uri: String,
        /// When the bot user was created.
        pub created_at: Option<Timestamp>,
        /// A name that no other bot user has.
        #[public(text)]
        pub name: Option<String>,
        /// False for a bot user whose keys and credentials are refused.
        pub active: Option<bool>,
    }
}

resource! {
    /// Bot users: machine accounts that own keys and credentials.
    "bot_users" {
        /// Create a bot user; needs an admin key.
        POST "/bot_users" Create(name: String, [active: bool]) -> BotUser;
        /// List the bot users, newest first.
        GET "/bot_users" List([before_id: String, limit: i64]) -> [bot_users: BotUser];
        /// Fetch one bot user.
        GET "/bot_users/{id}" Get(id: String) -> BotUser;
        /// Change a bot user; needs an admin key. An inactive one loses its sessions at once.
        PATCH "/bot_users/{id}" Update(id: String, [name: String, active: bool]) -> BotUser;
        /// Delete a bot user with its keys, credentials and their sessions; needs an admin key.
        DELETE "/bot_users/{id}" Delete(id: String);
    }
}
