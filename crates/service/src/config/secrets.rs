//! The two secrets of a new database: each is a value, or a file that holds it.

use std::path::Path;

use ginnel_api::{Secret, id};
use ginnel_settings::{ResolvedSettings, SettingOrigin};

use super::ServeConfig;
use crate::{Error, read_admin_key, read_authtoken};

/// Puts the secrets into the options of the service; gives what is wrong with them.
pub(super) fn fill_secrets(resolved: &mut ResolvedSettings<ServeConfig>) -> Vec<String> {
    let admin_key = choose_secret(
        resolved,
        "admin_key",
        &resolved.config.options.tokens.admin_key,
        &resolved.config.admin_key_file,
        read_admin_key,
    );
    let authtoken = choose_secret(
        resolved,
        "authtoken",
        &resolved.config.options.tokens.authtoken,
        &resolved.config.authtoken_file,
        read_authtoken,
    );
    let mut problems = Vec::new();
    let mut take = |chosen: Result<_, String>| {
        chosen.map_err(|problem| problems.push(problem)).unwrap_or_default()
    };
    resolved.config.options.tokens.admin_key = take(admin_key);
    resolved.config.options.tokens.authtoken = take(authtoken);
    problems
}

/// The secret that counts: of the value and the file, the one that comes from the stronger source, and
/// of two from the same the file.
fn choose_secret(
    resolved: &ResolvedSettings<ServeConfig>,
    key: &str,
    value: &Option<Secret>,
    file: &Option<std::path::PathBuf>,
    read: fn(&Path) -> Result<Secret, Error>,
) -> Result<Option<Secret>, String> {
    let origin = resolved.setting_origin(key);
    match (value, file) {
        (_, Some(path)) if resolved.takes_precedence(&format!("{key}_file"), key) => {
            let read = read(path).map(Some);
            read.map_err(|error| {
                resolved.describe_problem(&format!("{key}_file"), &error.to_string())
            })
        }
        (Some(secret), _) if id::split_token(&secret.0).is_none() => {
            Err(malformed_secret(&origin, key))
        }
        (secret, _) => Ok(secret.clone()),
    }
}

fn malformed_secret(origin: &SettingOrigin, key: &str) -> String {
    let kind = if key == "admin_key" { "an API key" } else { "an authtoken" };
    match origin {
        SettingOrigin::Environment(name) => format!("{name} does not hold {kind} of this service"),
        origin => format!("{origin}: {key}: is not {kind} of this service"),
    }
}
