//! Documents of traffic policies, in JSON and in YAML.

use std::sync::LazyLock;

use serde_json::json;

use ginnel_policy::trial::{Traffic, Trial};
use ginnel_policy::{Policy, Protocol, read_document};

/// A POST with what rules look at.
static TRAFFIC: LazyLock<Traffic> = LazyLock::new(|| {
    let traffic = json!({
        "connection": {"client_ip": "203.0.113.7", "tls": {"version": "1.3", "sni": "a.test"}},
        "request": {
            "method": "POST",
            "url": "https://a.test/api/v1?x=1&y=%2F",
            "headers": {"user-agent": "curl/8", "cookie": "a=b", "x": ["1", "2"]},
            "body": "{\"a\": [1, 2.5, null]}",
        },
        "response": {"status": 404, "headers": {"content-type": "text/plain"}, "body": "no"},
    });
    serde_json::from_value(traffic).unwrap()
});

/// A document means the same when it is written again as JSON; one that compiles can be tried.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(document) = read_document(text) else { return };
    let written = document.to_string();
    assert_eq!(read_document(&written).expect("JSON is read"), document);
    let scope = Protocol::Http.document_scope(&document, None);
    let Ok(policy) = Policy::compile(&document, scope) else { return };
    let outcome = Trial::new(policy, None).simulate_traffic(&TRAFFIC);
    assert!(outcome.is_ok(), "{outcome:?}");
}
