//! Upstreams that do as a test says, and visitors who speak in bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ginnel_api::EndpointOptions;
use ginnel_api::remote::edges::modules::TrafficPolicyDocument;
use ginnel_gateway::{
    BoxFuture, ConnectionReuse, DialError, EndpointSpec, Gateway, GatewaySettings, Io, Proto,
    PublicEndpoint, RouteRef, Target, Visitor, tls::LocalAuthority,
};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A target that is reached over TCP as if by an agent, and counts how often.
pub struct Direct {
    pub key: String,
    pub address: SocketAddr,
    pub reusable: bool,
    pub dialed: AtomicUsize,
}

impl Direct {
    pub fn to(address: SocketAddr) -> Arc<Self> {
        let dialed = AtomicUsize::default();
        Arc::new(Self { key: address.to_string(), address, reusable: true, dialed })
    }

    pub fn dialed(&self) -> usize {
        self.dialed.load(Ordering::Relaxed)
    }
}

impl Target for Direct {
    fn key(&self) -> &str {
        &self.key
    }

    fn reuse(&self) -> ConnectionReuse {
        if self.reusable { ConnectionReuse::Everybody } else { ConnectionReuse::Nobody }
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn dial<'a>(&'a self, _: &'a Visitor, _: &'a RouteRef) -> BoxFuture<'a, Result<Io, DialError>> {
        self.dialed.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            let stream = TcpStream::connect(self.address).await;
            let stream = stream.map_err(|it| DialError::Unreachable(it.to_string()))?;
            Ok(Box::new(stream) as Io)
        })
    }
}

/// A public side without a management API.
pub async fn edges() -> Gateway {
    edges_with(GatewaySettings::default()).await
}

pub async fn edges_with(settings: GatewaySettings) -> Gateway {
    Gateway::start(settings, LocalAuthority::open(None).unwrap()).await.unwrap()
}

/// An endpoint of its own for an upstream.
pub async fn bound(edges: &Gateway, target: Arc<dyn Target>) -> PublicEndpoint {
    edges.bind_endpoint(EndpointSpec::any(Proto::Http), target).await.unwrap()
}

/// The address in a URL.
pub fn host_of(url: &str) -> String {
    url.split_once("://").unwrap().1.to_owned()
}

/// An upstream that serves each connection with the same function.
pub async fn upstream<F, R>(serve: F) -> SocketAddr
where
    F: Fn(Peer) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(Peer::new(stream)));
        }
    });
    address
}

/// An upstream that answers every request with its own bytes, head and body.
pub async fn mirror() -> SocketAddr {
    upstream(|mut peer| async move {
        while let Some((head, body)) = peer.request().await {
            let said = format!("{head}{body}");
            peer.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len()))
                .await;
        }
    })
    .await
}

/// One end of a connection, in bytes.
pub struct Peer(pub BufReader<TcpStream>);

impl Peer {
    pub fn new(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub async fn to(endpoint: &PublicEndpoint) -> Self {
        Self::at(&host_of(endpoint.url())).await
    }

    pub async fn at(host: &str) -> Self {
        Self::new(TcpStream::connect(host).await.unwrap())
    }

    pub async fn say(&mut self, text: &str) {
        self.say_bytes(text.as_bytes()).await;
    }

    pub async fn say_bytes(&mut self, bytes: &[u8]) {
        // Who has gone does not listen.
        let _ = self.0.write_all(bytes).await;
        let _ = self.0.flush().await;
    }

    /// Sends a FIN, and still receives.
    pub async fn end_requests(&mut self) {
        self.0.shutdown().await.unwrap();
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        self.0.into_inner().set_zero_linger().unwrap();
    }

    /// Up to and with the empty line; what there is when the other side closes.
    pub async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if soon(self.0.read_line(&mut head)).await.unwrap_or(0) == 0 {
                break;
            }
        }
        head
    }

    pub async fn exactly(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        soon(self.0.read_exact(&mut bytes)).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Everything until the other side closes.
    pub async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = soon(self.0.read_to_end(&mut bytes)).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A head and the body that belongs to it, with its framing; none when the other side closes.
    pub async fn request(&mut self) -> Option<(String, String)> {
        let head = self.head().await;
        if head.is_empty() {
            return None;
        }
        let body = if let Some(length) = header(&head, "content-length") {
            self.exactly(length.parse().unwrap()).await
        } else if header(&head, "transfer-encoding").is_some() {
            self.chunks().await
        } else {
            String::new()
        };
        Some((head, body))
    }

    /// An answer to a request that is not `HEAD`.
    pub async fn answer(&mut self) -> (String, String) {
        self.request().await.unwrap_or_default()
    }

    async fn chunks(&mut self) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            soon(self.0.read_line(&mut line)).await.unwrap();
            let size = line.split([';', ' ', '\t', '\r']).next().unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            all += &line;
            if size == 0 {
                return all + &self.trailers().await;
            }
            all += &self.exactly(size + 2).await;
        }
    }

    async fn trailers(&mut self) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            soon(self.0.read_line(&mut line)).await.unwrap();
            all += &line;
            if line == "\r\n" {
                return all;
            }
        }
    }
}

/// The value of a header in a head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// What must happen within a time that even a busy machine keeps.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("in time")
}

/// The options of an endpoint, by the members of a bind.
pub fn options_of(members: serde_json::Value) -> EndpointOptions {
    EndpointOptions::decode("http", members.as_object().unwrap()).unwrap()
}

/// A traffic policy from its text.
pub fn document(text: &str) -> TrafficPolicyDocument {
    TrafficPolicyDocument { enabled: None, value: Some(text.to_owned()) }
}
