//! Targets at one fixed address, with or without TLS.

use std::sync::Arc;

use tokio_rustls::TlsConnector;

use crate::gateway::Io;
use crate::gateway::routing::target::{
    BoxFuture, ConnectionReuse, DialError, RouteRef, Target, Visitor,
};
use crate::net::{private, tls};
use crate::reuse::PolledSocket;

/// A target at one fixed address.
pub(crate) struct StaticTarget {
    key: String,
    address: String,
    tls: Option<TlsConnector>,
}

impl StaticTarget {
    /// A target at `host:port`. The APIs of this process are no targets.
    ///
    /// TLS hides the traffic; whose certificate it is is not asked, because nothing in the
    /// configuration could say whom to trust.
    pub(crate) fn new(address: &str, has_tls: bool) -> Result<Self, rustls::Error> {
        let scheme = if has_tls { "tls" } else { "tcp" };
        let config = has_tls.then(tls::unverified_client_config).transpose()?;
        let tls = config.map(|config| TlsConnector::from(Arc::new(config)));
        Ok(Self { key: format!("{scheme}://{address}"), address: address.to_owned(), tls })
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
        Box::pin(async {
            let dialed = async {
                let stream = private::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                let stream = PolledSocket(stream);
                let Some(connector) = &self.tls else { return Ok(Box::new(stream) as Io) };
                let name = tls::server_name(&self.address)?;
                Ok::<_, std::io::Error>(Box::new(connector.connect(name, stream).await?) as Io)
            };
            dialed.await.map_err(|problem| DialError::Unreachable(problem.to_string()))
        })
    }
}
