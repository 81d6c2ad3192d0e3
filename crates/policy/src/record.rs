//! What rules did, and what is known because of them.

use std::collections::BTreeMap;

use cel::Value;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Phase;
use super::action_results::ActionResults;

/// What usually stands before the numbers of errors.
pub const CODE_PREFIX: &str = "ERR_NGROK_";

/// What the rules of one exchange did.
#[derive(Debug, Default)]
pub struct Record {
    /// What `log` actions said, in order: their metadata.
    pub logs: Vec<Json>,
    /// What stands before the numbers of errors; none for the usual.
    pub code_prefix: Option<String>,
    /// What ended the phase that was ended last.
    pub decision: Option<PhaseDecision>,
    /// How many expressions failed, or were neither true nor false; their rules did not run.
    pub failed_expressions: u64,
    /// What each rule and action did, if somebody [asked](Self::with_trace) for it.
    pub trace: Option<Vec<RuleTrace>>,
    /// The numbers of the rules that matched, if somebody asked for them.
    pub matched: Option<Vec<usize>>,
    /// The variables of the phase.
    pub(super) vars: BTreeMap<String, Value>,
    /// The last result of each type of action.
    pub(super) results: ActionResults,
}

/// The action that ended a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseDecision {
    /// The phase.
    pub phase: Phase,
    /// The number of the rule in its phase, from 0.
    pub rule: usize,
    /// The name of the rule; may be empty.
    pub rule_name: String,
    /// The type of the action.
    pub action: &'static str,
}

/// What one rule did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleTrace {
    /// The phase, as documents call it.
    pub phase: &'static str,
    /// The number of the rule in its phase, from 0.
    pub index: usize,
    /// The name of the rule; may be empty.
    pub name: String,
    /// Whether all expressions were true.
    pub matched: bool,
    /// Why an expression gave no answer.
    pub error: Option<String>,
    /// What the actions did that ran.
    pub actions: Vec<ActionTrace>,
}

/// What one action did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActionTrace {
    /// The number of the action in its rule, from 0.
    pub index: usize,
    /// The type of the action.
    pub r#type: &'static str,
    /// What later expressions find under `actions.ngrok`; null when there is nothing.
    pub result: Json,
    /// Whether the action ended the phase.
    pub ended: bool,
    /// The code of its failure.
    pub error_code: Option<u16>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Record {
    /// A record of every rule and action, for people who want to know.
    pub fn with_trace() -> Self {
        Self { trace: Some(Vec::new()), ..Self::default() }
    }

    /// An error as expressions see it.
    pub(super) fn error_json(&self, code: u16, message: &str) -> Json {
        json!({"code": self.format_code(code.into()), "message": message})
    }

    /// A code as visitors see it.
    pub(super) fn format_code(&self, number: u64) -> String {
        let prefix = self.code_prefix.as_deref().unwrap_or(CODE_PREFIX);
        format!("{prefix}{number}")
    }

    /// Notes something in the trace of the rule that runs.
    pub(super) fn update_trace(&mut self, note: impl FnOnce(&mut RuleTrace)) {
        if let Some(rule) = self.trace.as_mut().and_then(|rules| rules.last_mut()) {
            note(rule);
        }
    }
}
