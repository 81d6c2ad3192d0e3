//! IP policy rules: one CIDR of an IP policy, allowed or denied.

use crate::macros::{resource, wire};
use crate::remote::Ref;
use crate::{Description, Metadata};

wire! {
    /// One CIDR of an IP policy, allowed or denied.
    pub struct IpPolicyRule {
        item { prefix: "ipr", noun: "rule", created: "When the rule was created.", description: "Human-readable description of the rule" }
        /// A network in CIDR notation, IPv4 or IPv6, with no host bits set.
        #[public(text)]
        pub cidr: Option<String>,
        /// The IP policy that the rule belongs to.
        pub ip_policy: Option<Ref>,
        /// `allow` or `deny`.
        #[public(text)]
        pub action: Option<String>,
    }
}

resource! {
    /// IP policy rules: one CIDR of an IP policy, allowed or denied.
    "ip_policy_rules" {
        /// Add a rule to an IP policy.
        POST "/ip_policy_rules" Create(
            cidr: String,
            /// The IP policy to add the rule to.
            ip_policy_id: String,
            action: String,
            [description: Description, metadata: Metadata]
        ) -> IpPolicyRule;
        /// List the rules of all IP policies, newest first.
        GET "/ip_policy_rules" List([before_id: String, limit: i64]) -> [ip_policy_rules: IpPolicyRule];
        /// Fetch one rule.
        GET "/ip_policy_rules/{id}" Get(id: String) -> IpPolicyRule;
        /// Change a rule; what is left out keeps its value.
        PATCH "/ip_policy_rules/{id}" Update(id: String, [
            cidr: String,
            description: Description,
            metadata: Metadata,
        ]) -> IpPolicyRule;
        /// Delete a rule.
        DELETE "/ip_policy_rules/{id}" Delete(id: String);
    }
}
