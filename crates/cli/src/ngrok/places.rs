//! What the program is called, and where it has its files.

use std::path::PathBuf;

use clap::ArgMatches;

/// What the program is called.
pub(super) const NAME: &str = "ngrok";

/// The configuration files of such a program: those that are named, or the usual one.
pub(super) fn config_paths(matches: &ArgMatches) -> Vec<PathBuf> {
    let named: Vec<_> =
        matches.get_many::<PathBuf>("config").into_iter().flatten().cloned().collect();
    match named.is_empty() {
        true => default_config_path().into_iter().collect(),
        false => named,
    }
}

/// Where such a program has its configuration file.
pub(super) fn default_config_path() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let folder = match std::env::consts::OS {
        "macos" => home.join("Library/Application Support"),
        _ => {
            std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from)
        }
    };
    Some(folder.join(NAME).join("ngrok.yml"))
}
