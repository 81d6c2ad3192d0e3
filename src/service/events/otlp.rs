//! Events as log records of OpenTelemetry: a request of OTLP/HTTP in JSON.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::payload::OutgoingEvent;

/// `SEVERITY_NUMBER_INFO` of the logs data model.
const INFO: u8 = 9;

/// The headers and the body of a request that delivers events.
pub(super) fn request(events: &[OutgoingEvent]) -> (HeaderMap, String) {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let records: Vec<_> = events.iter().map(record).collect();
    let version = env!("CARGO_PKG_VERSION");
    let body = json!({"resourceLogs": [{
        "resource": {"attributes": [attribute("service.name", "ginnel")]},
        "scopeLogs": [{
            "scope": {"name": "ginnel.events", "version": version},
            "logRecords": records,
        }],
    }]});
    (headers, body.to_string())
}

fn record(event: &OutgoingEvent) -> Value {
    let header = &event.header;
    // JSON has no 64-bit integers that all programs can read, so OTLP has them as texts.
    let nanoseconds = header.event_timestamp.unix().unwrap_or(0).saturating_mul(1_000_000_000);
    json!({
        "timeUnixNano": nanoseconds.to_string(),
        "severityNumber": INFO,
        "severityText": "INFO",
        "eventName": header.event_type,
        "body": {"stringValue": event.body},
        "attributes": [
            attribute("event.id", &header.event_id),
            attribute("event.type", &header.event_type),
        ],
    })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}
