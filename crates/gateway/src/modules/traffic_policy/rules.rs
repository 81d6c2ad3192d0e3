//! A policy with what its requests share.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderName;
use http::header::{CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION, TRAILER};

use ginnel_http1::{CDN_LOOP, is_forwarded, is_hop_by_hop};
use ginnel_net::Reach;
use ginnel_policy::actions::terminate_tls::TerminateTls;
use ginnel_policy::ip_rules::IpRules;
use ginnel_policy::login::{OauthApplication, OauthApplications, OauthProvider};
use ginnel_policy::secrets::SecretName;
use ginnel_policy::{Phase, Policy, PolicyState, World};

use crate::message::visitor::RouteRef;
use crate::secrets::SecretTable;

/// The action that makes it necessary to know the request when the answer comes.
const COMPRESS_ACTION: &str = "compress-response";

/// A policy, and what its requests share.
pub struct Rules {
    pub(super) policy: Arc<Policy>,
    state: Arc<PolicyState>,
    /// The IP policies that the rules name.
    ip_policies: HashMap<String, Arc<ArcSwap<IpRules>>>,
    /// Empty for rules that may read none.
    secrets: Arc<SecretTable>,
    /// What is known of providers that they call by name.
    applications: Arc<OauthApplications>,
    /// Where what they ask for may lead.
    pub(super) reach: Reach,
    /// The account whose agent has brought them; none for those of edges.
    owner: Option<Arc<str>>,
    /// True when the response phase has something to do.
    responds: bool,
    /// If true, an action may compress responses.
    pub(super) compress_responses: bool,
    /// True when requests may pass by their heads alone.
    pub(super) pass_by_head: bool,
}

impl Rules {
    /// Rules over IP policies that are found by `ip_policy`; they may read no secrets.
    pub fn new(
        policy: Arc<Policy>,
        state: Arc<PolicyState>,
        ip_policy: impl Fn(&str) -> Arc<ArcSwap<IpRules>>,
    ) -> Self {
        let ip_policies = policy.ip_policy_ids().map(|id| (id.to_owned(), ip_policy(id))).collect();
        let rules = policy.request.iter().chain(&policy.response);
        let mut steps = rules.flat_map(|rule| &rule.actions);
        let compress_responses =
            policy.enabled && steps.any(|step| step.kind.name == COMPRESS_ACTION);
        let responds = policy.has_rules(Phase::Response) || compress_responses;
        let pass_by_head = !responds
            && !policy.has_rules(Phase::Connect)
            && policy.head_changes().is_some_and(|mut names| names.all(may_be_changed));
        let (secrets, applications, reach, owner) = Default::default();
        Self {
            policy,
            state,
            ip_policies,
            secrets,
            applications,
            reach,
            owner,
            responds,
            compress_responses,
            pass_by_head,
        }
    }

    /// The same rules, which may read secrets.
    pub fn with_secrets(self, secrets: Arc<SecretTable>) -> Self {
        Self { secrets, ..self }
    }

    /// The same rules, whose visitors may log in with applications of the operator.
    pub fn with_applications(self, applications: Arc<OauthApplications>) -> Self {
        Self { applications, ..self }
    }

    /// The same rules, which ask for nothing that is out of reach.
    pub fn with_reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// The same rules, which an agent of an account has brought.
    pub fn with_owner(self, owner: Option<Arc<str>>) -> Self {
        Self { owner, ..self }
    }

    /// Who has them ask for something: whose agent has brought them, or else whose endpoint it is.
    pub(super) fn owner_of<'a>(&'a self, route_ref: &'a RouteRef) -> &'a Arc<str> {
        self.owner.as_ref().unwrap_or(route_ref.owner())
    }

    /// Whether anything is to be done in a phase.
    pub fn has_phase(&self, phase: Phase) -> bool {
        match phase {
            Phase::Response => self.responds,
            phase => self.policy.has_rules(phase),
        }
    }
}

impl Rules {
    /// How TLS is spoken with visitors, where they say so.
    pub fn tls_termination(&self) -> Option<&TerminateTls> {
        self.policy.tls_termination()
    }

    /// Whether they look at the paths of requests.
    pub fn read_paths(&self) -> bool {
        self.policy.enabled && self.policy.reads_paths
    }
}

/// Whether a field goes on as it is, so that it can be changed by lines.
fn may_be_changed(name: &HeaderName) -> bool {
    let is_special = [CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION, TRAILER].contains(name);
    !is_special
        && *name != CDN_LOOP
        && !is_hop_by_hop(name.as_str())
        && !is_forwarded(name.as_str().as_bytes())
}

impl World for Rules {
    fn ip_policy(&self, id: &str) -> Arc<IpRules> {
        self.ip_policies.get(id).map(|rules| rules.load_full()).unwrap_or_default()
    }

    fn secret(&self, name: &SecretName) -> Option<Arc<str>> {
        self.secrets.find(name)
    }

    fn oauth_application(&self, provider: OauthProvider) -> Arc<OauthApplication> {
        self.applications.for_provider(provider)
    }

    fn state(&self) -> &PolicyState {
        &self.state
    }
}
