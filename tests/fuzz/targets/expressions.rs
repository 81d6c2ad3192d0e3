//! Expressions of CEL.

use std::sync::LazyLock;

use serde_json::{Value, json};

use ginnel_policy::trial::{Outcome, Report, Traffic, Trial};
use ginnel_policy::{Policy, Scope};

static TRAFFIC: LazyLock<Traffic> = LazyLock::new(|| {
    let traffic = json!({
        "connection": {"client_ip": "203.0.113.7"},
        "request": {
            "url": "https://a.test/api/v1?x=1&y=%2F",
            "headers": {"user-agent": "curl/8", "cookie": "a=b", "x": ["1", "2"]},
        },
    });
    serde_json::from_value(traffic).unwrap()
});

/// An expression never harms the process. It decides the same whether the engine evaluates it or what
/// is quicker, which sees no conditional.
pub fn target(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Some(plain) = decide(source) else { return };
    let conditional = format!("[true][0] ? (\n{source}\n) : false");
    if let Some(evaluated) = decide(&conditional) {
        assert_eq!(evaluated.outcome, plain.outcome);
        assert_eq!(evaluated.failed_expressions, plain.failed_expressions);
    }
}

/// What a rule with this expression does; nothing when it is none.
fn decide(source: &str) -> Option<Report> {
    let document = document(source);
    let policy = Policy::compile(&document, Scope::HttpsRoute).ok()?;
    let report = Trial::new(policy, None).simulate_traffic(&TRAFFIC).expect("it is traffic");
    assert!(matches!(report.outcome, Outcome::Continue | Outcome::Respond));
    assert!(report.failed_expressions == 0 || report.outcome == Outcome::Continue);
    Some(report)
}

fn document(source: &str) -> Value {
    json!({"inbound": [{"expressions": [source], "actions": [{"type": "deny"}]}]})
}
