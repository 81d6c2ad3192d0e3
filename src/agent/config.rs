//! The configuration file, version 2 (agent sheet, section 8).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::capture::CaptureLimit;
use super::definition::Definition;
use super::options::AgentOptions;
use super::options::WebAddress;
use super::{Error, Trust};
use crate::api::{Secret, yaml};

/// The version of the file.
const CONFIG_VERSION: u64 = 2;

/// What configuration files say; what none of them says is absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    version: Option<u64>,
    /// What the service knows the agent by.
    pub authtoken: Option<String>,
    /// The key for the management API, for the command line.
    pub api_key: Option<String>,
    /// The definitions of tunnels, by name.
    pub tunnels: BTreeMap<String, Map<String, Value>>,
    metadata: Option<String>,
    web_addr: Option<Value>,
    web_allow_hosts: Option<Vec<String>>,
    inspect_db_size: Option<i64>,
    /// Where the service takes agents, `host:port`.
    pub server_addr: Option<String>,
    root_cas: Option<String>,
    connect_timeout: Option<String>,
    heartbeat_interval: Option<String>,
    heartbeat_tolerance: Option<String>,
    remote_management: Option<bool>,
    log_level: Option<Value>,
    log_format: Option<Value>,
    log: Option<Value>,
    console_ui: Option<Value>,
    console_ui_color: Option<Value>,
    proxy_url: Option<Value>,
    dns_resolver_ips: Option<Value>,
    connect_interface: Option<Value>,
    crl_noverify: Option<Value>,
    region: Option<Value>,
    update_channel: Option<Value>,
    update_check: Option<Value>,
}

impl AgentConfig {
    /// Reads files; what a later one says wins, and tunnels are merged by name.
    ///
    /// # Errors
    /// With the file, and line and column where there are any.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut merged = Self::default();
        for path in paths {
            merged.merge(Self::read_one(path)?);
        }
        Ok(merged)
    }

    fn read_one(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::File { path: path.to_owned(), source })?;
        let wrong = |problem: String| Error::Option { option: path.display().to_string(), problem };
        let config: Self = yaml::read(&text).map_err(&wrong)?;
        match config.version {
            Some(CONFIG_VERSION) => Ok(config),
            Some(other) => Err(wrong(format!("version: is {other}, not {CONFIG_VERSION}"))),
            None => Err(wrong(format!("version: is missing; write `version: {CONFIG_VERSION}`"))),
        }
    }

    fn merge(&mut self, later: Self) {
        macro_rules! take {
            ($($field:ident),+) => { $( if later.$field.is_some() { self.$field = later.$field; } )+ };
        }
        take!(
            version,
            authtoken,
            api_key,
            metadata,
            web_addr,
            web_allow_hosts,
            inspect_db_size,
            server_addr,
            root_cas,
            connect_timeout,
            heartbeat_interval,
            heartbeat_tolerance,
            remote_management,
            log_level,
            log_format,
            log,
            console_ui,
            console_ui_color,
            proxy_url,
            dns_resolver_ips,
            connect_interface,
            crl_noverify,
            region,
            update_channel,
            update_check
        );
        self.tunnels.extend(later.tunnels);
    }

    /// The keys that were given and change nothing here.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let options = [
            ("log_level", &self.log_level),
            ("log_format", &self.log_format),
            ("log", &self.log),
            ("console_ui_color", &self.console_ui_color),
            ("proxy_url", &self.proxy_url),
            ("dns_resolver_ips", &self.dns_resolver_ips),
            ("connect_interface", &self.connect_interface),
            ("crl_noverify", &self.crl_noverify),
            ("region", &self.region),
            ("update_channel", &self.update_channel),
            ("update_check", &self.update_check),
        ];
        options.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect()
    }

    /// Whether the console is wanted; none where that is for the terminal to say.
    pub fn console(&self) -> Option<bool> {
        self.console_ui.as_ref().and_then(Value::as_bool)
    }

    /// The options of an agent.
    ///
    /// # Errors
    /// When a key is missing or unusable; the message names it.
    pub fn options(&self) -> Result<AgentOptions, Error> {
        let missing = |option: &str| wrong(option, "is missing");
        let server = self.server_addr.clone().ok_or_else(|| missing("server_addr"))?;
        let token = self.authtoken.clone().ok_or_else(|| missing("authtoken"))?;
        let mut options = AgentOptions::new(server, Secret(token), self.trust()?);
        options.metadata = self.metadata.clone().unwrap_or_default();
        options.web_addr = self.web_address()?;
        options.web_allow_hosts = self.web_allow_hosts.clone().unwrap_or_default();
        options.inspect = CaptureLimit::of_setting(self.inspect_db_size.unwrap_or_default())
            .ok_or_else(|| wrong("inspect_db_size", "must be -1, 0 or a number of bytes"))?;
        for (name, text, slot) in [
            ("connect_timeout", &self.connect_timeout, &mut options.connect_timeout),
            ("heartbeat_interval", &self.heartbeat_interval, &mut options.heartbeat_interval),
            ("heartbeat_tolerance", &self.heartbeat_tolerance, &mut options.heartbeat_tolerance),
        ] {
            if let Some(text) = text {
                *slot =
                    duration(text).ok_or_else(|| wrong(name, "must be a duration such as 10s"))?;
            }
        }
        options.remote_management = self.remote_management.unwrap_or(true);
        Ok(options)
    }

    fn trust(&self) -> Result<Trust, Error> {
        match self.root_cas.as_deref() {
            None | Some("trusted" | "host") => Ok(Trust::System),
            Some(path) => Trust::file(Path::new(path))
                .map_err(|problem| wrong("root_cas", &problem.to_string())),
        }
    }

    fn web_address(&self) -> Result<WebAddress, Error> {
        match &self.web_addr {
            None => Ok(WebAddress::Default),
            Some(Value::Bool(false)) => Ok(WebAddress::Off),
            Some(Value::String(address)) => Ok(WebAddress::At(address.clone())),
            Some(Value::Number(port)) => Ok(WebAddress::At(format!("127.0.0.1:{port}"))),
            Some(_) => Err(wrong("web_addr", "must be host:port or false")),
        }
    }

    /// The definition of a tunnel.
    ///
    /// # Errors
    /// When there is none of that name, or it is wrong.
    pub fn tunnel(&self, name: &str) -> Result<Definition, Error> {
        let option = format!("tunnels.{name}");
        let definition = self.tunnels.get(name).ok_or_else(|| wrong(&option, "is not defined"))?;
        let mut definition = definition.clone();
        definition.insert("name".to_owned(), name.into());
        Definition::read(&definition).map_err(|problems| wrong(&option, &problems.join("; ")))
    }

    /// Finds what is wrong with the options and all tunnels.
    ///
    /// # Errors
    /// With the first problem.
    pub fn check(&self) -> Result<(), Error> {
        let whole = Self {
            server_addr: Some(self.server_addr.clone().unwrap_or_default()),
            authtoken: Some(self.authtoken.clone().unwrap_or_default()),
            ..self.clone()
        };
        whole.options()?;
        match &self.console_ui {
            None | Some(Value::Bool(_)) => {}
            Some(Value::String(text)) if text == "iftty" => {}
            Some(_) => return Err(wrong("console_ui", "must be true, false or iftty")),
        }
        self.tunnels.keys().try_for_each(|name| self.tunnel(name).map(drop))
    }
}

