//! The configuration of a service in another program: a file and values take the place of a command
//! line, and the environment is not read.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde_json::Value;

use ginnel_settings::{Bounds, ConfigFile, Setting, SettingSection, SettingSources, ValueKind};

use super::{SECTIONS, ServeConfig, load_config, read_file};

/// What stands for the place of values in problems.
const PLACE: &str = "settings";

/// The configuration that a file and values make; the values win. Where they are for a command, the file
/// may hold them for `ginnel serve`.
///
/// # Errors
/// With every problem; those of values begin with `settings`.
pub fn load_embedded(file: Option<&Path>, values: Value) -> Result<ServeConfig, Vec<String>> {
    let file = file.map(read_file).transpose().map_err(|problem| vec![problem])?;
    let values = ConfigFile::from_value(Path::new(PLACE), values, SECTIONS);
    let misplaced =
        all_settings().filter(|setting| setting.of_command && values.has_setting(setting.key));
    let misplaced = misplaced
        .map(|setting| format!("{PLACE}: {}: is a setting of `ginnel serve` alone", setting.key))
        .collect::<Vec<_>>();
    if !misplaced.is_empty() {
        return Err(misplaced);
    }
    let files: Vec<_> = file.into_iter().chain([values]).collect();
    let sources = SettingSources { flags: &|_| None, environment: &|_| None, files: &files };
    let mut config = load_config(&sources)?.config;
    // There is no access log whose lines they would name.
    config.options.gateway.request_ids = false;
    Ok(config)
}

/// Reads the value of a keyword argument into its settings. `None` resets them. An argument may exceed the bounds of a
/// file. The start of the service rejects values that cannot work.
///
/// # Errors
/// If the keyword is unknown, or the value cannot be read. The problem begins with the keyword.
pub fn replace_keyword(
    config: &mut ServeConfig,
    keyword: &str,
    values: Option<Vec<OsString>>,
) -> Result<(), String> {
    let settings: Vec<_> = all_settings().filter(|it| it.keyword == Some(keyword)).collect();
    let replaced = match (settings.as_slice(), values) {
        ([], _) => Err("there is no setting for this argument".to_owned()),
        (settings, None) => settings.iter().try_for_each(|setting| unset_value(config, setting)),
        ([setting], Some(values)) if setting.field.kind == ValueKind::List => {
            setting.replace_within(config, &values, Bounds::ALL)
        }
        ([setting], Some(parts)) => {
            setting.replace_within(config, &[parts.join(OsStr::new("/"))], Bounds::ALL)
        }
        (settings, Some(values)) if settings.len() == values.len() => {
            let mut pairs = settings.iter().zip(values);
            pairs.try_for_each(|(it, value)| it.replace_within(config, &[value], Bounds::ALL))
        }
        (settings, Some(values)) => {
            Err(format!("takes {} values, not {}", settings.len(), values.len()))
        }
    };
    replaced.map_err(|problem| format!("{keyword}: {problem}"))
}

/// A setting without a value has its default, unless the default is a port: then nothing listens.
fn unset_value(config: &mut ServeConfig, setting: &Setting<ServeConfig>) -> Result<(), String> {
    let usual = ServeConfig::default();
    if (setting.field.text)(&usual).is_none() {
        (setting.field.copy)(config, &usual);
        return Ok(());
    }
    match setting.value_name {
        "PORT" => setting.replace_value(config, &["none"]),
        _ => Err("needs a value, not None; leave the argument out".to_owned()),
    }
}

/// The settings that a service has in any program.
pub fn embedded_settings() -> impl Iterator<Item = &'static Setting<ServeConfig>> {
    all_settings().filter(|setting| !setting.of_command)
}

fn all_settings() -> impl Iterator<Item = &'static Setting<ServeConfig>> {
    SECTIONS.iter().flat_map(SettingSection::settings)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Options;
    use serde_json::json;

    #[test]
    fn values_are_nested_or_have_dots() {
        let values =
            json!({"edge": {"idle_timeout": "2m"}, "acme.email": "ops@example.test", "port": 0});

        let options = load_embedded(None, values).unwrap().options;

        assert_eq!(options.gateway.timeouts.idle, Duration::from_secs(120));
        assert_eq!(options.acme.email.as_deref(), Some("ops@example.test"));
    }

    #[test]
    fn problems_name_key_value_and_limit() {
        let problems = |values| load_embedded(None, values).unwrap_err();

        assert_eq!(
            problems(json!({"edge": {"idle_timout": 1}, "backup": {"keep": 0}})),
            [
                "settings: unknown key \"edge.idle_timout\"; did you mean \"edge.idle_timeout\"?",
                "settings: backup.keep: '0' is not a whole number from 1 to 4294967295",
            ]
        );
        let misplaced = problems(json!({"log_level": "info"}));
        assert_eq!(misplaced, ["settings: log_level: is a setting of `ginnel serve` alone"]);
    }

    #[test]
    fn a_keyword_takes_a_value_for_each_of_its_settings() {
        let mut config = ServeConfig::default();
        let mut replace = |keyword: &str, values: Option<&[&str]>| {
            let values = values.map(|it| it.iter().map(OsString::from).collect());
            replace_keyword(&mut config, keyword, values)
        };

        assert_eq!(replace("heartbeat", Some(&["0.01", "2"])), Ok(()));
        assert_eq!(replace("rate_limit", Some(&["120", "0.5"])), Ok(()));
        assert_eq!(replace("trusted_proxies", Some(&["10.0.0.0/8", "::1"])), Ok(()));
        assert_eq!(replace("http_port", None), Ok(()));
        assert_eq!(replace("max_connections", Some(&["0"])), Ok(()));
        let problem = replace("heartbeat", Some(&["1"])).unwrap_err();
        assert_eq!(problem, "heartbeat: takes 2 values, not 1");
        let problem = replace("edge_host", None).unwrap_err();
        assert_eq!(problem, "edge_host: needs a value, not None; leave the argument out");

        let Options { agents, management, gateway, .. } = config.options;
        assert_eq!(agents.heartbeat_interval, Duration::from_millis(10));
        assert_eq!(agents.heartbeat_tolerance, Duration::from_secs(2));
        assert_eq!(management.rate_limit, Some((120, Duration::from_millis(500))));
        assert_eq!(gateway.trusted_proxies.ranges().len(), 2);
        assert_eq!((gateway.http_port, gateway.connections), (None, Some(0)));
    }
}
