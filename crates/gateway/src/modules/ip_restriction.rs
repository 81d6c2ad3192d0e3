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

use crate::message::BoxFuture;
use crate::message::error_response;
use crate::message::request_context::RequestContext;
use crate::message::visitor::Visitor;
use crate::modules::edge_module::{
    BuildModule, CheckedModule, EdgeModule, InvalidModule, ModuleBuilder, ModuleChecker,
    ReferenceField, references,
};
use crate::modules::ip_policies;
use crate::modules::module::{
    HeadFilter, Module, ModuleAnswer, ModuleInput, ModuleKind, NextModule,
};

/// How many IP policies a restriction may name.
const MAX_POLICIES: usize = 100;
/// The number of a restriction without IP policies.
const EMPTY_RESTRICTION: u16 = 7025;

/// The policies that decide who may come; a policy that was deleted has no rules.
#[derive(Debug)]
pub struct IpRestrictions(pub Vec<Arc<ArcSwap<IpRules>>>);

impl IpRestrictions {
    /// Whether somebody from this address may come.
    fn allows(&self, address: IpAddr) -> bool {
        ip_policies::allows(&self.0, address)
    }
}

impl Module for IpRestrictions {
    fn kind(&self) -> ModuleKind {
        ModuleKind::IpRestriction
    }

    fn head_filter(&self) -> Option<&dyn HeadFilter> {
        Some(self)
    }

    fn admits(&self, visitor: &Visitor) -> bool {
        self.allows(visitor.peer.ip())
    }

    fn serve<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            if self.admits(context.visitor) {
                return next.run(context, input).await;
            }
            context.decided_by(self.kind());
            Err(error_response::BLOCKED.into())
        })
    }
}

impl HeadFilter for IpRestrictions {
    fn passes(&self, head: &HeadView<'_>, _: &mut Vec<Arc<HeadChange>>) -> bool {
        self.allows(head.connection.client.ip())
    }
}

impl BuildModule for IpRestriction {
    fn build(
        self,
        builder: &mut ModuleBuilder<'_>,
    ) -> Result<Option<Box<dyn Module>>, InvalidModule> {
        let policies = self.ip_policies.unwrap_or_default();
        let rules = policies.iter().map(|policy| (builder.ip_policy)(&policy.id)).collect();
        Ok(Some(Box::new(IpRestrictions(rules))))
    }
}

impl BuildModule for tunnels::IpRestriction {
    fn build(self, _: &mut ModuleBuilder<'_>) -> Result<Option<Box<dyn Module>>, InvalidModule> {
        let parse = |text: String| {
            let parsed = text.parse::<Cidr>();
            parsed.map_err(|problem| InvalidModule::value(format!("{text:?}: {problem}")))
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

    fn check(
        change: Self::Change,
        _: &ModuleChecker,
    ) -> Result<CheckedModule<Self>, InvalidModule> {
        let ids = change.ip_policy_ids.unwrap_or_default();
        if ids.is_empty() {
            let message = "ip_policy_ids: must name at least one IP policy";
            return Err(InvalidModule::numbered(EMPTY_RESTRICTION, message));
        }
        if ids.len() > MAX_POLICIES {
            let count = ids.len();
            let message =
                format!("ip_policy_ids: has {count} entries, the limit is {MAX_POLICIES}");
            return Err(InvalidModule::value(message));
        }
        let policies = references("ip_policy_ids", ids, prefix::IP_POLICY)?;
        Ok(Self { enabled: change.enabled.or(Some(true)), ip_policies: Some(policies) }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn references(&mut self) -> Vec<&mut Ref> {
        self.ip_policies.iter_mut().flatten().collect()
    }
}
