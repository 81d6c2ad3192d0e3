//! Flags, environment, file and defaults: whoever comes first has the say.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use ginnel_api::mask;
use ginnel_api::yaml_tree::TextPlace;

use super::file::{ConfigFile, problem_at};
use super::setting::{Setting, SettingSection};
use super::value::{ValueKind, to_os_strings};

/// Where a value comes from; what is greater wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Nobody said anything.
    #[default]
    Default,
    /// A configuration file.
    File(PathBuf, TextPlace),
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File(path, TextPlace::NONE) => write!(formatter, "{}", mask::path(path)),
            Self::File(path, TextPlace { line, .. }) => {
                write!(formatter, "{}:{line}", mask::path(path))
            }
            Self::Environment(name) => formatter.write_str(name),
            Self::Flag(name) => write!(formatter, "--{name}"),
        }
    }
}

/// Where values may come from.
pub struct SettingSources<'s> {
    /// The values of a flag, by its name without dashes; none where it is not given.
    pub flags: &'s dyn Fn(&str) -> Option<Vec<OsString>>,
    /// The value of a variable of the environment.
    pub environment: &'s dyn Fn(&str) -> Option<OsString>,
    /// The files; what a later one says wins.
    pub files: &'s [ConfigFile],
}

/// A configuration, and where its values come from.
#[derive(Debug, Clone)]
pub struct ResolvedSettings<C> {
    /// The configuration.
    pub config: C,
    origins: BTreeMap<&'static str, SettingOrigin>,
    /// How strong their sources are: a later file is stronger than an earlier one.
    strengths: BTreeMap<&'static str, usize>,
}

impl<C> ResolvedSettings<C> {
    /// Where the value of a setting comes from, by its key.
    pub fn setting_origin(&self, key: &str) -> SettingOrigin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    /// A problem with the value of a setting, with the place that says it.
    pub fn describe_problem(&self, key: &str, problem: &str) -> String {
        match self.setting_origin(key) {
            SettingOrigin::Default => format!("{key}: {problem}"),
            origin => locate_problem(key, &origin, problem),
        }
    }

    /// Whether a setting has a value that is not its default's.
    pub fn is_set(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }

    /// Whether one setting has the say over another that stands for the same: its source is at least
    /// as strong.
    pub fn takes_precedence(&self, key: &str, other: &str) -> bool {
        self.strengths.get(key) >= self.strengths.get(other)
    }
}

/// What is shorter is no secret, and stands in many words.
const MIN_SECRET_BYTES: usize = 4;

/// Puts a configuration together.
///
/// # Errors
/// With everything that is wrong, each with the place that says it: the file with line and column, the
/// variable or the flag.
pub fn resolve_settings<C: Default>(
    sections: &'static [SettingSection<C>],
    sources: &SettingSources<'_>,
) -> Result<ResolvedSettings<C>, Vec<String>> {
    let (origins, strengths) = (BTreeMap::new(), BTreeMap::new());
    let mut resolved = ResolvedSettings { config: C::default(), origins, strengths };
    let secrets = file_secrets(sections, sources);
    let mut problems: Vec<_> = sources.files.iter().flat_map(|it| it.problems.clone()).collect();
    for setting in sections.iter().flat_map(SettingSection::settings) {
        for (strength, origin, values) in configured_values(setting, sources) {
            match setting.replace_value(&mut resolved.config, &values) {
                Ok(()) => {
                    resolved.strengths.insert(setting.key, strength);
                    resolved.origins.insert(setting.key, origin);
                }
                Err(problem) => {
                    let is_secret = setting.field.kind == ValueKind::Secret;
                    // What is wrong with a secret must not show it.
                    let problem = if is_secret { "is unusable".to_owned() } else { problem };
                    problems.push(locate_problem(
                        setting.key,
                        &origin,
                        &redact_secrets(&secrets, problem),
                    ));
                }
            }
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(problems) }
}

/// What the sources say of a setting; the last has the say, but all must be right.
fn configured_values<'s, C>(
    setting: &'static Setting<C>,
    sources: &'s SettingSources<'s>,
) -> impl Iterator<Item = (usize, SettingOrigin, Vec<OsString>)> + 's {
    let strongest = sources.files.len();
    let files = sources.files.iter().enumerate().filter_map(|(at, file)| {
        let (values, place) = file.setting_values(setting.key)?;
        Some((at, SettingOrigin::File(file.path().to_owned(), place), to_os_strings(values)))
    });
    let environment = setting.variable_name().and_then(|variable| {
        let value = (sources.environment)(&variable)?;
        let value = Some(value).filter(|value| is_meant(&variable, value))?;
        Some((strongest, SettingOrigin::Environment(variable), split_items(setting, value)))
    });
    let flag = setting.flag_name().and_then(|flag| {
        let values = (sources.flags)(&flag)?;
        Some((strongest + 1, SettingOrigin::Flag(flag), values))
    });
    files.chain(environment).chain(flag)
}

/// Returns true if a variable has a value and is a setting, not one that Kubernetes sets for a Service called `ginnel`.
fn is_meant(name: &str, value: &OsStr) -> bool {
    !value.to_string_lossy().trim().is_empty() && !is_set_by_kubernetes(name, value)
}

/// Returns true if a variable is one that Kubernetes sets in each container for a Service of its namespace, such as
/// `GINNEL_PORT=tcp://10.0.0.1:4000` and `GINNEL_SERVICE_HOST` for the Service `ginnel`.
pub fn is_set_by_kubernetes(name: &str, value: &OsStr) -> bool {
    const SCHEMES: [&str; 3] = ["tcp://", "udp://", "sctp://"];
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    let is_url = SCHEMES.iter().any(|scheme| value.to_string_lossy().starts_with(scheme));
    let is_port = |rest: &str| {
        let mut parts = rest.splitn(3, '_');
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        parts.next().is_some_and(is_number)
            && parts.next().is_some_and(|it| PROTOCOLS.contains(&it))
    };
    name.ends_with("_PORT") && is_url
        || name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.match_indices("_PORT_").any(|(at, port)| is_port(&name[at + port.len()..]))
}

/// The values in a variable: those of a list are parted by commas.
fn split_items<C>(setting: &Setting<C>, value: OsString) -> Vec<OsString> {
    match value.to_str() {
        Some(text) if setting.field.kind == ValueKind::List => {
            text.split(',').map(|item| item.trim().into()).collect()
        }
        _ => vec![value],
    }
}

/// What files say of secrets: it may stand at another key by mistake.
fn file_secrets<C>(
    sections: &'static [SettingSection<C>],
    sources: &SettingSources<'_>,
) -> Vec<String> {
    let settings = sections.iter().flat_map(SettingSection::settings);
    let keys = settings.filter(|setting| setting.field.kind == ValueKind::Secret);
    let texts =
        |key| sources.files.iter().filter_map(move |file| Some(file.setting_values(key)?.0));
    keys.flat_map(|setting| texts(setting.key)).flatten().cloned().collect()
}

/// A problem that shows no secret.
fn redact_secrets(secrets: &[String], problem: String) -> String {
    let known = secrets.iter().filter(|secret| secret.len() >= MIN_SECRET_BYTES);
    known.fold(problem, |problem, secret| problem.replace(secret.as_str(), mask::MASK))
}

fn locate_problem(key: &str, origin: &SettingOrigin, problem: &str) -> String {
    match origin {
        SettingOrigin::File(path, place) => problem_at(path, *place, &format!("{key}: {problem}")),
        _ => format!("{origin}: {problem}"),
    }
}
