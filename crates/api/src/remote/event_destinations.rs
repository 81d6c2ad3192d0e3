//! Event destinations: where events are sent.

use serde_json::{Map, Value};

use crate::macros::{resource, wire};
use crate::{Description, Metadata, Secret};

wire! {
    /// Where events are sent, and how.
    pub struct EventDestination {
        item { prefix: "ed", noun: "event destination", created: "When the event destination was created.", description: "Human-readable description of the event destination" }
        /// How events are written: `json`.
        #[public(text)]
        pub format: Option<String>,
        /// Where events are sent: one of `webhook`, `file` and `otlp`.
        pub target: Option<EventTarget>,
    }

    /// Where events are sent: one of `webhook`, `file` and `otlp`.
    pub struct EventTarget {
        /// A program that takes each event as a signed HTTP request.
        pub webhook: Option<WebhookTarget>,
        /// A file on the machine of the service, one line for each event.
        pub file: Option<FileTarget>,
        /// A collector of OpenTelemetry that takes events as log records.
        pub otlp: Option<OtlpTarget>,
        /// Amazon Data Firehose; not offered by this service.
        pub firehose: Option<Map<String, Value>>,
        /// Amazon Kinesis; not offered by this service.
        pub kinesis: Option<Map<String, Value>>,
        /// Amazon CloudWatch Logs; not offered by this service.
        pub cloudwatch_logs: Option<Map<String, Value>>,
        /// Datadog; not offered by this service.
        pub datadog: Option<Map<String, Value>>,
        /// Azure Monitor; not offered by this service.
        pub azure_logs_ingestion: Option<Map<String, Value>>,
    }

    /// A program that takes each event as a signed HTTP request.
    pub struct WebhookTarget {
        /// The `http` or `https` URL that each event is posted to.
        pub url: Option<String>,
        /// The secret of the signatures, `whsec_` and base64 of 24 to 64 bytes; shown once, if
        /// the service has made it.
        pub secret: Option<Secret>,
    }

    /// A file on the machine of the service.
    pub struct FileTarget {
        /// The name of the file in the folder that the setting `event_delivery.folder` allows.
        #[public(text)]
        pub name: Option<String>,
    }

    /// A collector of OpenTelemetry.
    pub struct OtlpTarget {
        /// The `http` or `https` URL that takes logs as JSON, such as `http://collector:4318/v1/logs`.
        pub url: Option<String>,
    }
}

resource! {
    /// Event destinations: where events are sent; only for admins.
    "event_destinations" {
        /// Create an event destination; nothing is sent there until an event subscription names it.
        #[issues(secret)]
        POST "/event_destinations" Create(
            /// Where events are sent: exactly one of `webhook`, `file` and `otlp`.
            target: EventTarget,
            [
                description: Description,
                metadata: Metadata,
                /// How events are written: `json`, which is the default.
                format: String,
            ]
        ) -> EventDestination;
        /// List the event destinations, newest first.
        GET "/event_destinations" List([before_id: String, limit: i64]) -> [event_destinations: EventDestination];
        /// Fetch one event destination.
        GET "/event_destinations/{id}" Get(id: String) -> EventDestination;
        /// Change an event destination; what waits for it is sent to its new target.
        #[issues(secret)]
        PATCH "/event_destinations/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            /// How events are written: `json`.
            format: String,
            /// Where events are sent; a webhook without a secret keeps the one that it has.
            target: EventTarget,
        ]) -> EventDestination;
        /// Delete an event destination that no event subscription names.
        DELETE "/event_destinations/{id}" Delete(id: String);
    }
}
