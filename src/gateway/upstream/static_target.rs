//! Targets at one fixed address, with or without TLS.

use std::sync::Arc;

use tokio_rustls::TlsConnector;

use crate::base::address::{AddressError, HostPort};
use crate::gateway::Io;
use crate::gateway::routing::target::{
    BoxFuture, ConnectionReuse, DialError, RouteRef, Target, Visitor,
};
use crate::net::{private, tls};
use crate::reuse::PolledSocket;

/// A target at one fixed address.
pub(crate) struct StaticTarget {
    key: String,
    address: Result<HostPort, AddressError>,
    tls: Option<TlsConnector>,
}

impl StaticTarget {
    /// A target at `host:port`. The APIs of this process cannot be targets. An address that older versions stored,
    /// and that is not one, cannot be dialled.
    ///
    /// TLS hides the traffic; whose certificate it is is not asked, because nothing in the
    /// configuration could say whom to trust.
    pub(crate) fn new(address: &str, has_tls: bool) -> Result<Self, rustls::Error> {
        let scheme = if has_tls { "tls" } else { "tcp" };
        let config = has_tls.then(tls::unverified_client_config).transpose()?;
        let tls = config.map(|config| TlsConnector::from(Arc::new(config)));
        Ok(Self { key: format!("{scheme}://{address}"), address: HostPort::parse(address), tls })
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
                let address =
                    self.address.as_ref().map_err(|it| std::io::Error::other(it.clone()))?;
                let stream = private::connect(address).await?;
                stream.set_nodelay(true)?;
                let stream = PolledSocket(stream);
                let Some(connector) = &self.tls else { return Ok(Box::new(stream) as Io) };
                let name = tls::server_name(&address.host)?;
                Ok::<_, std::io::Error>(Box::new(connector.connect(name, stream).await?) as Io)
            };
            dialed.await.map_err(|problem| DialError::Unreachable(problem.to_string()))
        })
    }
}
