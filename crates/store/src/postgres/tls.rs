//! TLS to the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use ginnel_net::tls;

use super::options::PostgresOptions;
use crate::{StoreError, StoreResult};

/// Makes connections with TLS whose server is checked against its host name.
#[derive(Clone)]
pub(super) struct PostgresTls(Arc<rustls::ClientConfig>);

impl PostgresTls {
    /// # Errors
    /// When the certificates to trust cannot be read.
    pub(super) fn new(options: &PostgresOptions) -> StoreResult<Self> {
        let roots = match &options.authority {
            Some(path) => {
                let failed = |source| StoreError::File { path: path.clone(), source };
                let pem = std::fs::read(path).map_err(failed)?;
                tls::parse_roots(&pem).map_err(|problem| failed(io::Error::other(problem)))?
            }
            None => tls::system_roots(),
        };
        let failed =
            |error: rustls::Error| StoreError::Server { fault: None, problem: error.to_string() };
        Ok(Self(Arc::new(tls::client_config(roots).map_err(failed)?)))
    }
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = PostgresTlsStream;
    type TlsConnect = HostTls;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<HostTls, io::Error> {
        let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(HostTls { connector: TlsConnector::from(self.0.clone()), host })
    }
}

/// Makes one connection.
pub(super) struct HostTls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl TlsConnect<Socket> for HostTls {
    type Stream = PostgresTlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PostgresTlsStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        let Self { connector, host } = self;
        Box::pin(async move {
            connector.connect(host, stream).await.map(|it| PostgresTlsStream(Box::new(it)))
        })
    }
}

/// A connection with TLS.
pub(super) struct PostgresTlsStream(Box<TlsStream<Socket>>);

impl tokio_postgres::tls::TlsStream for PostgresTlsStream {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is checked, so there is nobody in between.
        ChannelBinding::none()
    }
}

impl AsyncRead for PostgresTlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PostgresTlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
