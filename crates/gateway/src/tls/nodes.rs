//! TLS between the nodes of one database: each shows the others a certificate of their authority.
//!
//! Only nodes have certificates that a client may show, because the authority signs no others; a
//! certificate from a file, uploaded or obtained plays no part here.

use std::sync::Arc;

use rcgen::{ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DEFAULT_VERSIONS, RootCertStore, ServerConfig};

use ginnel_net::tls;

use crate::tls::authority::LocalAuthority;
use crate::tls::certificate_error::CertificateError;
use crate::tls::leaf::{certified_key, leaf_params};

/// How long the certificate of a node is valid. Its key is never stored, so it ends with the process.
const VALID_DAYS: u64 = 3650;

/// How a node speaks TLS with the others.
pub struct NodeTls {
    /// To connect to a node, whose name the certificate must be for.
    pub client: Arc<ClientConfig>,
    /// To be connected to by nodes, and by nobody else.
    pub server: Arc<ServerConfig>,
}

impl LocalAuthority {
    /// How the node with this name speaks TLS with those that have the same authority; `protocols` are
    /// offered by ALPN, best first.
    ///
    /// # Errors
    /// When the name cannot be in a certificate.
    pub fn node_tls(&self, name: &str, protocols: &[&str]) -> Result<NodeTls, CertificateError> {
        let identity = self.node_certificate(name)?;
        let roots = self.root_store()?;
        let protocols: Vec<_> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut client = tls::client_config_as(roots, identity.clone())?;
        client.alpn_protocols.clone_from(&protocols);
        let nodes = tls::only_signed_by(self.pem().as_bytes()).map_err(rustls::Error::General)?;
        let identity = Arc::new(SingleCertAndKey::from(identity));
        let mut server = tls::server_config(DEFAULT_VERSIONS, nodes, identity)?;
        server.alpn_protocols = protocols;
        Ok(NodeTls { client: Arc::new(client), server: Arc::new(server) })
    }

    /// A certificate for a node with a key of its own, which a client may show as well as a server.
    fn node_certificate(&self, name: &str) -> Result<Arc<CertifiedKey>, CertificateError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let params = leaf_params(&[name.to_owned()], &usages, VALID_DAYS)?;
        certified_key(&params.signed_by(&key, &self.issuer)?, &key)
    }

    /// The authority alone.
    fn root_store(&self) -> Result<RootCertStore, CertificateError> {
        Ok(tls::parse_roots(self.pem().as_bytes()).map_err(rustls::Error::General)?)
    }
}
