//! Makes records of the events of this crate, for the levels that somebody asked for.

use std::sync::Once;
use std::time::SystemTime;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::level::{LogLevel, TARGETS, TargetLevels, target_of_module};
use super::outcome::ignore;
use super::record::{LogFields, LogRecord};
use super::{queue, span};

static LEVELS: TargetLevels<{ TARGETS.len() }> = TargetLevels::off();

/// Sets from which level on each target is told, in the order of [`TARGETS`].
///
/// It may be called at any time, on any thread. A program in Rust that has a subscriber of its own gets
/// the events itself, and these levels do nothing.
pub fn set_levels(levels: &[LogLevel; TARGETS.len()]) {
    static SUBSCRIBE: Once = Once::new();
    if !LEVELS.set(levels) {
        return;
    }
    SUBSCRIBE.call_once(|| {
        ignore(
            tracing::subscriber::set_global_default(LogSubscriber),
            "a program with a subscriber of its own is told everything itself",
        );
    });
    tracing::callsite::rebuild_interest_cache();
}

fn is_enabled(metadata: &Metadata<'_>) -> bool {
    target_of_module(metadata.target())
        .is_some_and(|target| LogLevel::from_level(*metadata.level()) <= LEVELS.get(target))
}

struct LogSubscriber;

impl Subscriber for LogSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LEVELS.max().to_filter())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        span::open_span(attributes)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        span::record_fields(span, values);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(target) = target_of_module(event.metadata().target()) else { return };
        let mut fields = span::fields_around(event.parent(), event.is_contextual());
        event.record(&mut fields);
        queue::push_record(build_record(event.metadata(), TARGETS[target], fields));
    }

    fn enter(&self, span: &Id) {
        span::enter_span(span);
    }

    fn exit(&self, span: &Id) {
        span::exit_span(span);
    }

    fn clone_span(&self, span: &Id) -> Id {
        span::add_handle(span);
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        span::release_handle(&span)
    }
}

fn build_record(metadata: &Metadata<'_>, target: &'static str, mut fields: LogFields) -> LogRecord {
    LogRecord {
        time: SystemTime::now(),
        level: LogLevel::from_level(*metadata.level()),
        target,
        message: fields.take_message(),
        fields,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(action: impl FnOnce()) -> Vec<String> {
        tracing::subscriber::with_default(LogSubscriber, action);
        let records = queue::take_records(None);
        records.iter().map(|record| format!("{} {}", record.target, record.to_line())).collect()
    }

    /// One test, since the levels and the queue are the process's.
    #[test]
    fn records_have_the_fields_of_the_spans_around_them_and_the_levels_of_their_target() {
        LEVELS.set(&[LogLevel::Debug; TARGETS.len()]);
        tracing::callsite::rebuild_interest_cache();
        let lines = records(|| {
            let session = tracing::debug_span!("session", session = "ts_1");
            let request = {
                let _session = session.enter();
                tracing::debug_span!("request", request_id = "r", status = tracing::field::Empty)
            };
            request.record("status", 200);
            request.in_scope(|| tracing::debug!(err = %"cut off", "lost"));
            session.in_scope(|| tracing::info!(session = "ts_2", "the event's own value counts"));
            tracing::trace!("nobody asked for this");
            tracing::error!(target: "h2::codec", header = "secret", "what other crates tell");
            let closed = request.clone();
            drop((request, closed, session));
            tracing::debug!("outside");
        });
        assert_eq!(
            lines,
            [
                "logging lost session=ts_1 request_id=r status=200 err=\"cut off\"",
                "logging the event's own value counts session=ts_2",
                "logging outside",
            ]
        );

        let mut levels = [LogLevel::Debug; TARGETS.len()];
        levels[TARGETS.iter().position(|target| *target == "logging").unwrap()] = LogLevel::Warn;
        LEVELS.set(&levels);
        tracing::callsite::rebuild_interest_cache();
        let lines = records(|| {
            tracing::debug!("too little for this target");
            tracing::warn!("enough");
        });
        assert_eq!(lines, ["logging enough"]);

        LEVELS.set(&[LogLevel::Off; TARGETS.len()]);
        tracing::callsite::rebuild_interest_cache();
        assert!(records(|| tracing::error!("nobody listens")).is_empty());
    }
}