/// Where the configuration file is when nobody says.
pub fn usual_path() -> Option<PathBuf> {
    let home = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    home.map(|home| home.join("ginnel").join("ginnel.yml"))
}

/// Reads `10s`, `1m` or `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at_checked(at)?;
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero())
}

fn wrong(option: &str, problem: &str) -> Error {
    Error::Option { option: option.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<AgentConfig, String> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir();
        let paths = texts.iter().enumerate().map(|(at, text)| {
            let name = format!("ginnel-config-{}-{number}-{at}.yml", std::process::id());
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        let paths = paths.collect::<Vec<_>>();
        let read = AgentConfig::read(&paths).map_err(|error| error.to_string());
        paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        read
    }

    #[test]
    fn later_files_win_and_tunnels_are_merged() {
        let config = read(&[
            "version: 2\nauthtoken: one\nserver_addr: a:1\ntunnels:\n  web: {addr: 80, proto: http}\n",
            "version: 2\nauthtoken: two\ntunnels:\n  raw: {addr: 22, proto: tcp}\n",
        ])
        .unwrap();

        let options = config.options().unwrap();
        assert_eq!((options.authtoken.0.as_str(), options.server_addr.as_str()), ("two", "a:1"));
        assert_eq!(config.tunnels.keys().collect::<Vec<_>>(), ["raw", "web"]);
        assert_eq!(config.tunnel("raw").unwrap().address.shown(), "localhost:22");
        config.check().unwrap();
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place() {
        let problem = read(&["version: 2\nauthtoken: x\nauthtokn: y\n"]).unwrap_err();

        assert!(problem.contains("authtokn"), "{problem}");
        assert!(problem.contains("line 3"), "{problem}");
    }

    #[test]
    fn a_version_is_needed() {
        assert!(read(&["authtoken: x\n"]).unwrap_err().contains("version: is missing"));
        assert!(read(&["version: 3\n"]).unwrap_err().contains("version: is 3"));
    }

    #[test]
    fn wrong_values_name_their_key() {
        for (text, expected) in [
            ("heartbeat_interval: soon", "heartbeat_interval"),
            ("inspect_db_size: -7", "inspect_db_size"),
            ("web_addr: [1]", "web_addr"),
            ("tunnels: {web: {addr: 80, proto: https}}", "tunnels.web"),
        ] {
            let config = read(&[&format!("version: 2\n{text}\n")]).unwrap();
            let problem = config.check().unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn what_has_no_effect_is_known() {
        let config = read(&["version: 2\nregion: eu\nlog_level: debug\n"]).unwrap();

        assert_eq!(config.without_effect(), ["log_level", "region"]);
    }
}
