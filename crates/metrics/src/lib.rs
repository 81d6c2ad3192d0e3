//! Figures for Prometheus: what is counted while traffic runs, and how a scrape shows it.
//!
//! Traffic counts with relaxed atomics, through handles that routes and sessions hold: nothing is looked
//! up and nothing is allocated for a request. Everything else is read where it is kept, when somebody
//! scrapes, by a [`Collect`] that writes [`Families`].
//!
//! The text is written by `prometheus-client`, the library of the Prometheus project: released often (0.25
//! in 2026), three small dependencies, the only one in Rust that writes OpenMetrics with exemplars.
//! `prometheus` (0.14) writes neither; `metrics-exporter-prometheus` finds each metric in a global table by
//! a hash of its labels at every count, and `opentelemetry-prometheus` brings a telemetry pipeline. Its own
//! histograms lock at each value, so traffic without request ids counts into [`Histogram`], which shows
//! itself through the same encoder; where requests have ids, which costs more anyway, its
//! `HistogramWithExemplars` keeps them. It writes only OpenMetrics; `exposition` makes the older text
//! format of that.
//!
//! # Invariants
//!
//! - Counting neither locks nor allocates.

mod code_counts;
mod exposition;
mod families;
mod histogram;
mod name_table;
mod process;

pub use code_counts::CodeCounts;
pub use exposition::{ScrapeFormat, render_metrics};
pub use families::{Collect, Families, Family};
pub use histogram::{DurationHistogram, Histogram, SIZE_BOUNDS};
pub use name_table::NameTable;
pub use process::ProcessFigures;
