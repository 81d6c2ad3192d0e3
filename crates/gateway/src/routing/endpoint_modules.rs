//! Modules of an endpoint that an agent asks for: its options, built as the modules of edges and routes are.

use std::sync::Arc;

use ginnel_api::EndpointOptions;
use ginnel_api::endpoint_options::tunnel_modules;
use ginnel_net::Reach;
use ginnel_policy::problem::code;
use ginnel_policy::{Problem, Scope};

use crate::modules::edge_module::{AgentLimits, BuildModule, InvalidModule, ModuleBuilder};
use crate::modules::module::{Module, Modules};
use crate::modules::policy_resources::PolicyResources;
use crate::routing::endpoint::BindError;

/// Builds modules as far as every service builds them.
///
/// # Errors
/// If every service refuses one of them, whatever its settings are.
pub fn check_modules(
    options: &EndpointOptions,
    scope: Scope,
) -> Result<Option<Modules>, BindError> {
    build_all(
        options,
        &mut ModuleBuilder {
            owner: "",
            known_addresses: Default::default(),
            policies: &Default::default(),
            ip_policy: &|_| Arc::default(),
            secrets: &Arc::default(),
            applications: &Arc::default(),
            memory: &mut Default::default(),
            scope,
            agent: Some(AgentLimits { account: None, reach: Reach::Any, has_service: false }),
        },
    )
}

/// Builds the modules of an endpoint for an agent of an account.
///
/// # Errors
/// If this service refuses one of them.
pub fn build_modules(
    (options, account): (&EndpointOptions, Option<Arc<str>>),
    scope: Scope,
    resources: &PolicyResources,
) -> Result<Option<Modules>, BindError> {
    let agent = AgentLimits { account, reach: resources.reach, has_service: true };
    build_all(
        options,
        &mut ModuleBuilder {
            owner: "",
            known_addresses: resources.address_kinds,
            policies: &Default::default(),
            ip_policy: &|id| resources.ip_policies.policy_rules(id),
            secrets: &Arc::default(),
            applications: &resources.applications,
            memory: &mut Default::default(),
            scope,
            agent: Some(agent),
        },
    )
}

/// Builds each module of the table that the options have.
macro_rules! build_each {
    (
        [$options:ident, $builder:ident, $built:ident]
        $({ $(#[doc = $doc:literal])+ $field:ident : $Definition:ty => $option:ident : $($rest:tt)+ })+
    ) => {
        $(if let Some(module) = &$options.$option {
            let module = module.clone().build($builder);
            $built.extend(module.map_err(|invalid| refusal(stringify!($option), invalid))?);
        })+
    };
}

fn build_all(
    options: &EndpointOptions,
    builder: &mut ModuleBuilder<'_>,
) -> Result<Option<Modules>, BindError> {
    if options.oauth.is_some() && options.oidc.is_some() {
        let message = "visitors log in once: leave out oidc or oauth".to_owned();
        let place = "oidc".to_owned();
        return Err(BindError::Login(vec![Problem { code: code::DUPLICATE, place, message }]));
    }
    let mut built: Vec<Box<dyn Module>> = Vec::new();
    tunnel_modules!(build_each, [options, builder, built]);
    Ok(Modules::new(built))
}

/// Converts the refusal of a module to one of the bind.
fn refusal(option: &'static str, invalid: InvalidModule) -> BindError {
    match option {
        "traffic_policy" => BindError::Policy(invalid.problems),
        "oauth" | "oidc" => BindError::Login(invalid.problems),
        field => BindError::Invalid { field, problem: invalid.message },
    }
}
