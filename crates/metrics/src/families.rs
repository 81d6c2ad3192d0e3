//! Writing families of metrics for one scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::histogram::{DurationHistogram, Histogram};

/// Part of the program that has figures to show.
pub trait Collect: Send + Sync + 'static {
    /// Writes all figures as they are now.
    ///
    /// # Errors
    /// What the encoder returns.
    fn collect(&self, families: &mut Families<'_>) -> fmt::Result;
}

impl<C: Collect + ?Sized> Collect for Arc<C> {
    fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        (**self).collect(families)
    }
}

/// Labels of one series; their values are bounded by whoever names them.
type Labels<'l> = &'l [(&'static str, &'l str)];

/// Where families are written. A name ends with its unit, without `_total`.
pub struct Families<'e>(DescriptorEncoder<'e>);

/// One family, whose series are written next.
pub struct Family<'f>(MetricEncoder<'f>);

impl Families<'_> {
    /// A number that only grows.
    pub fn counter<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.begin_family(name, help, MetricType::Counter)
    }

    /// A number that goes up and down.
    pub fn gauge<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.begin_family(name, help, MetricType::Gauge)
    }

    /// How values are distributed.
    pub fn histogram<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
    ) -> Result<Family<'s>, fmt::Error> {
        self.begin_family(name, help, MetricType::Histogram)
    }

    /// What stays as it is while the process lives.
    pub fn info(&mut self, name: &str, help: &str, labels: Labels<'_>) -> fmt::Result {
        self.begin_family(name, help, MetricType::Info)?.0.encode_info(&labels)
    }

    fn begin_family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<Family<'s>, fmt::Error> {
        let unit = unit_suffix(name);
        let name = unit.map_or(name, |unit| name.trim_end_matches(unit.as_str()));
        let name = if unit.is_some() { name.trim_end_matches('_') } else { name };
        Ok(Family(self.0.encode_descriptor(name, help, unit, kind)?))
    }
}

/// The unit that a name ends with.
fn unit_suffix(name: &str) -> Option<&'static Unit> {
    static UNITS: [Unit; 2] = [Unit::Seconds, Unit::Bytes];
    UNITS.iter().find(|unit| name.ends_with(unit.as_str()))
}

impl Family<'_> {
    /// Writes a series of a counter.
    pub fn write_counter(&mut self, labels: Labels<'_>, value: u64) -> fmt::Result {
        self.write_series(labels, |it| it.encode_counter::<NoLabelSet, _, u64>(&value, None))
    }

    /// Writes a series of a counter of seconds.
    pub fn write_seconds(&mut self, labels: Labels<'_>, value: f64) -> fmt::Result {
        self.write_series(labels, |it| it.encode_counter::<NoLabelSet, _, f64>(&value, None))
    }

    /// Writes a series of a gauge.
    pub fn write_gauge(&mut self, labels: Labels<'_>, value: f64) -> fmt::Result {
        self.write_series(labels, |it| it.encode_gauge(&value))
    }

    /// Writes a series of a histogram.
    pub fn write_histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) -> fmt::Result {
        let (buckets, sum) = histogram.snapshot();
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.write_series(labels, |it| {
            it.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    /// Writes a series of a histogram of durations.
    pub fn write_durations(
        &mut self,
        labels: Labels<'_>,
        durations: &DurationHistogram,
    ) -> fmt::Result {
        match durations {
            DurationHistogram::Plain(histogram) => self.write_histogram(labels, histogram),
            DurationHistogram::Traced { named, .. } => named.encode(self.0.encode_family(&labels)?),
        }
    }

    fn write_series(
        &mut self,
        labels: Labels<'_>,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        match labels {
            [] => write(&mut self.0),
            _ => write(&mut self.0.encode_family(&labels)?),
        }
    }
}

/// A part of the program as the library knows it.
pub(super) struct CollectorAdapter(pub Box<dyn Collect>);

impl fmt::Debug for CollectorAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorAdapter").finish_non_exhaustive()
    }
}

impl Collector for CollectorAdapter {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.collect(&mut Families(encoder))
    }
}
