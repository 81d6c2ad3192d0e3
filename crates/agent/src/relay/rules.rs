//! What the service says of the rules that acted on a request, taken out of its head.

use bytes::Bytes;

use ginnel_api::local::requests::PolicyRule;
use ginnel_base::logging::or_debug;
use ginnel_http1::{HeadWriter, head_lines};
use ginnel_mux::protocol::rules_header;

/// The head without the header of this name, and the rules that it named.
pub(super) fn take_rules(head: &[u8], name: &str) -> (Bytes, Vec<PolicyRule>) {
    let mut rules = Vec::new();
    let mut output = Vec::with_capacity(head.len());
    let mut writer = HeadWriter::resume(&mut output);
    for line in head_lines(head) {
        if line.has_name(name) {
            let value = line.0.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default();
            let read = rules_header::decode_rules(value.trim_ascii()).filter_map(|rule| {
                or_debug!(serde_json::from_slice::<PolicyRule>(&rule), "cannot read a rule")
            });
            rules.extend(read);
        } else {
            writer.lines(line.0);
        }
    }
    writer.end();
    (output.into(), rules)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn nobody_behind_the_agent_sees_the_header() {
        let rule = STANDARD.encode(r#"{"module": "policy", "index": 1, "actions": ["log"]}"#);
        let note = format!("{rule} {}", STANDARD.encode("no rule"));
        let head = format!("GET / HTTP/1.1\r\nA: 1\r\nginnel-rules-x: {note}\r\nB: 2\r\n\r\n");

        let (bytes, rules) = take_rules(head.as_bytes(), "ginnel-rules-x");

        assert_eq!(bytes, "GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n");
        assert_eq!(rules.iter().map(|rule| rule.index).collect::<Vec<_>>(), [1]);
    }
}
