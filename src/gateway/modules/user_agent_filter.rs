//! Who may come, by program.

use std::sync::Arc;

use http::header::{self, HeaderValue};

use crate::api::remote::edges::modules::UserAgentFilter;
use crate::gateway::http::error_response;
use crate::gateway::http::request_context::RequestContext;
use crate::gateway::modules::edge_module::{
    CheckedModule, EdgeModule, InvalidModule, ModuleBuilder, ModuleChecker,
};
use crate::gateway::modules::module::{
    HeadFilter, Module, ModuleAnswer, ModuleInput, ModuleKind, NextModule,
};
use crate::gateway::routing::target::BoxFuture;
use crate::http1::SpelledValues;
use crate::policy::head_change::HeadChange;
use crate::policy::head_view::HeadView;
use crate::policy::user_agent::Filter;

/// Lets in those whose `User-Agent` passes a filter.
pub(crate) struct AgentFilter(pub Arc<Filter>);

impl Module for AgentFilter {
    fn kind(&self) -> ModuleKind {
        ModuleKind::UserAgentFilter
    }

    fn head_filter(&self) -> Option<&dyn HeadFilter> {
        Some(self)
    }

    fn serve<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            if let ModuleInput::Request(request) = &input {
                let agents = SpelledValues::new(request.headers(), header::USER_AGENT.as_str());
                if !self.0.allows(agents.map(HeaderValue::as_bytes)) {
                    context.decided_by(self.kind());
                    return Err(error_response::AGENT_BLOCKED.into());
                }
            }
            next.run(context, input).await
        })
    }
}

impl HeadFilter for AgentFilter {
    fn passes(&self, head: &HeadView<'_>, _: &mut Vec<Arc<HeadChange>>) -> bool {
        self.0.allows(head.values(&header::USER_AGENT))
    }
}

impl EdgeModule for UserAgentFilter {
    type Change = Self;

    fn check(change: Self, checker: &ModuleChecker) -> Result<CheckedModule<Self>, InvalidModule> {
        let module = Self { enabled: change.enabled.or(Some(true)), ..change };
        let filter = checker.filter(module.allow(), module.deny())?;
        Ok(CheckedModule { compiled: Some(filter), ..module.into() })
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn build(self, builder: &mut ModuleBuilder<'_>) -> Option<Box<dyn Module>> {
        // A stored filter was checked; were it broken all the same, nobody would pass.
        let nobody = || builder.policies.filter(&[], &[".*".to_owned()]).ok();
        let filter = builder.policies.filter(self.allow(), self.deny()).ok().or_else(nobody)?;
        Some(Box::new(AgentFilter(filter)))
    }
}

impl UserAgentFilter {
    fn allow(&self) -> &[String] {
        self.allow.as_deref().unwrap_or_default()
    }

    fn deny(&self) -> &[String] {
        self.deny.as_deref().unwrap_or_default()
    }
}
