//! Finds the password of a server where PostgreSQL's own programs look for it, but for argv.

use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use ginnel_net::secret_file::read_secret_lines;

use super::options::PostgresAddressError;

/// The password from the environment, or from a file in the form of `.pgpass`.
pub(super) fn find_password(
    config: &Config,
    file: Option<PathBuf>,
) -> Result<Option<String>, PostgresAddressError> {
    if file.is_none()
        && let Ok(password) = std::env::var("PGPASSWORD")
    {
        return Ok(Some(password));
    }
    let named = file.or_else(|| std::env::var_os("PGPASSFILE").map(PathBuf::from));
    let (path, is_named) = match named {
        Some(path) => (path, true),
        None => match std::env::var_os("HOME") {
            Some(home) => (Path::new(&home).join(".pgpass"), false),
            None => return Ok(None),
        },
    };
    if !is_named && !path.exists() {
        return Ok(None);
    }
    let failed =
        |problem: String| PostgresAddressError::PasswordFile { path: path.clone(), problem };
    let text = read_secret_lines(&path).map_err(|error| failed(error.to_string()))?;
    Ok(text.lines().find_map(|line| password_in(line, config)))
}

/// The password of a line `host:port:database:user:password`, if it is for this server.
fn password_in(line: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first()? {
        Host::Tcp(host) => host.clone(),
        #[cfg(unix)]
        Host::Unix(_) => "localhost".to_owned(),
    };
    let port = config.get_ports().first()?.to_string();
    let expected = [host.as_str(), &port, config.get_dbname()?, config.get_user()?];
    let fields = split_fields(line);
    let [named @ .., password] = fields.as_slice() else { return None };
    let is_for = |(field, expected): (&String, &str)| field == "*" || field == expected;
    let is_server = named.len() == expected.len() && named.iter().zip(expected).all(is_for);
    is_server.then(|| password.clone())
}

/// The fields of a line; a backslash takes the next character for what it is.
fn split_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            '\\' => fields[last].extend(characters.next()),
            ':' => fields.push(String::new()),
            other => fields[last].push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_for_the_server_has_its_password() {
        let mut config = Config::new();
        config.host("db.example").port(5432).dbname("tunnels").user("me");

        for (line, password) in [
            ("db.example:5432:tunnels:me:secret", Some("secret")),
            ("*:*:*:me:with\\:colon", Some("with:colon")),
            ("db.example:5433:tunnels:me:secret", None),
            ("#db.example:5432:tunnels:me:secret", None),
            ("db.example:5432:tunnels", None),
            ("", None),
        ] {
            assert_eq!(password_in(line, &config).as_deref(), password, "{line}");
        }
    }
}
