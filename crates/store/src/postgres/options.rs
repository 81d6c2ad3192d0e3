//! Where the server is, from an address of the form `postgres://user@host:port/database?…`.
//!
//! A password is never part of it, because the command line of a process can be read by everyone on the
//! machine.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use ginnel_api::mask;
use ginnel_base::address::{self, AddressError};
use ginnel_settings::SettingItem;

use super::address::ServerAddress;
use super::{passwords, services};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what was sent may stay unacknowledged before the connection is given up.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(5);

/// How the server is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// No TLS.
    Disable,
    /// TLS to a server that shows a certificate of the authority, for its host.
    VerifyFull,
}

impl TlsMode {
    /// The error says what is wrong with the value.
    fn from_value(value: &str) -> Result<Self, &'static str> {
        match value {
            "disable" => Ok(Self::Disable),
            "verify-full" => Ok(Self::VerifyFull),
            _ => Err("is neither disable nor verify-full"),
        }
    }
}

/// Where a database on PostgreSQL is, and how to get there.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    pub(super) tls: TlsMode,
    /// A file with the certificates to trust; those of the system where there is none.
    pub(super) authority: Option<PathBuf>,
    /// The address without anything secret.
    address: String,
}

/// Why an address of a database cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PostgresAddressError {
    /// It is not of the form of an address.
    #[error(
        "{0:?} is not an address such as postgres://user@host:5432/database; a file of SQLite belongs to \
         `path`, and without both the database is in memory"
    )]
    Malformed(String),
    /// Its port is none.
    #[error("the port in the address of the database is not a number from 1 to 65535")]
    Port,
    /// Its host has more than one reading, or none.
    #[error("the host {host:?} in the address of the database {problem}")]
    Host {
        /// The host.
        host: String,
        /// Why it is refused.
        problem: AddressError,
    },
    /// It has a password.
    #[error(
        "the address of the database has a password, which everyone on this machine could read: leave it \
         out, and use a file (?passfile=PATH or PGPASSFILE, in the form of .pgpass), ?service=NAME of a \
         service file, or PGPASSWORD"
    )]
    Password,
    /// A parameter is not known, or has another value than it may have.
    #[error("{name}={value}: {problem}")]
    Parameter {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is no such parameter; its value is not shown, for it may be a secret.
    #[error(
        "{0} is not a known parameter: host, passfile, service, servicefile, sslmode and sslrootcert are"
    )]
    UnknownParameter(String),
    /// A file with passwords cannot be used.
    #[error("cannot read {path}: {problem}", path = .path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// A service is not described in its file, or in a way that cannot be used.
    #[error("service {name:?} of {path}: {problem}", path = .path.display())]
    Service {
        /// The service.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Traffic beyond this machine would not be protected.
    #[error(
        "sslmode=disable: the host {0} is not this machine; use sslmode=verify-full, with \
         sslrootcert=FILE where the server's authority is not one of the system's"
    )]
    Unprotected(String),
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresOptions").field(&self.address).finish()
    }
}

/// The address, without anything secret.
impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// True for what is meant as the address of a database on PostgreSQL.
pub fn is_postgres_address(text: &str) -> bool {
    text.starts_with("postgres:") || text.starts_with("postgresql:")
}

impl FromStr for PostgresOptions {
    type Err = PostgresAddressError;

