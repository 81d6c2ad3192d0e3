//! Figures of the process and of the build.

use std::fmt;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

use ginnel_base::logging;

use super::families::{Collect, Families};

/// What the process uses, by the names that all programs use for it; on Linux.
pub struct ProcessFigures;

impl Collect for ProcessFigures {
    fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        families.info("ginnel_build", "The program that runs.", &version)?;
        let help = "Lines that were lost because they came faster than they were written.";
        let mut family = families.counter("ginnel_log_lines_dropped", help)?;
        family.write_counter(&[("log", "events")], logging::dropped_records())?;
        family.write_counter(&[("log", "access")], logging::dropped_access_lines())?;
        write_usage(families)
    }
}

#[cfg(target_os = "linux")]
fn write_usage(families: &mut Families<'_>) -> fmt::Result {
    use procfs::WithCurrentSystemInfo;

    // A system that hides /proc has no such figures.
    let opened = procfs::process::Process::myself();
    let Some(process) = logging::or_debug!(opened, "cannot read the figures of the process") else {
        return Ok(());
    };
    if let Some(stat) = logging::or_debug!(process.stat(), "cannot read the process's status") {
        let ticks = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        let help = "User and system time that the process has used.";
        families.counter("process_cpu_seconds", help)?.write_seconds(&[], ticks)?;
        let resident = stat.rss_bytes().get() as f64;
        let help = "Memory of the process that is in RAM.";
        families.gauge("process_resident_memory_bytes", help)?.write_gauge(&[], resident)?;
        let help = "Address space of the process.";
        families
            .gauge("process_virtual_memory_bytes", help)?
            .write_gauge(&[], stat.vsize as f64)?;
        let help = "When the process started, in seconds since 1970.";
        let started = process_start_time(stat.starttime as f64 / procfs::ticks_per_second() as f64);
        families.gauge("process_start_time_seconds", help)?.write_gauge(&[], started)?;
    }
    if let Some(open) = logging::or_debug!(process.fd_count(), "cannot count file descriptors") {
        let help = "File descriptors that are open.";
        families.gauge("process_open_fds", help)?.write_gauge(&[], open as f64)?;
    }
    let limits = logging::or_debug!(process.limits(), "cannot read the limits of the process");
    let limit = limits.map(|limits| limits.max_open_files.soft_limit);
    if let Some(procfs::process::LimitValue::Value(limit)) = limit {
        let help = "File descriptors that may be open.";
        families.gauge("process_max_fds", help)?.write_gauge(&[], limit as f64)?;
    }
    Ok(())
}

/// The moment that was so many seconds after the start of the machine: by the clocks, for a unit of systemd
/// may hide `/proc/stat`, and once, for they do not agree to the microsecond each time.
#[cfg(target_os = "linux")]
fn process_start_time(after_boot: f64) -> f64 {
    use std::time::{SystemTime, UNIX_EPOCH};

    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let up = up.tv_sec as f64 + up.tv_nsec as f64 / 1e9;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs_f64() - up + after_boot
    })
}

#[cfg(not(target_os = "linux"))]
fn write_usage(_: &mut Families<'_>) -> fmt::Result {
    Ok(())
}
