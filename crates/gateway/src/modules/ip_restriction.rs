//! Who may come, by address.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use ginnel_api::id::prefix;
use ginnel_api::local::tunnels;
use ginnel_api::remote::Ref;
use ginnel_api::remote::edges::modules::{IpRestriction, IpRestrictionChange};
use ginnel_policy::Cidr;
use ginnel_policy::head_change::HeadChange;
use ginnel_policy::head_view::HeadView;
use ginnel_policy::ip_rules::IpRules;

use crate::message::visitor::Visitor;
use crate::modules::ip_policies;
use crate::modules::prelude::*;

/// How many IP policies a restriction may name.
const MAX_POLICIES: usize = 100;
/// The number of a restriction without IP policies.
const EMPTY_RESTRICTION: u16 = 7025;

/// The policies that decide who may come; a policy that was deleted has no rules.
#[derive(Debug)]
pub struct IpRestrictions(pub Vec<Arc<ArcSwap<IpRules>>>);

impl IpRestrictions {
    /// Whether somebody from this address may come.
    fn allows_address(&self, address: IpAddr) -> bool {
        ip_policies::allows_address(&self.0, address)
    }
}

impl Module for IpRestrictions {
    fn kind(&self) -> ModuleKind {
        ModuleKind::IpRestriction
    }

    fn head_filter(&self) -> Option<&dyn HeadFilter> {
        Some(self)
    }

    fn admits_visitor(&self, visitor: &Visitor) -> bool {
        self.allows_address(visitor.peer.ip())
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            if self.admits_visitor(context.visitor) {
                return next.run(context, input).await;
            }
            context.decided_by(self.kind());
            Err(error_response::BLOCKED.into())
        })
    }
}

impl HeadFilter for IpRestrictions {
    fn permits_head(&self, head: &HeadView<'_>, _: &mut Vec<Arc<HeadChange>>) -> bool {
        self.allows_address(head.connection.client.ip())
    }
}

impl BuildModule for IpRestriction {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let policies = self.ip_policies.unwrap_or_default();
        let rules = policies.iter().map(|policy| (builder.ip_policy)(&policy.id)).collect();
        Ok(Some(Box::new(IpRestrictions(rules))))
    }
}

impl BuildModule for tunnels::IpRestriction {
    fn build(self, _: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let parse = |text: String| {
            let parsed = text.parse::<Cidr>();
            parsed.map_err(|problem| InvalidModule::from_message(format!("{text:?}: {problem}")))
        };
        let parse = |list: Option<Vec<String>>| {
            list.into_iter().flatten().map(parse).collect::<Result<Vec<_>, _>>()
        };
        let rules = IpRules { allow: parse(self.allow_cidrs)?, deny: parse(self.deny_cidrs)? };
        Ok(Some(Box::new(IpRestrictions(vec![Arc::new(ArcSwap::from_pointee(rules))]))))
    }
}

impl EdgeModule for IpRestriction {
    type Change = IpRestrictionChange;

    const REFERENCE: Option<ReferenceField> =
        Some(ReferenceField { field: "ip_policy_ids", noun: "IP policy", number: 7007 });

    fn check(change: Self::Change, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let ids = change.ip_policy_ids.unwrap_or_default();
        if ids.is_empty() {
            let message = "ip_policy_ids: must name at least one IP policy";
            return Err(InvalidModule::with_number(EMPTY_RESTRICTION, message));
        }
        if ids.len() > MAX_POLICIES {
            let count = ids.len();
            let message =
                format!("ip_policy_ids: has {count} entries, the limit is {MAX_POLICIES}");
            return Err(InvalidModule::from_message(message));
        }
        let policies = parse_references("ip_policy_ids", ids, prefix::IP_POLICY)?;
        Ok(Self { enabled: change.enabled.or(Some(true)), ip_policies: Some(policies) }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn references_mut(&mut self) -> Vec<&mut Ref> {
        self.ip_policies.iter_mut().flatten().collect()
    }
}