    fn from_str(address: &str) -> Result<Self, Self::Err> {
        let malformed = || PostgresAddressError::Malformed(without_password(address));
        let server = ServerAddress::parse(address).ok_or_else(malformed)?;
        if server.has_password {
            return Err(PostgresAddressError::Password);
        }
        let mut parameters = Parameters::from_address(&server).ok_or_else(malformed)??;
        let service =
            services::find_service(parameters.service.take(), parameters.service_file.take())?;
        if let Some(service) = &service {
            parameters.fill_in(&service.parameters);
        }
        let config = parameters.to_config().ok_or_else(|| match &service {
            Some(service) => service.error("it has no host, user or dbname, nor has the address"),
            None => malformed(),
        })?;
        let tls = tls_mode(&config, parameters.tls)?;
        let mut options =
            Self { config, tls, authority: parameters.authority, address: address.to_owned() };
        let password = match parameters.password {
            None => passwords::find_password(&options.config, parameters.password_file)?,
            password => password,
        };
        if let Some(password) = password {
            options.config.password(password);
        }
        let mode = match tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::VerifyFull => SslMode::Require,
        };
        options.config.ssl_mode(mode).connect_timeout(CONNECT_TIMEOUT);
        options.config.tcp_user_timeout(TCP_USER_TIMEOUT).application_name("ginnel");
        // A server that follows another may be behind it, or left behind.
        options.config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(options)
    }
}

/// What an address or a service says of a server.
#[derive(Default)]
pub(super) struct Parameters {
    host: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    database: Option<String>,
    tls: Option<TlsMode>,
    authority: Option<PathBuf>,
    /// Of a service alone.
    pub(super) password: Option<String>,
    password_file: Option<PathBuf>,
    service: Option<String>,
    service_file: Option<PathBuf>,
}

impl Parameters {
    /// None when a part is not UTF-8.
    fn from_address(address: &ServerAddress<'_>) -> Option<Result<Self, PostgresAddressError>> {
        let decode = |text: &str| {
            let text = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
            Some(Some(text.into_owned()).filter(|text| !text.is_empty()))
        };
        let (host, user) = (decode(address.host)?, decode(address.user)?);
        let database = decode(address.path.trim_start_matches('/'))?;
        let read = || {
            let host = host.map(|host| parse_host(&host)).transpose()?;
            let port = address.port.filter(|port| !port.is_empty()).map(parse_port).transpose()?;
            let mut parameters = Self { host, port, user, database, ..Self::default() };
            for (name, value) in address.query_parameters() {
                parameters.set_value(&name, &value)?;
            }
            Ok(parameters)
        };
        Some(read())
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<(), PostgresAddressError> {
        match name {
            "host" => self.host = Some(parse_host(value)?),
            "user" => self.user = Some(value.to_owned()),
            "sslrootcert" => self.authority = Some(value.into()),
            "passfile" => self.password_file = Some(value.into()),
            "password" => return Err(PostgresAddressError::Password),
            "service" => self.service = Some(value.to_owned()),
            "servicefile" => self.service_file = Some(value.into()),
            "sslmode" => {
                let wrong = |problem| {
                    let (name, value) = (name.to_owned(), value.to_owned());
                    PostgresAddressError::Parameter { name, value, problem }
                };
                self.tls = Some(TlsMode::from_value(value).map_err(wrong)?);
            }
            // It may be a password under another name.
            _ => return Err(PostgresAddressError::UnknownParameter(name.to_owned())),
        }
        Ok(())
    }

    /// Takes a line of a service; gives what is wrong with it, without the value.
    pub(super) fn set_from_service(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "host" => {
                let wrong = |error| match error {
                    PostgresAddressError::Host { problem, .. } => format!("host {problem}"),
                    error => error.to_string(),
                };
                self.host = Some(parse_host(value).map_err(wrong)?);
            }
            "port" => self.port = Some(parse_port(value).map_err(|_| "port is not a port")?),
            "user" => self.user = Some(value.to_owned()),
            "dbname" => self.database = Some(value.to_owned()),
            "password" => self.password = Some(value.to_owned()),
            "passfile" => self.password_file = Some(value.into()),
            "sslrootcert" => self.authority = Some(value.into()),
            "sslmode" => {
                let wrong = |problem| format!("sslmode {problem}");
                self.tls = Some(TlsMode::from_value(value).map_err(wrong)?);
            }
            _ => {
                return Err(format!(
                    "{name} is not supported: host, port, user, dbname, password, passfile, sslmode and \
                     sslrootcert are"
                ));
            }
        }
        Ok(())
    }

