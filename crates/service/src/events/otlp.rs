//! Events as log records of OpenTelemetry: a request of OTLP/HTTP in JSON.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::payload::OutgoingEvent;

/// `SEVERITY_NUMBER_INFO` of the logs data model.
const INFO: u8 = 9;

/// The headers and the body of a request that delivers events.
pub(super) fn export_request(events: &[OutgoingEvent]) -> (HeaderMap, String) {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let records: Vec<_> = events.iter().map(log_record).collect();
    let version = env!("CARGO_PKG_VERSION");
    let body = json!({"resourceLogs": [{
        "resource": {"attributes": [text_attribute("service.name", "ginnel")]},
        "scopeLogs": [{
            "scope": {"name": "ginnel.events", "version": version},
            "logRecords": records,
        }],
    }]});
    (headers, body.to_string())
}

/// How many log records a collector has dropped of those that it took; they are not to be sent again.
pub(super) fn rejected_records(response: &[u8]) -> u64 {
    let Ok(response) = serde_json::from_slice::<Value>(response) else { return 0 };
    // 64-bit integers are texts in OTLP, and some write them as numbers.
    let rejected = &response["partialSuccess"]["rejectedLogRecords"];
    let count = rejected.as_str().and_then(|text| text.parse().ok());
    count.or_else(|| rejected.as_u64()).unwrap_or(0)
}

fn log_record(event: &OutgoingEvent) -> Value {
    let header = &event.header;
    // JSON has no 64-bit integers that all programs can read, so OTLP has them as texts.
    let nanoseconds =
        header.event_timestamp.unix_seconds().unwrap_or(0).saturating_mul(1_000_000_000);
    json!({
        "timeUnixNano": nanoseconds.to_string(),
        "severityNumber": INFO,
        "severityText": "INFO",
        "eventName": header.event_type,
        "body": {"stringValue": event.body},
        "attributes": [
            text_attribute("event.id", &header.event_id),
            text_attribute("event.type", &header.event_type),
        ],
    })
}

fn text_attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collector_drops_is_read_in_both_forms() {
        for (response, count) in [
            ("", 0),
            ("{}", 0),
            ("[1]", 0),
            (r#"{"partialSuccess": null}"#, 0),
            (r#"{"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "full"}}"#, 2),
            (r#"{"partialSuccess": {"rejectedLogRecords": 3}}"#, 3),
            (r#"{"partialSuccess": {"rejectedLogRecords": "-1"}}"#, 0),
        ] {
            assert_eq!(rejected_records(response.as_bytes()), count, "{response}");
        }
    }
}
