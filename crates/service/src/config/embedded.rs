//! The configuration of a service in another program: a file and values take the place of a command
//! line, and the environment is not read.

use std::path::Path;

use serde_json::Value;

use ginnel_settings::{ConfigFile, Setting, SettingSection, SettingSources};

use super::{SECTIONS, ServeConfig, load_config, read_file};
use crate::Options;

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

/// Takes settings from other options, by their keys.
///
/// # Errors
/// When there is no setting of a key.
pub fn replace_settings(
    config: &mut ServeConfig,
    options: Options,
    keys: &[&str],
) -> Result<(), String> {
    let from = ServeConfig { options, ..ServeConfig::default() };
    keys.iter().try_for_each(|key| {
        let setting = all_settings().find(|setting| setting.key == *key);
        let setting = setting.ok_or_else(|| format!("there is no setting {key}"))?;
        (setting.field.copy)(config, &from);
        Ok(())
    })
}

/// The settings that a service has in any program.
pub fn embedded_settings() -> impl Iterator<Item = &'static Setting<ServeConfig>> {
    all_settings().filter(|setting| !setting.of_command)
}

fn all_settings() -> impl Iterator<Item = &'static Setting<ServeConfig>> {
    SECTIONS.iter().flat_map(SettingSection::settings)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
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
}
