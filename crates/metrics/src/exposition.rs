//! The text of a scrape, in one of two formats.

use std::fmt::{self, Write};

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::families::{Collect, CollectorAdapter};

/// What separates a value from its exemplar in OpenMetrics.
const EXEMPLAR: &str = " # {";

/// How a scrape is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrapeFormat {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
}

impl ScrapeFormat {
    /// The format that whoever sends this `Accept` header likes better; the older one for those who like
    /// both as much, or neither.
    pub fn from_accept(accept: &str) -> Self {
        let weight = |media: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let named = parts.next()?.eq_ignore_ascii_case(media);
                let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
                named.then_some(weight.unwrap_or(1.0))
            });
            ranges.fold(0.0, f32::max)
        };
        if weight("application/openmetrics-text") > weight("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Everything that the parts have to show.
///
/// # Errors
/// When one of them fails.
pub fn render_metrics(
    parts: Vec<Box<dyn Collect>>,
    format: ScrapeFormat,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    for part in parts {
        registry.register_collector(Box::new(CollectorAdapter(part)));
    }
    let mut encoded = String::new();
    text::encode(&mut encoded, &registry)?;
    match format {
        ScrapeFormat::OpenMetrics => Ok(encoded),
        ScrapeFormat::Text => to_text_format(&encoded),
    }
}

/// The same in the older format: families are called as their series are, there are no units, no
/// exemplars, no mark at the end, and no type `info`.
fn to_text_format(open_metrics: &str) -> Result<String, fmt::Error> {
    let mut classic = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some((_, text)) = help.take() {
                writeln!(classic, "# HELP {name}{suffix} {text}")?;
            }
            writeln!(classic, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            let sample = line.split_once(EXEMPLAR).map_or(line, |(sample, _)| sample);
            writeln!(classic, "{sample}")?;
        }
    }
    Ok(classic)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::families::Families;
    use super::super::histogram::DurationHistogram;
    use super::*;

    struct Sample;

    impl Collect for Sample {
        fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
            families.info("build", "What runs.", &[("version", "1")])?;
            families
                .counter("sent_bytes", "What was sent.")?
                .write_counter(&[("to", "a\"b")], 7)?;
            families.gauge("open", "What is open.")?.write_gauge(&[], 2.0)?;
            let took = DurationHistogram::new(true);
            took.observe_request(Duration::from_secs(2), Some("req_1"));
            families.histogram("took_seconds", "How long.")?.write_durations(&[("of", "x")], &took)
        }
    }

    #[test]
    fn the_two_formats_differ_in_what_they_call_families() {
        let open = render_metrics(vec![Box::new(Sample)], ScrapeFormat::OpenMetrics).unwrap();
        let text = render_metrics(vec![Box::new(Sample)], ScrapeFormat::Text).unwrap();

        assert!(open.contains("# TYPE sent_bytes counter\n# UNIT sent_bytes bytes\n"), "{open}");
        assert!(open.contains("le=\"2.5\",of=\"x\"} 1 # {request_id=\"req_1\"} 2.0 "), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
        assert!(text.contains("# TYPE sent_bytes_total counter\n"), "{text}");
        assert!(text.contains("sent_bytes_total{to=\"a\\\"b\"} 7\n"), "{text}");
        assert!(text.contains("# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n"), "{text}");
        assert!(text.contains("le=\"2.5\",of=\"x\"} 1\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn whoever_likes_open_metrics_better_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(ScrapeFormat::from_accept(prometheus), ScrapeFormat::OpenMetrics);
        for other in ["", "*/*", "text/plain", "application/openmetrics-text;q=0.1, text/plain"] {
            assert_eq!(ScrapeFormat::from_accept(other), ScrapeFormat::Text, "{other}");
        }
    }
}
