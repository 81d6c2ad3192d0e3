//! IP policies: reusable groups of CIDR rules.

use crate::macros::{resource, wire};
use crate::{Description, Metadata};

wire! {
    /// A reusable group of CIDR rules.
    pub struct IpPolicy {
        item { prefix: "ipp", noun: "IP policy", created: "When the IP policy was created.", description: "A description of the source addresses" }
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
