//! Who may come, by program.

use std::sync::Arc;

use http::header::{self, HeaderValue};

use ginnel_api::remote::edges::modules::UserAgentFilter;
use ginnel_http1::SpelledValues;
use ginnel_policy::head_change::HeadChange;
use ginnel_policy::head_view::HeadView;
use ginnel_policy::user_agent::Filter;

use crate::modules::prelude::*;

/// Lets in those whose `User-Agent` passes a filter.
pub struct AgentFilter(pub Arc<Filter>);

impl Module for AgentFilter {
    fn kind(&self) -> ModuleKind {
        ModuleKind::UserAgentFilter
    }

    fn head_filter(&self) -> Option<&dyn HeadFilter> {
        Some(self)
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            if let ModuleInput::Request(request) = &input {
                let agents = SpelledValues::new(request.headers(), header::USER_AGENT.as_str());
                if !self.0.allows_all(agents.map(HeaderValue::as_bytes)) {
                    context.decided_by(self.kind());
                    return Err(error_response::AGENT_BLOCKED.into());
                }
            }
            next.run(context, input).await
        })
    }
}

impl HeadFilter for AgentFilter {
    fn permits_head(&self, head: &HeadView<'_>, _: &mut Vec<Arc<HeadChange>>) -> bool {
        self.0.allows_all(head.raw_header_values(&header::USER_AGENT))
    }
}

impl BuildModule for UserAgentFilter {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let lists = (patterns_or_empty(self.allow.as_ref()), patterns_or_empty(self.deny.as_ref()));
        let filter = match (builder.policies.compiled_filter(lists.0, lists.1), &builder.agent) {
            (Ok(filter), _) => filter,
            (Err(problems), Some(_)) => return Err(InvalidModule::from_problems(&problems)),
            // A stored filter was checked. An invalid one rejects all visitors.
            (Err(problems), None) => {
                let nobody = builder.policies.compiled_filter(&[], &[".*".to_owned()]);
                nobody.map_err(|_| InvalidModule::from_problems(&problems))?
            }
        };
        Ok(Some(Box::new(AgentFilter(filter))))
    }
}

impl EdgeModule for UserAgentFilter {
    type Change = Self;

    fn check(change: Self, checker: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let module = Self { enabled: change.enabled.or(Some(true)), ..change };
        let filter = checker.compile_filter(
            patterns_or_empty(module.allow.as_ref()),
            patterns_or_empty(module.deny.as_ref()),
        )?;
        Ok(CheckedModule { compiled: Some(filter), ..module.into() })
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

fn patterns_or_empty(list: Option<&Vec<String>>) -> &[String] {
    list.map(Vec::as_slice).unwrap_or_default()
}
