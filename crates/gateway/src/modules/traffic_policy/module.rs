//! The module that runs the rules of a policy, or the one rule that another module is.

use std::sync::Arc;

use http::Response;
use serde::Serialize;
use serde_json::Value;

use ginnel_api::remote::edges::modules::{TrafficPolicy, TrafficPolicyDocument};
use ginnel_policy::head_change::HeadChange;
use ginnel_policy::head_view::HeadView;
use ginnel_policy::{self as policy, Phase, Policy, Problem};

use crate::login;
use crate::message::BoxFuture;
use crate::message::error_response;
use crate::message::error_response::Rejection;
use crate::message::request_context::{PolicyExecution, RequestContext};
use crate::message::response_body::ResponseBody;
use crate::modules::edge_module::{
    BuildModule, CheckedModule, EdgeModule, InvalidModule, ModuleBuilder, ModuleChecker,
    ModuleResult, ReferenceField,
};
use crate::modules::module::{
    HeadFilter, Module, ModuleAnswer, ModuleInput, ModuleKind, NextModule,
};
use crate::modules::traffic_policy::execution::ExecutionOutcome;
use crate::modules::traffic_policy::rules::Rules;

/// Runs rules for requests and for their answers.
pub struct PolicyModule {
    /// A policy, or a module that is a rule.
    pub kind: ModuleKind,
    pub rules: Rules,
}

impl Module for PolicyModule {
    fn kind(&self) -> ModuleKind {
        self.kind
    }

    fn reads_paths(&self) -> bool {
        self.rules.read_paths()
    }

    fn head_filter(&self) -> Option<&dyn HeadFilter> {
        self.rules.pass_by_head.then_some(self)
    }

    fn rules(&self) -> Option<&Rules> {
        Some(&self.rules).filter(|_| self.kind == ModuleKind::Policy)
    }

    fn login_policy(&self) -> Option<&Policy> {
        Some(self.rules.policy.as_ref()).filter(|policy| policy.enabled && policy.has_logins)
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            let (execution, input) = match input {
                ModuleInput::Answer(answer) => {
                    (context.execution.take(), ModuleInput::Answer(answer))
                }
                ModuleInput::Request(request) => {
                    let endpoint =
                        context.endpoint_facts(next.destination.owner_id(), request.headers());
                    let execution = PolicyExecution::new(context, endpoint, request);
                    self.run_request_rules(context, Box::new(execution), &next).await?
                }
                ModuleInput::Examined => {
                    let execution = context.execution.take().ok_or(error_response::BAD_REQUEST)?;
                    self.run_request_rules(context, execution, &next).await?
                }
            };
            if has_rules(next.kind()) {
                // The rules of the next module see the same request, whatever these say.
                context.execution = execution;
                return next.run(context, input).await;
            }
            self.run_next_module(context, execution, input, next).await
        })
    }
}

/// Whether a module runs rules.
fn has_rules(kind: Option<ModuleKind>) -> bool {
    use ModuleKind::{Oauth, Oidc, Policy, WebhookVerification};
    matches!(kind, Some(Oidc | Oauth | Policy | WebhookVerification))
}

impl HeadFilter for PolicyModule {
    fn permits_head(&self, head: &HeadView<'_>, changes: &mut Vec<Arc<HeadChange>>) -> bool {
        self.rules.policy.passes_head(head, changes)
    }
}

impl PolicyModule {
    /// Runs the rules for requests; what the next module gets.
    async fn run_request_rules(
        &self,
        context: &mut RequestContext<'_>,
        mut execution: Box<PolicyExecution>,
        next: &NextModule<'_>,
    ) -> Result<(Option<Box<PolicyExecution>>, ModuleInput), Rejection> {
        let input = match execution.run_request_rules(context, &self.rules, self.kind.name()).await
        {
            // Rules for answers see errors, whether the backend or a rule has led to them.
            ExecutionOutcome::Reject(Rejection::Respond(error))
                if self.has_response_rules() || has_rules(next.kind()) =>
            {
                ModuleInput::Answer(error.into_response(context.services.code_prefix()))
            }
            ExecutionOutcome::Reject(rejection) => return Err(rejection),
            ExecutionOutcome::Respond(answer) => ModuleInput::Answer(*answer),
            ExecutionOutcome::Continue if has_rules(next.kind()) => ModuleInput::Examined,
            ExecutionOutcome::Continue => {
                ModuleInput::Request(execution.take_request(self.has_response_rules())?)
            }
        };
        Ok((Some(execution), input))
    }

