//! An archive for a bug report: what `doctor` found, the settings and the machine, without secrets.

use std::fs::OpenOptions;
use std::io::{Result, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tar::{Builder, Header};

use ginnel_api::mask;
use ginnel_base::files;
use ginnel_net::descriptors::DescriptorLimit;

use super::finding::Finding;
use crate::error::{CliError, Exit};

/// Writes the archive to a new file that only its owner can read.
pub(super) fn write_bundle(
    path: &Path,
    findings: &[Finding],
    settings: &[String],
) -> std::result::Result<(), CliError> {
    let written = write_archive(path, findings, settings);
    written.map_err(|error| CliError::new(Exit::Failed, format!("{}: {error}", path.display())))
}

fn write_archive(path: &Path, findings: &[Finding], settings: &[String]) -> Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true);
    let file = files::with_mode(options, files::SECRET_MODE).open(path)?;
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    let found = serde_json::to_string_pretty(&json!({"findings": findings}))?;
    add_file(&mut archive, "findings.json", &found)?;
    add_file(&mut archive, "settings.txt", &settings.join("\n"))?;
    add_file(&mut archive, "system.json", &serde_json::to_string_pretty(&describe_system())?)?;
    archive.into_inner()?.finish()?.sync_all()
}

/// Adds a text; whatever looks like a secret in it is masked.
fn add_file(archive: &mut Builder<impl Write>, name: &str, text: &str) -> Result<()> {
    let text = mask::text(text);
    let mut header = Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(files::SECRET_MODE);
    archive.append_data(&mut header, format!("ginnel-doctor/{name}"), text.as_bytes())
}

/// What the program and the machine are; no names of users or machines.
fn describe_system() -> serde_json::Value {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "release": release.map(|name| name.trim_matches('"')),
        "kernel": kernel.trim(),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "descriptors": DescriptorLimit::read_current().0,
    })
}
