//! Why a service did not start.

use std::io::ErrorKind;

use ginnel_api::mask;
use ginnel_gateway::GatewayError;
use ginnel_gateway::tls::certificate_error::CertificateError;

use super::store;

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process listens on the address.
    #[error("{0} is already in use")]
    AddressInUse(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address, `host:port`.
        address: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Nobody can watch the service at the address.
    #[error("admin_addr: cannot listen on {address}: {source}")]
    AdminAddress {
        /// The address, `host:port`.
        address: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Other nodes cannot be listened for at the address.
    #[error("{key}: cannot listen on {address}: {source}")]
    PeerAddress {
        /// The key of the setting.
        key: &'static str,
        /// The address, `host:port`.
        address: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no folder for backups.
    #[error("{}: backups go to a folder that exists", mask::path(.0))]
    BackupFolder(std::path::PathBuf),
    /// Both a file and a server are set for the database.
    #[error("path and store exclude each other: the database is in a file, or on PostgreSQL")]
    TwoStores,
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// Another node of the cluster has the name, and lives.
    #[error(
        "node_name: another node of this database is called {name:?} and runs since {started_at}: \
         stop it, or choose another --node-name"
    )]
    NodeNameTaken {
        /// The name.
        name: String,
        /// When the other one was started, by its own clock.
        started_at: String,
    },
    /// The files of the local certificate authority cannot be used.
    #[error(transparent)]
    Authority(CertificateError),
    /// The certificate that was given cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The admin key that was given does not have the form of an API key.
    #[error("the admin key is not of the form <27 characters>_<21 characters>")]
    MalformedAdminKey,
    /// The database has a key already, and the one that was given is none of its admin keys.
    #[error("the admin key is not one of this database")]
    UnknownAdminKey,
    /// The authtoken that was given does not have the form of one.
    #[error("the authtoken is not of the form <27 characters>_<21 characters>")]
    MalformedAuthtoken,
    /// The database has credentials already, and the authtoken that was given is none of them.
    #[error("the authtoken is not one of this database")]
    UnknownAuthtoken,
    /// A file with a secret cannot be read.
    #[error("cannot read {path}: {source}", path = mask::path(.path))]
    SecretFile {
        /// The file.
        path: std::path::PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file for a token that was made cannot be written.
    #[error("cannot write {path}: {source}", path = mask::path(.path))]
    TokenFile {
        /// The file.
        path: std::path::PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Certificates cannot be obtained by ACME with these options.
    #[error("certificates by ACME: {0}")]
    Acme(String),
    /// The value of a setting cannot be used, or not with another one.
    #[error("{key}: {problem}")]
    Setting {
        /// The key of the setting.
        key: &'static str,
        /// What is wrong, with the value.
        problem: String,
    },
    /// A limit allows no connection.
    #[error("{0}: 0 connections are too few; at least 1 is needed")]
    ConnectionLimit(&'static str),
    /// The rate limit allows no request, or has no window.
    #[error("a rate limit takes at least one request and a window above zero")]
    RateLimit,
}

impl Error {
    pub fn invalid_setting(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Setting { key, problem: problem.into() }
    }

    /// The setting that has to change, where it is one.
    pub fn setting_key(&self) -> Option<&'static str> {
        Some(match self {
            Self::Setting { key, .. }
            | Self::PeerAddress { key, .. }
            | Self::ConnectionLimit(key) => key,
            Self::BackupFolder(_) => "backup.to",
            Self::MalformedAdminKey => "admin_key",
            Self::MalformedAuthtoken => "authtoken",
            Self::RateLimit => "rate_limit",
            Self::TwoStores => "store",
            _ => return None,
        })
    }

    /// Says which setting it is that names the address, where it is one of these.
    pub fn with_listener_setting(self, listeners: &[(&'static str, String)]) -> Self {
        let named = |address: String| match listeners.iter().find(|(_, it)| *it == address) {
            Some((key, _)) => format!("{key} {address}"),
            None => address,
        };
        match self {
            Self::AddressInUse(address) => Self::AddressInUse(named(address)),
            Self::Bind { address, source } => Self::Bind { address: named(address), source },
            error => error,
        }
    }
}

impl From<GatewayError> for Error {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Listen { address, source } if source.kind() == ErrorKind::AddrInUse => {
                Self::AddressInUse(address)
            }
            GatewayError::Listen { address, source } => Self::Bind { address, source },
            GatewayError::Certificate(error) => Self::Certificate(error),
        }
    }
}
