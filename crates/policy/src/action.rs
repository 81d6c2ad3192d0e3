//! Actions: what a rule does. [`actions`](super::actions) lists them all.

use std::fmt::Debug;

use super::action_error::ActionResult;
use super::actions::terminate_tls::TerminateTls;
use super::config::Config;
use super::head_change::HeadChange;
use super::login::LoginConfig;
use super::phase::Phase;
use super::turn::{Flow, Turn};

/// A configured action.
pub trait Action: Debug + Send + Sync {
    /// The IP policies that the action looks at.
    fn ip_policies(&self) -> &[String] {
        &[]
    }

    /// Does it.
    ///
    /// What it needs from outside it asks for before it changes anything, because it runs again
    /// from the start when that is there.
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow>;

    /// What it changes about the head of any message, where it does nothing else.
    fn head_change(&self) -> Option<HeadChange> {
        None
    }

    /// How TLS is spoken with visitors, where it says so.
    fn tls_termination(&self) -> Option<&TerminateTls> {
        None
    }

    /// What it asks of a login, where visitors must have logged in.
    fn login_config(&self) -> Option<&LoginConfig> {
        None
    }

    /// Returns the result of the action for a request with this reading of its path, to be compared with
    /// that of another reading. Actions whose result cannot be compared return `None`.
    fn result_of_path(&self, _turn: &Turn<'_>) -> Option<bool> {
        None
    }

    /// Whether it keeps visitors out, so that a response may not pass when it fails.
    fn fails_closed(&self) -> bool {
        false
    }

    /// Whether nothing comes after the action as it is configured.
    ///
    /// Asked of actions that end their phase only sometimes.
    fn always_ends(&self) -> bool {
        false
    }
}

/// Whether an action ends its phase, so that no later action or rule runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// It never does.
    Never,
    /// It depends on the traffic or on the configuration.
    Sometimes,
    /// It always does.
    Always,
}

/// A type of action.
#[derive(Debug)]
pub struct ActionKind {
    /// Its name in a document.
    pub name: &'static str,
    /// The phases it can run in.
    pub phases: &'static [Phase],
    /// Whether it ends its phase.
    pub ends: Ends,
    /// Whether it decides who the visitor is; a rule may have one such action.
    pub authenticates: bool,
    /// Reads its configuration.
    pub(super) parse: Parse,
}

/// An action of a rule.
#[derive(Debug)]
pub struct ActionStep {
    /// Its type.
    pub kind: &'static ActionKind,
    /// Its configuration.
    pub action: Box<dyn Action>,
    /// True if the configuration looks at the path of the request.
    pub(super) reads_path: bool,
}

impl ActionKind {
    /// Reads the configuration of an action of this type.
    pub(super) fn parse_step(&'static self, mut config: Config<'_>) -> ActionStep {
        let action = (self.parse)(&mut config);
        config.reject_unknown_fields();
        ActionStep { kind: self, action, reads_path: false }
    }

    /// Whether the action can run in some phase of traffic that is HTTP, or that is not.
    pub(super) fn supports_protocol(&self, is_http: bool) -> bool {
        self.phases.iter().any(|phase| phase.is_http() == is_http)
    }
}

impl ActionStep {
    /// Whether nothing comes after the action.
    pub fn always_ends(&self) -> bool {
        self.kind.ends == Ends::Always
            || self.kind.ends == Ends::Sometimes && self.action.always_ends()
    }
}

/// Reads the configuration of an action.
pub(super) type Parse = fn(&mut Config<'_>) -> Box<dyn Action>;
