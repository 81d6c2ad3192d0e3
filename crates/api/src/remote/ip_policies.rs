//! IP policies: reusable groups of CIDR rules.

use crate::macros::{resource, wire};
use crate::{Description, Metadata, Timestamp};

wire! {
    /// A reusable group of CIDR rules.
    pub struct IpPolicy {
        /// Unique identifier, `ipp_` and 27 characters.
        #[public(text)]
        pub id: String,
        /// The address of this IP policy.
        #[public(text)]
        pub uri: String,
        /// When the IP policy was created.
        pub created_at: Option<Timestamp>,
        /// A description of the source addresses; at most 255 bytes.
        #[public(text)]
        pub description: Option<Description>,
        /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
        #[public(text)]
        pub metadata: Option<Metadata>,
    }
}

resource! {
    /// IP policies: reusable groups of CIDR rules.
    "ip_policies" {
        /// Create an IP policy; add rules to it afterwards.
        POST "/ip_policies" Create([description: Description, metadata: Metadata]) -> IpPolicy;
        /// List the IP policies, newest first.
        GET "/ip_policies" List([before_id: String, limit: i64]) -> [ip_policies: IpPolicy];
        /// Fetch one IP policy.
        GET "/ip_policies/{id}" Get(id: String) -> IpPolicy;
        /// Change an IP policy; what is left out keeps its value.
        PATCH "/ip_policies/{id}" Update(id: String, [description: Description, metadata: Metadata]) -> IpPolicy;
        /// Delete an IP policy and its rules; what refers to it acts as if it had no rules.
        DELETE "/ip_policies/{id}" Delete(id: String);
    }
}
