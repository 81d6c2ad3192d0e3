//! The configuration of `ginnel serve`: what can be set, and the options of a service that follow.
//!
//! A setting is one row in the code of the part of the service that uses it. [`SECTIONS`] lists the rows of
//! all parts. The flag of a setting, its variable, its key and its line of the reference come from its row.

mod embedded;
mod secrets;
mod sections;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use embedded::{embedded_settings, load_embedded, replace_keyword};
pub use sections::SECTIONS;

use ginnel_base::logging::{LogFormat, LogLevels};
use ginnel_gateway::tls::authority;
use ginnel_settings::{
    ConfigFile, HasPart, ResolvedSettings, SettingSources, resolve_settings, settings,
};

use super::{Error, Options};

settings! {
    /// Everything that can be set.
    #[derive(Debug, Clone)]
    pub struct ServeConfig {
        /// The options of the service. The files below are not in them yet.
        pub options: Options = Options::default(),
    }

    /// The setting of the file with the admin key.
    admin_key_file {
        admin_key_file: Option<PathBuf> = None,
            "admin_key_file", "FILE",
            "A file that holds the admin key",
            listed_in_help(), with_keyword();
    }

    /// The setting of the file with the authtoken.
    authtoken_file {
        authtoken_file: Option<PathBuf> = None,
            "authtoken_file", "FILE",
            "A file that holds the authtoken for agents",
            listed_in_help();
    }

    /// The settings of logs.
    logs {
        log_level: Option<LogLevels> = None,
            "log_level", "LEVELS",
            "Levels to log: error, warn, info, debug, trace or off, also by target: info,gateway=debug",
            listed_in_help(), of_command(), live(), when_unset("what GINNEL_LOG says, or info if a format or a file is set");
        log_format: Option<LogFormat> = None,
            "log_format", "FORMAT",
            "Format of the log",
            of_command(), when_unset("term");
        log_file: Option<PathBuf> = None,
            "log_file", "FILE",
            "The file to add the log to, which is opened again on SIGHUP",
            of_command(), when_unset("standard error");
        access_log: Option<PathBuf> = None,
            "access_log", "FILE",
            "The file to add a line to for each request of a visitor, or - for standard output",
            listed_in_help(), of_command(), when_unset("no such log; with it, requests get an X-Request-Id");
    }

    /// The settings of the process.
    process {
        grace: Duration = Duration::from_secs(30),
            "grace", "DURATION",
            "Maximum time to wait for requests in flight when stopping; a second signal stops at once",
            of_command(), with_bounds(0, 3_600_000), live();
        json: bool = false,
            "json", "BOOL",
            "Print the addresses as one JSON object",
            listed_in_help(), of_command();
        events: bool = false,
            "events", "BOOL",
            "Print one line of JSON for each request or connection of public traffic",
            of_command();
    }
}

impl<P> HasPart<P> for ServeConfig
where
    Options: HasPart<P>,
{
    fn part(&self) -> &P {
        self.options.part()
    }

    fn part_mut(&mut self) -> &mut P {
        self.options.part_mut()
    }
}

/// Reads a configuration file of `ginnel serve`; what its values are worth is seen by [`load_config`].
///
/// # Errors
/// When the file cannot be read.
pub fn read_file(path: &Path) -> Result<ConfigFile, String> {
    ConfigFile::from_path(path, SECTIONS)
}

/// Puts a configuration together, and finds everything that is wrong with it before anything is
/// started.
///
/// # Errors
/// With every problem, each with the flag, the variable or the place in the file that it comes from.
pub fn load_config(
    sources: &SettingSources<'_>,
) -> Result<ResolvedSettings<ServeConfig>, Vec<String>> {
    let mut resolved = resolve_settings(SECTIONS, sources)?;
    let mut problems = secrets::fill_secrets(&mut resolved);
    let ServeConfig { access_log, options, .. } = &mut resolved.config;
    options.gateway.request_ids = access_log.is_some();
    if let Some((chain, key)) = options.certificate.files()
        && let Err(error) = authority::check_certificate(&chain, &key)
    {
        problems.push(resolved.describe_problem("certificate", &error.to_string()));
    }
    if problems.is_empty() && resolved.config.options.problems().is_empty() {
        return Ok(resolved);
    }
    problems.extend(preflight_problems(&resolved).into_iter().map(|(problem, _)| problem));
    Err(problems)
}

/// A problem of the options, with the place that says the setting.
fn locate_problem(resolved: &ResolvedSettings<ServeConfig>, error: &Error) -> String {
    let text = error.to_string();
    let Some(key) = error.setting_key() else { return text };
    resolved.describe_problem(key, text.strip_prefix(&format!("{key}: ")).unwrap_or(&text))
}

