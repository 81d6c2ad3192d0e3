//! Targets at one fixed address, with or without TLS.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsConnector;

use ginnel_base::address::{AddressError, Host, HostPort};
use ginnel_base::hex;
use ginnel_http1::reuse::PolledSocket;
use ginnel_net::{DialRole, dial_host, tls};

use crate::Io;
use crate::message::BoxFuture;
use crate::message::visitor::{RouteRef, Visitor};
use crate::upstream::target::{ConnectionReuse, DialError, Target};

/// TLS to a target, as a static backend has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticTls<'a> {
    /// If true, the certificate of the target is verified.
    pub verify: bool,
    /// The certificates to trust, in PEM. If empty, those of the system.
    pub ca: &'a str,
    /// The name in SNI and in the certificate. If empty, the host of the address.
    pub server_name: &'a str,
}

/// Reasons why a target cannot be made from its settings.
#[derive(Debug, thiserror::Error)]
pub enum StaticTargetError {
    #[error("tls.ca: {0}")]
    Authorities(String),
    #[error("tls.server_name: {0:?} {1}")]
    ServerName(String, AddressError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// A target at one fixed address.
pub struct StaticTarget {
    key: String,
    address: HostPort,
    tls: Option<TargetTls>,
}

/// The client side of TLS to a target.
struct TargetTls {
    connector: TlsConnector,
    /// Unset if it is the host of the address.
    server_name: Option<Host>,
    /// True from the first certificate that was refused until one is accepted.
    is_refused: AtomicBool,
}

impl StaticTarget {
    /// Makes a target at `host:port`. The APIs of this process cannot be targets.
    pub fn new(address: HostPort, tls: Option<StaticTls<'_>>) -> Result<Self, StaticTargetError> {
        let key = target_key(&address, tls);
        let tls = tls.map(TargetTls::new).transpose()?;
        Ok(Self { key, address, tls })
    }

    async fn connect(&self) -> io::Result<Io> {
        let stream = dial_host(DialRole::StaticBackend, &self.address).await?;
        stream.set_nodelay(true)?;
        let stream = PolledSocket(stream);
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => tls.connect(stream, &self.address).await,
        }
    }
}

impl Target for StaticTarget {
    fn key(&self) -> &str {
        &self.key
    }

    fn reuse(&self) -> ConnectionReuse {
        ConnectionReuse::Everybody
    }

    fn dial<'a>(&'a self, _: &'a Visitor, _: &'a RouteRef) -> BoxFuture<'a, Result<Io, DialError>> {
        Box::pin(async { self.connect().await.map_err(DialError::from) })
    }
}

impl TargetTls {
    fn new(tls: StaticTls<'_>) -> Result<Self, StaticTargetError> {
        let config = match tls {
            StaticTls { verify: false, .. } => Arc::new(tls::unverified_client_config()?),
            StaticTls { ca: "", .. } => system_config()?,
            StaticTls { ca, .. } => {
                let config = tls::client_config_trusting(ca.as_bytes());
                Arc::new(config.map_err(StaticTargetError::Authorities)?)
            }
        };
        let name = Some(tls.server_name).filter(|name| !name.is_empty());
        let server_name = name.map(|name| {
            Host::parse(name)
                .map_err(|problem| StaticTargetError::ServerName(name.to_owned(), problem))
        });
        Ok(Self {
            connector: TlsConnector::from(config),
            server_name: server_name.transpose()?,
            is_refused: AtomicBool::default(),
        })
    }

    async fn connect(&self, stream: PolledSocket, address: &HostPort) -> io::Result<Io> {
        let host = self.server_name.as_ref().unwrap_or(&address.host);
        let name: ServerName<'static> = tls::server_name(host)?;
        match self.connector.connect(name, stream).await {
            Ok(stream) => {
                self.is_refused.store(false, Ordering::Relaxed);
                Ok(Box::new(stream))
            }
            Err(error) => Err(self.explain_error(error, address, host)),
        }
    }

    /// Describes a refused certificate, and logs it once until the target has another one.
    fn explain_error(&self, error: io::Error, address: &HostPort, host: &Host) -> io::Error {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let Some(rustls::Error::InvalidCertificate(problem)) = inner else { return error };
        let problem = certificate_problem(problem, host);
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                backend = %address,
                reason = problem,
                "static backend refused: set tls.ca or tls.server_name, or tls.verify to false"
            );
        }
        io::Error::new(error.kind(), format!("the certificate of {address} {problem}"))
    }
}

fn certificate_problem(problem: &CertificateError, host: &Host) -> String {
    match problem {
        CertificateError::UnknownIssuer => "is not signed by a trusted authority".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("is not for {host}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired".to_owned()
        }
        problem => format!("cannot be verified: {problem}"),
    }
}

/// Returns a name that targets share only if they share all settings, because connections are reused by it.
fn target_key(address: &HostPort, tls: Option<StaticTls<'_>>) -> String {
    match tls {
        None => format!("tcp://{address}"),
        Some(StaticTls { verify: false, server_name: "", .. }) => format!("tls://{address}"),
        Some(StaticTls { verify: false, server_name, .. }) => {
            format!("tls://{address} as {server_name}")
        }
        Some(StaticTls { verify: true, ca, server_name }) => {
            let trusted = hex(Sha256::digest(ca.as_bytes()));
            format!("tls://{address} as {server_name} verified by {trusted}")
        }
    }
}

/// Returns the configuration that trusts the authorities of the system, which are read once.
fn system_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let config = Arc::new(tls::client_config(tls::system_roots())?);
    Ok(CONFIG.get_or_init(|| config).clone())
}
