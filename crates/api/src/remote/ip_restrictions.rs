//! IP restrictions: from where the API, the console, agents and visitors may come.

use crate::macros::{resource, wire};
use crate::remote::Ref;
use crate::{Description, Metadata};

wire! {
    /// Which addresses may come in at one place of the service.
    pub struct AccountIpRestriction {
        item { prefix: "ipx", noun: "IP restriction", created: "When the IP restriction was created.", description: "Human-readable description of the IP restriction" }
        /// True if other addresses are refused, false if the service only logs a warning.
        pub enforced: Option<bool>,
        /// What it holds for: `api`, `dashboard` (the console), `agent` or `endpoints`.
        #[public(text)]
        pub r#type: Option<String>,
        /// The IP policies whose rules together say who may come in.
        pub ip_policies: Option<Vec<Ref>>,
    }
}

resource! {
    /// IP restrictions: from where the API, the console, agents and visitors may come.
    "ip_restrictions" {
        /// Create an IP restriction; needs an admin key, and must allow the caller to use the API.
        POST "/ip_restrictions" Create(
            r#type: String,
            /// The IP policies, 1 to 100, whose rules together say who may come in.
            ip_policy_ids: Vec<String>,
            [
                description: Description,
                metadata: Metadata,
                /// Whether other addresses are refused; without it, the service only logs a warning.
                enforced: bool,
            ]
        ) -> AccountIpRestriction;
        /// List the IP restrictions, newest first.
        GET "/ip_restrictions" List([before_id: String, limit: i64]) -> [ip_restrictions: AccountIpRestriction];
        /// Fetch one IP restriction.
        GET "/ip_restrictions/{id}" Get(id: String) -> AccountIpRestriction;
        /// Change an IP restriction; needs an admin key, and must allow the caller to use the API.
        PATCH "/ip_restrictions/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            enforced: bool,
            /// The IP policies in place of those that there were; an empty list changes nothing.
            ip_policy_ids: Vec<String>,
        ]) -> AccountIpRestriction;
        /// Delete an IP restriction; needs an admin key.
        DELETE "/ip_restrictions/{id}" Delete(id: String);
    }
}
