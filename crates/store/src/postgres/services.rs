//! Connection services: what is said of a server in a file that PostgreSQL's own programs read as well.
//!
//! A file has a section for each service, and in it lines of the form `name=value`, without quotes. The
//! file is the one of `servicefile=PATH` or `PGSERVICEFILE`, else `~/.pg_service.conf`; a service that is
//! not there is looked for in that of the system (PostgreSQL's manual, section 34.17).

use std::path::{Path, PathBuf};

use ginnel_net::secret_file::{secret_text, warn_if_readable};

use super::options::{Parameters, PostgresAddressError};

/// The folder of the system's file, unless `PGSYSCONFDIR` names another.
const SYSTEM_FOLDER: &str = "/etc/postgresql-common";
const SYSTEM_FILE: &str = "pg_service.conf";

/// What a service says, where one is named here or by `PGSERVICE`.
pub(super) fn find_service(
    name: Option<String>,
    file: Option<PathBuf>,
) -> Result<Option<NamedService>, PostgresAddressError> {
    let Some(name) = name.or_else(|| std::env::var("PGSERVICE").ok()) else { return Ok(None) };
    let files = ServiceFiles::new(file);
    for (path, must_exist) in files.candidate_paths() {
        if !must_exist && !path.exists() {
            continue;
        }
        if let Some(parameters) = parameters_in(&path, &name)? {
            return Ok(Some(NamedService { name, path, parameters }));
        }
    }
    let path = files.candidate_paths().into_iter().next().map(|(path, _)| path).unwrap_or_default();
    Err(service_error(
        &name,
        &path,
        "the file has no such section, and neither has that of the system",
    ))
}

/// A service, and where it is described.
pub(super) struct NamedService {
    name: String,
    path: PathBuf,
    pub parameters: Parameters,
}

impl NamedService {
    /// Says that something is wrong with it.
    pub(super) fn error(&self, problem: &str) -> PostgresAddressError {
        service_error(&self.name, &self.path, problem)
    }
}

fn service_error(name: &str, path: &Path, problem: impl Into<String>) -> PostgresAddressError {
    let (name, path) = (name.to_owned(), path.to_owned());
    PostgresAddressError::Service { name, path, problem: problem.into() }
}

/// The files in which services are looked for.
struct ServiceFiles {
    named: Option<PathBuf>,
    home: Option<PathBuf>,
    system: PathBuf,
}

impl ServiceFiles {
    fn new(file: Option<PathBuf>) -> Self {
        let folder = std::env::var_os("PGSYSCONFDIR").unwrap_or_else(|| SYSTEM_FOLDER.into());
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Self {
            named: file.or_else(|| std::env::var_os("PGSERVICEFILE").map(PathBuf::from)),
            home: home.map(|home| home.join(".pg_service.conf")),
            system: Path::new(&folder).join(SYSTEM_FILE),
        }
    }

    /// In the order in which they count; true where the file must exist.
    fn candidate_paths(&self) -> Vec<(PathBuf, bool)> {
        let own = match (&self.named, &self.home) {
            (Some(named), _) => Some((named.clone(), true)),
            (None, home) => home.clone().map(|home| (home, false)),
        };
        own.into_iter().chain([(self.system.clone(), false)]).collect()
    }
}

/// What a file says of a service; none where it says nothing of it.
fn parameters_in(path: &Path, name: &str) -> Result<Option<Parameters>, PostgresAddressError> {
    let failed = |problem: String| service_error(name, path, problem);
    let text = std::fs::read(path).and_then(secret_text);
    let text = text.map_err(|problem| failed(problem.to_string()))?;
    let Some(section) = section_lines(&text, name) else { return Ok(None) };
    let parameters = parameters_of(&section).map_err(failed)?;
    if parameters.password.is_some() {
        warn_if_readable(path);
    }
    Ok(Some(parameters))
}

/// The error says which line is wrong and how, without its value, which may be a secret.
fn parameters_of(section: &[(usize, &str)]) -> Result<Parameters, String> {
    let mut parameters = Parameters::default();
    for (number, line) in section {
        let taken = match line.split_once('=') {
            Some((name, value)) => parameters.set_from_service(name, value),
            None => Err("is not of the form name=value".to_owned()),
        };
        taken.map_err(|problem| format!("line {number}: {problem}"))?;
    }
    Ok(parameters)
}

/// The lines of a section with their numbers, but for empty ones and comments; the first section counts.
fn section_lines<'text>(text: &'text str, name: &str) -> Option<Vec<(usize, &'text str)>> {
    let lines = text.lines().map(str::trim).enumerate().map(|(at, line)| (at + 1, line));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let title = format!("[{name}]");
    lines.find(|(_, line)| *line == title)?;
    Some(lines.take_while(|(_, line)| !line.starts_with('[')).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let text =
            "host=outside\n\n# [b]\n[a]\nhost=a\n  [b]  \n# none\n\n port=6000 \n[b]\nport=7\n";

        assert_eq!(section_lines(text, "a"), Some(vec![(5, "host=a")]));
        assert_eq!(section_lines(text, "b"), Some(vec![(9, "port=6000")]));
        assert_eq!(section_lines(text, "c"), None);
    }

    #[test]
    fn a_line_that_is_wrong_is_named_without_its_value() {
        for (line, words) in [
            ("sslcert=secret", "line 3: sslcert is not supported"),
            ("secret", "line 3: is not of the form name=value"),
            ("port=secret", "line 3: port is not a port"),
            ("sslmode=secret", "line 3: sslmode is neither"),
        ] {
            let problem = parameters_of(&[(2, "host=x"), (3, line)]).err().unwrap_or_default();

            assert!(problem.starts_with(words) && !problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn a_named_file_takes_the_place_of_the_own_one() {
        let files = |named: Option<&str>| {
            let named = named.map(PathBuf::from);
            let files =
                ServiceFiles { named, home: Some("/home/x".into()), system: "/etc/y".into() };
            files.candidate_paths()
        };

        assert_eq!(files(None), [("/home/x".into(), false), ("/etc/y".into(), false)]);
        assert_eq!(files(Some("z")), [("z".into(), true), ("/etc/y".into(), false)]);
    }
}