    /// Takes the request on and the answer back, and runs the rules for answers.
    async fn run_next_module(
        &self,
        context: &mut RequestContext<'_>,
        mut execution: Option<Box<PolicyExecution>>,
        input: ModuleInput,
        next: NextModule<'_>,
    ) -> ModuleAnswer {
        // The rules for answers may have something to say to errors as well.
        let shows_errors = std::mem::replace(&mut context.shows_errors, self.has_response_rules());
        let answer = next.run(context, input).await;
        context.shows_errors = shows_errors;
        if let (Some(execution), Some(status)) = (&mut execution, context.upstream_status) {
            execution.record_status(status);
        }
        let login = execution.as_mut().and_then(|execution| execution.take_login_headers());
        let mut response = self.run_response_rules(context, execution, answer?).await;
        if let Some(login) = login {
            login::mark_private(response.headers_mut(), &login);
        }
        Ok(response)
    }

    async fn run_response_rules(
        &self,
        context: &mut RequestContext<'_>,
        execution: Option<Box<PolicyExecution>>,
        answer: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        match execution.filter(|_| self.has_response_rules()) {
            Some(execution) => execution.run_response_rules(context, &self.rules, answer).await,
            None => answer,
        }
    }

    fn has_response_rules(&self) -> bool {
        self.rules.has_phase(Phase::Response)
    }
}

impl BuildModule for TrafficPolicy {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        build_module(&self, builder).map(Some)
    }
}

impl EdgeModule for TrafficPolicy {
    type Change = Self;

    const REFERENCE: Option<ReferenceField> =
        Some(ReferenceField { field: "policy", noun: "IP policy", number: 2216 });

    fn check(change: Self, checker: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let module = Self { enabled: change.enabled.or(Some(true)), ..change };
        let value = serde_json::to_value(&module).unwrap_or_default();
        if let Some(problem) = policy::unclear_number(&value) {
            return Err(InvalidModule::from_problems(&[problem]));
        }
        let policy = checker.compile_policy(&module)?;
        let references = policy.ip_policy_ids().map(str::to_owned).collect();
        let secrets = policy.secrets.clone();
        Ok(CheckedModule { module, references, secrets, compiled: Some(policy) })
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

impl BuildModule for TrafficPolicyDocument {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        match document_of(&self) {
            Ok(document) => build_module(&document, builder).map(Some),
            Err(problem) if builder.agent.is_some() => {
                Err(InvalidModule::from_problems(&[problem]))
            }
            Err(problem) => {
                Ok(Some(policy_module(builder.report_unusable(&[problem], builder.scope), builder)))
            }
        }
    }
}

impl EdgeModule for TrafficPolicyDocument {
    type Change = Self;

    const REFERENCE: Option<ReferenceField> =
        Some(ReferenceField { field: "traffic_policy", noun: "IP policy", number: 2216 });

    fn check(change: Self, checker: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let module = Self { enabled: change.enabled.or(Some(true)), ..change };
        let document =
            document_of(&module).map_err(|problem| InvalidModule::from_problems(&[problem]))?;
        let policy = checker.compile_policy(&document)?;
        let references = policy.ip_policy_ids().map(str::to_owned).collect();
        let secrets = policy.secrets.clone();
        Ok(CheckedModule { module, references, secrets, compiled: Some(policy) })
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

fn document_of(module: &TrafficPolicyDocument) -> Result<Value, Problem> {
    policy::read_document(module.value.as_deref().unwrap_or_default())
}

/// The module of a document that was checked.
fn build_module(
    document: &impl Serialize,
    builder: &mut ModuleBuilder<'_>,
) -> ModuleResult<Box<dyn Module>> {
    let policy = builder.compile_policy(document, builder.scope)?;
    Ok(policy_module(policy, builder))
}

fn policy_module(policy: Arc<Policy>, builder: &mut ModuleBuilder<'_>) -> Box<dyn Module> {
    let state = builder.reuse_or_create(ModuleKind::Policy, |_| true, Default::default);
    let rules = Rules::new(policy, state, builder.ip_policy)
        .with_secrets(builder.secrets.clone())
        .with_applications(builder.applications.clone())
        .with_reach(builder.reach())
        .with_owner(builder.agent.as_ref().and_then(|agent| agent.account.clone()));
    Box::new(PolicyModule { kind: ModuleKind::Policy, rules })
}
