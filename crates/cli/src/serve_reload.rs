//! Reading the configuration of a running service again.

use std::path::PathBuf;

use clap::ArgMatches;
use tokio::sync::mpsc;

use ginnel_api::mask;
use ginnel_api::remote::configuration::ConfigurationReload;
use ginnel_base::logging::{ignore, or_debug};
use ginnel_service::Service;
use ginnel_service::config::{SECTIONS, ServeConfig};
use ginnel_service::reload::ReloadOutcome;
use ginnel_settings::{Reload, SettingChange, diff_settings, keep_fixed};

use super::error::CommandResult;
use super::log_file;
use super::notify::SystemdNotifier;
use super::output::eprint_line;
use super::serve::{LoadedConfig, load_config, log_options};
use super::signals::{NOTHING_TO_READ, on_hangup};

/// The configuration that a service runs with, and where it was read from.
pub(super) struct RunningConfig {
    matches: ArgMatches,
    pub config: ServeConfig,
    /// Whether it was started with a file that sets nothing.
    may_be_empty: bool,
    /// What the file of the certificate held when it was last read.
    certificate: Option<Vec<u8>>,
}

impl RunningConfig {
    pub fn new(matches: &ArgMatches, loaded: LoadedConfig) -> Self {
        let LoadedConfig { resolved, has_empty_file } = loaded;
        let certificate = read_certificate(&resolved.config);
        let (matches, config) = (matches.clone(), resolved.config);
        Self { matches, config, may_be_empty: has_empty_file, certificate }
    }

    /// Reloads at each SIGHUP, which first opens log files again, and whenever the management API asks
    /// for it, one after another; never ends.
    pub async fn serve_reloads(
        &mut self,
        service: &Service,
        systemd: &SystemdNotifier,
    ) -> CommandResult<()> {
        // However many signals come during a reload, one more reads what is there then.
        let (hangup, mut hangups) = mpsc::channel(1);
        on_hangup(move || ignore(hangup.try_send(()), "the signal before it is not served yet"))?;
        let mut requests = service.reload_requests();
        loop {
            let request = async {
                match &mut requests {
                    Some(requests) => requests.recv().await,
                    None => std::future::pending().await,
                }
            };
            let request = tokio::select! {
                Some(()) = hangups.recv() => None,
                Some(request) = request => Some(request),
                else => std::future::pending().await,
            };
            match request {
                Some(request) => request.respond(systemd.notify_reload(self.reload(service)).await),
                None => systemd.notify_reload(self.handle_hangup(service)).await,
            }
        }
    }

    /// What SIGHUP asks for: log files first, so that what a reload logs is in the new ones.
    async fn handle_hangup(&mut self, service: &Service) {
        let has_logs = log_file::reopen_logs();
        let outcome = self.reload(service).await;
        let has_file = self.matches.contains_id("config");
        let has_certificate = self.config.options.certificate.certificate.is_some();
        match outcome {
            Ok(_) if !(has_logs || has_file || has_certificate) => eprint_line(NOTHING_TO_READ),
            Ok(done) if done.changed.iter().chain(&done.restart_needed).all(Vec::is_empty) => {
                eprint_line("reloaded: no setting has changed");
            }
            _ => {}
        }
    }

    /// Reads everything again and has the service take it over; what is wrong changes nothing.
    async fn reload(&mut self, service: &Service) -> ReloadOutcome {
        let outcome = self.apply_config(service).await;
        match &outcome {
            Err(problems) => {
                problems
                    .iter()
                    .for_each(|problem| eprint_line(&format!("not reloaded: {problem}")));
            }
            Ok(done) => report_reload(done),
        }
        outcome
    }

    async fn apply_config(&mut self, service: &Service) -> ReloadOutcome {
        let file = self.matches.get_one::<PathBuf>("config");
        if let Some(path) = file.filter(|path| path.exists() && !path.is_file() && !path.is_dir()) {
            return Err(vec![format!("{} can be read only once", mask::path(path))]);
        }
        let matches = self.matches.clone();
        let loading = ginnel_base::tasks::spawn_blocking(move || load_config(&matches));
        let loaded = loading.await.map_err(|error| vec![error.to_string()])??;
        // Somebody may be about to write it; its defaults are not what was meant.
        if let Some(path) = file.filter(|_| loaded.has_empty_file && !self.may_be_empty) {
            return Err(vec![format!("{} is empty", mask::path(path))]);
        }
        let mut config = loaded.resolved.config;
        let changes = diff_settings(SECTIONS, &self.config, &config);
        keep_fixed(SECTIONS, &self.config, &mut config);
        let certificate = read_certificate(&config);
        let applied = service.reconfigure(&config.options).await;
        applied.map_err(|error| vec![error.to_string()])?;
        let mut report = reload_report(&changes);
        // A path that has changed is reported already.
        let path = &config.options.certificate.certificate;
        let is_same_path = *path == self.config.options.certificate.certificate;
        if certificate != self.certificate && is_same_path {
            let path = path.iter().map(|path| mask::path(path).to_string());
            let lines = path.map(|path| format!("certificate: what {path} holds is new"));
            report.changed.get_or_insert_default().extend(lines);
        }
        (self.config, self.certificate) = (config, certificate);
        log_options(&self.config).apply_levels();
        Ok(report)
    }
}

/// What the file of the certificate holds; that it cannot be read is found out by whoever shows it.
fn read_certificate(config: &ServeConfig) -> Option<Vec<u8>> {
    let path = config.options.certificate.certificate.as_ref()?;
    or_debug!(std::fs::read(path), "cannot compare the certificate")
}

/// Says what has changed.
fn report_reload(done: &ConfigurationReload) {
    for line in done.changed.iter().flatten() {
        eprint_line(&format!("reloaded: {line}"));
    }
    for line in done.restart_needed.iter().flatten() {
        eprint_line(&format!("not before a restart: {line}"));
    }
}

fn reload_report(changes: &[SettingChange]) -> ConfigurationReload {
    let lines = |reload| {
        let changes = changes.iter().filter(|change| change.reload == reload);
        let line = |change: &SettingChange| {
            format!("{}: {} is now {}", change.key, change.from, change.to)
        };
        Some(changes.map(line).collect())
    };
    ConfigurationReload { changed: lines(Reload::Live), restart_needed: lines(Reload::Restart) }
}
