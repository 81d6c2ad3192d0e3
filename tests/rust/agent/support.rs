//! A service, an agent and a local service, with real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ginnel_agent::{Agent, AgentOptions, SessionState, Trust, WebAddress};
use ginnel_mux::MuxSession;
use ginnel_mux::protocol::message::{Auth, AuthExtra};
use ginnel_mux::protocol::rpc;
use ginnel_service::{self as service, Service};

use reqwest::{Client, Method};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::service::support::client;

/// Longer than anything here takes, and short enough to end a test that hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A service, an agent, and a local service that answers with what it was asked.
pub struct Whole {
    pub service: Service,
    pub agent: Agent,
    pub http: Client,
    pub local: u16,
}

impl Whole {
    pub async fn start() -> Self {
        Self::with(service::Options::default()).await
    }

    pub async fn with(options: service::Options) -> Self {
        let service = Service::start(options).await.unwrap();
        let agent = agent_of(&service).await;
        Self { service, agent, http: client(), local: mirror().await }
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let url = format!("{}{path}", self.agent.api_url().unwrap());
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.bytes().await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub async fn start_tunnel(&self, mut definition: Value) -> (u16, Value) {
        if definition.get("addr").is_none() {
            definition["addr"] = self.local.into();
        }
        self.call(Method::POST, "/api/tunnels", Some(definition)).await
    }

    /// Creates something at the management API.
    pub async fn create(&self, path: &str, body: Value) -> Value {
        let (status, made) = self.manage(Method::POST, path, body).await;
        assert_eq!(status, 201, "{made}");
        made
    }

    /// Replaces something at the management API.
    pub async fn replace(&self, path: &str, body: Value) {
        let (status, replaced) = self.manage(Method::PUT, path, body).await;
        assert_eq!(status, 200, "{replaced}");
    }

    async fn manage(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let key = self.service.api_key().unwrap().0.clone();
        let url = format!("{}{path}", self.service.url());
        let request = self.http.request(method, url).bearer_auth(key);
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        (status, serde_json::from_str(&text).unwrap())
    }

    pub async fn web(&self) -> String {
        let (status, tunnel) = self.start_tunnel(json!({"name": "web", "proto": "http"})).await;
        assert_eq!(status, 201, "{tunnel}");
        tunnel["public_url"].as_str().unwrap().to_owned()
    }
}

pub async fn agent_of(service: &Service) -> Agent {
    let agent = Agent::start(options_of(service)).await.unwrap();
    online(&agent).await;
    agent
}

/// How an agent of this service is to run.
pub fn options_of(service: &Service) -> AgentOptions {
    let trust = Trust::Pem(service.gateway().authority().pem().as_bytes().to_vec());
    let token = service.authtoken().cloned().unwrap();
    let server = service.agent_address().map(ginnel_base::address::HostPort::from);
    let mut options = AgentOptions::new(server, token, trust);
    options.web_addr =
        WebAddress::At(ginnel_base::address::HostPort::parse_to_listen("127.0.0.1:0").unwrap());
    options
}

pub async fn online(agent: &Agent) {
    let mut state = agent.watch_state();
    let online = state.wait_for(|state| matches!(state, SessionState::Online(_)));
    tokio::time::timeout(PATIENCE, online).await.expect("online in time").unwrap();
}

/// A local web service that answers with the request it got, whole.
pub async fn mirror() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = Vec::new();
                while let Some(bytes) = message(&mut stream, &mut buffer).await {
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
                    let _ = stream.write_all(&[head.as_bytes(), &bytes].concat()).await;
                }
            });
        }
    });
    port
}

/// Connects to the port for agents.
pub async fn dial(service: &Service) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let pem = service.gateway().authority().pem();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address: SocketAddr = service.agent_address().unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Logs in as an agent of another make.
pub async fn log_in(service: &Service, session: &MuxSession) {
    let auth = Auth {
        version: vec!["3".to_owned(), "2".to_owned()],
        extra: AuthExtra {
            auth_token: service.authtoken().unwrap().0.as_str().into(),
            client_type: "library/python".to_owned(),
            ..AuthExtra::default()
        },
        ..Auth::default()
    };
    let answer = rpc::call(session, &auth, PATIENCE).await.unwrap();
    assert!(answer.failure().is_none());
}

/// The next request or answer with all of its body, which has a length or is none; nothing at the
/// end of the connection. What comes after it stays in the buffer.
pub async fn message(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.map_or(0, |rest| rest.split('\r').next().unwrap().parse().unwrap());
            if buffer.len() >= end + 4 + length {
                return Some(buffer.drain(..end + 4 + length).collect());
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