/// Everything that keeps `ginnel serve` from starting with a configuration, as far as it can be known
/// without listening, and without changing anything.
pub fn preflight_problems(resolved: &ResolvedSettings<ServeConfig>) -> Vec<(String, Error)> {
    let options = resolved.config.options.preflight_problems();
    let path = |error: &Error| match error {
        Error::Store(_) => resolved.describe_problem("path", &error.to_string()),
        error => locate_problem(resolved, error),
    };
    options.into_iter().map(|error| (path(&error), error)).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use ginnel_settings::{Setting, SettingSection, ValueKind};

    /// Files that a service writes.
    const OUTPUTS: [&str; 3] = ["path", "log_file", "access_log"];

    /// Addresses with a password, as they are written at the wrong setting or with a slip.
    const LOGINS: [&str; 8] = [
        "http://ada:swordfish@a.test",
        "http://ada:swordfish@a.test:99999/x?y",
        "ada:swordfish@a.test:80",
        "swordfish@a.test:80",
        "postgres://ada:swordfish@a.test/db",
        "postgres://ada:swordfish@a.test:99999/db",
        "postgres:/ada:swordfish@a.test",
        "ada:\"swordfish\\@a.test:80",
    ];

    #[test]
    fn no_problem_of_a_setting_shows_a_password() {
        let settings = SECTIONS.iter().flat_map(SettingSection::settings);
        let is_tested =
            |it: &&Setting<ServeConfig>| it.field.kind != ValueKind::Path || it.key == "path";
        let settings = settings.filter(|setting| setting.field.kind != ValueKind::Secret);
        for setting in settings.filter(is_tested) {
            let Some(variable) = setting.variable_name() else { continue };
            for login in LOGINS {
                let environment = |name: &str| (name == variable).then(|| login.into());
                let sources =
                    SettingSources { flags: &|_| None, environment: &environment, files: &[] };
                let problems = match load_config(&sources) {
                    Ok(loaded) => {
                        preflight_problems(&loaded).into_iter().map(|(it, _)| it).collect()
                    }
                    Err(problems) => problems,
                };
                let is_shown = |problem: &String| problem.contains("swordfish");
                assert!(!problems.iter().any(is_shown), "{}: {problems:?}", setting.key);
            }
        }
    }

    #[test]
    fn every_file_that_a_setting_names_is_read_before_the_start() {
        let file = std::env::temp_dir().join(format!("ginnel-utf16-{}", std::process::id()));
        std::fs::write(&file, b"\xff\xfes\x00").unwrap();
        let settings = SECTIONS.iter().flat_map(SettingSection::settings);
        let is_input = |setting: &&Setting<ServeConfig>| {
            let is_file = setting.field.kind == ValueKind::Path && setting.value_name == "FILE";
            is_file && !OUTPUTS.contains(&setting.key)
        };
        let inputs: Vec<_> = settings.filter(is_input).collect();
        for setting in &inputs {
            let variable = setting.variable_name().unwrap();
            for path in [&file, &PathBuf::from("/nowhere/at/all")] {
                let environment = |name: &str| -> Option<OsString> {
                    match name {
                        name if name == variable => Some(path.into()),
                        // Settings without which the file has no effect.
                        "GINNEL_CERTIFICATE" | "GINNEL_CERTIFICATE_KEY"
                            if setting.key.starts_with("certificate") =>
                        {
                            Some(path.into())
                        }
                        "GINNEL_ACME_DIRECTORY" => Some("letsencrypt".into()),
                        "GINNEL_ACME_AGREE_TO_TERMS" => Some("true".into()),
                        "GINNEL_HTTP_PORT" => Some("80".into()),
                        _ => None,
                    }
                };
                let sources =
                    SettingSources { flags: &|_| None, environment: &environment, files: &[] };
                let problems = match load_config(&sources) {
                    Ok(loaded) => {
                        preflight_problems(&loaded).into_iter().map(|(it, _)| it).collect()
                    }
                    Err(problems) => problems,
                };
                let is_secret = setting.key.ends_with("_file");
                let expected = match path == &file && is_secret {
                    true => "UTF-16",
                    false => path.to_str().unwrap(),
                };
                let is_named = |problem: &String| problem.contains(expected);
                assert!(problems.iter().any(is_named), "{}: {problems:?}", setting.key);
            }
        }
        std::fs::remove_file(&file).unwrap();
        assert!(inputs.len() >= 8, "{}", inputs.len());
    }
}