    /// Takes from a service what the address leaves out.
    fn fill_in(&mut self, service: &Self) {
        fn fill_missing<T: Clone>(value: &mut Option<T>, of_service: &Option<T>) {
            *value = value.take().or_else(|| of_service.clone());
        }
        if self.password_file.is_none() {
            self.password.clone_from(&service.password);
        }
        fill_missing(&mut self.host, &service.host);
        fill_missing(&mut self.port, &service.port);
        fill_missing(&mut self.user, &service.user);
        fill_missing(&mut self.database, &service.database);
        fill_missing(&mut self.tls, &service.tls);
        fill_missing(&mut self.authority, &service.authority);
        fill_missing(&mut self.password_file, &service.password_file);
    }

    /// None where nothing says which host, user or database it is.
    fn to_config(&self) -> Option<Config> {
        let user = self.user.clone().or_else(|| std::env::var("PGUSER").ok())?;
        let mut config = Config::new();
        config.host(self.host.as_ref()?).port(self.port.unwrap_or(5432));
        config.user(user).dbname(self.database.as_ref()?);
        Some(config)
    }
}

/// Beyond this machine, TLS is the rule and cannot be switched off.
fn tls_mode(config: &Config, asked: Option<TlsMode>) -> Result<TlsMode, PostgresAddressError> {
    let remote = config.get_hosts().iter().find_map(|host| match host {
        Host::Tcp(host) if !is_loopback(host) => Some(host.clone()),
        _ => None,
    });
    match (asked, remote) {
        (Some(TlsMode::Disable), Some(host)) => Err(PostgresAddressError::Unprotected(host)),
        (Some(mode), _) => Ok(mode),
        (None, Some(_)) => Ok(TlsMode::VerifyFull),
        (None, None) => Ok(TlsMode::Disable),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Parses a host or the folder of a socket.
fn parse_host(text: &str) -> Result<String, PostgresAddressError> {
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    let host = address::Host::parse(text);
    let wrong = |problem| PostgresAddressError::Host { host: text.to_owned(), problem };
    Ok(host.map_err(wrong)?.unbracketed())
}

fn parse_port(text: &str) -> Result<u16, PostgresAddressError> {
    let port = address::parse_port(text).ok().filter(|port| *port != 0);
    port.ok_or(PostgresAddressError::Port)
}

/// The address as it may be shown: everything before the last `@` may be a password, and all behind its name.
fn without_password(address: &str) -> String {
    let shown = mask::login(address);
    match shown.to_ascii_lowercase().find("pass") {
        Some(start) => format!("{}{}", shown.get(..start).unwrap_or_default(), mask::MASK),
        None => shown,
    }
}

impl SettingItem for PostgresOptions {
    fn from_text(text: &OsStr) -> Result<Self, String> {
        text.to_string_lossy().parse::<Self>().map_err(|error| error.to_string())
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str) -> Result<PostgresOptions, PostgresAddressError> {
        address.parse()
    }

    #[test]
    fn an_address_says_where_the_database_is() {
        let options = parse("postgres://me@db.example:6000/tunnels?sslrootcert=/ca.pem").unwrap();

        assert_eq!(options.config.get_hosts(), [Host::Tcp("db.example".to_owned())]);
        assert_eq!(options.config.get_ports(), [6000]);
        assert_eq!(options.config.get_dbname(), Some("tunnels"));
        assert_eq!(options.tls, TlsMode::VerifyFull);
        assert_eq!(options.authority, Some("/ca.pem".into()));
    }

    #[test]
    fn a_password_is_refused_and_not_shown() {
        for address in [
            "postgres://me:secret@localhost/tunnels",
            "postgres://me@localhost/tunnels?password=secret",
        ] {
            let error = parse(address).unwrap_err();
            assert_eq!(error, PostgresAddressError::Password);
            assert!(!error.to_string().contains("secret") && error.to_string().contains("PGPASS"));
        }
        let error = parse("postgres://me:secret@:5/x").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn a_host_has_one_reading() {
        for (address, host) in [
            ("postgres://me@DB.Example./x", "db.example"),
            ("postgres://me@b\u{fc}cher.example/x", "xn--bcher-kva.example"),
            ("postgres://me@[2001:DB8::1]:5432/x", "2001:db8::1"),
            ("postgres://me@/x?host=db.example", "db.example"),
        ] {
            let options = parse(address).unwrap();
            assert_eq!(options.config.get_hosts(), [Host::Tcp(host.to_owned())], "{address}");
        }
        for address in [
            "postgres://me@127.1/x",
            "postgres://me@0x7f000001/x",
            "postgres://me@2130706433/x",
            "postgres://me@one.example,two.example/x",
            "postgres://me@db%0a.example/x",
            "postgres://me@/x?host=127.1",
            "postgres://me@[fe80::1%25eth0]/x",
        ] {
            let refused = parse(address).unwrap_err();
            assert!(matches!(refused, PostgresAddressError::Host { .. }), "{address}: {refused}");
        }
        for address in [
            "postgres://me@db.example:0/x",
            "postgres://me@db.example:05432/x",
            "postgres://me@db.example:99999/x",
            "postgres://me@db.example:+5432/x",
        ] {
            assert_eq!(parse(address).unwrap_err(), PostgresAddressError::Port, "{address}");
        }
        for address in [
            "postgres://me@db.example/x\n",
            "postgres://me@db.example/x#part",
            "postgres:me@db.example/x",
            "postgres:\\\\me@db.example/x",
            "postgres://me@you@db.example/x",
        ] {
            let refused = parse(address).unwrap_err();
            assert!(matches!(refused, PostgresAddressError::Malformed(_)), "{address}: {refused}");
        }
    }

    #[test]
    fn tls_is_the_rule_beyond_this_machine() {
        for host in ["localhost", "127.0.0.1", "[::1]", "%2Frun%2Fpostgresql"] {
            let options = parse(&format!("postgres://me@{host}/tunnels")).unwrap();
            assert_eq!(options.tls, TlsMode::Disable, "{host}");
        }
        let refused = parse("postgres://me@db.example/tunnels?sslmode=disable").unwrap_err();
        assert_eq!(refused, PostgresAddressError::Unprotected("db.example".to_owned()));
    }

    #[test]
    fn a_service_says_what_the_address_leaves_out() {
        let address = ServerAddress::parse("postgres:///?service=db&user=me&passfile=/mine");
        let mut parameters = Parameters::from_address(&address.unwrap()).unwrap().unwrap();
        let mut service = Parameters::default();
        for (name, value) in [
            ("host", "db.example"),
            ("port", "6000"),
            ("user", "you"),
            ("dbname", "tunnels"),
            ("password", "secret"),
        ] {
            service.set_from_service(name, value).unwrap();
        }
        assert!(parameters.to_config().is_none(), "which host and database is not said");

        parameters.fill_in(&service);

        let config = parameters.to_config().unwrap();
        assert_eq!(config.get_hosts(), [Host::Tcp("db.example".to_owned())]);
        assert_eq!(config.get_ports(), [6000]);
        assert_eq!(config.get_user(), Some("me"), "the address counts");
        assert_eq!(config.get_dbname(), Some("tunnels"));
        assert_eq!(parameters.password, None, "of a file that the address names");
        assert_eq!(parameters.service.as_deref(), Some("db"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for address in [
            "postgres://me@localhost/tunnels?sslmode=prefer",
            "postgres://me@localhost/tunnels?sslmod=disable",
            "postgres://me@localhost",
            "mysql://me@localhost/tunnels",
        ] {
            assert!(parse(address).is_err(), "{address}");
        }
    }
}
