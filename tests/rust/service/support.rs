//! A service and a plain way to talk to it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ginnel_gateway::GatewaySettings;
use ginnel_service::{ManagementSettings, Options, Service, StoreSettings};

use reqwest::{Client, Method};
use serde_json::Value;

/// A service with its admin key and an HTTP client.
pub struct Running {
    pub service: Service,
    pub key: String,
    pub http: Client,
}

/// What a service answered.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub json: Value,
}

impl Running {
    /// A service in memory.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// A service with a new store on an engine.
    pub async fn on(engine: crate::engines::Engine) -> Self {
        Self::with(engine.options()).await
    }

    pub async fn with(options: Options) -> Self {
        Self::over(client(), options).await
    }

    /// A service that is called through a client that others use as well.
    pub async fn over(http: Client, options: Options) -> Self {
        let service = Service::start(options).await.unwrap();
        let key = service.api_key().map(|key| key.0.clone()).unwrap_or_default();
        Self { service, key, http }
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Reply {
        self.call_as(&self.key, method, path, body).await
    }

    pub async fn call_as(
        &self,
        key: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Reply {
        let url = format!("{}{path}", self.service.url());
        let mut request = self.http.request(method, url).bearer_auth(key);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let json = serde_json::from_slice(&bytes).unwrap_or_default();
        Reply { status, headers, json }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Reply {
        self.call(Method::PATCH, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.call(Method::PUT, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.call(Method::DELETE, path, None).await
    }

    /// Creates something that must come to be, and gives its identifier.
    pub async fn create(&self, path: &str, body: Value) -> String {
        let made = self.post(path, body).await;
        assert_eq!(made.status, 201, "{path}: {}", made.json);
        made.text("id")
    }

    pub async fn stop(self) {
        self.service.stop(Duration::from_secs(5)).await;
    }
}

impl Reply {
    pub fn text(&self, field: &str) -> String {
        self.json[field].as_str().unwrap_or_default().to_owned()
    }

    /// The number of the error code; 0 when there is none.
    pub fn code(&self) -> u16 {
        let code = self.json["error_code"].as_str().and_then(|code| code.rsplit('_').next());
        code.and_then(|code| code.parse().ok()).unwrap_or_default()
    }
}

/// A client that never uses a proxy.
pub fn client() -> Client {
    // One provider for the process; the first test to come here installs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

/// An address of this machine that nobody else uses. A port of 127.0.0.1 that is free now may be
/// given a moment later to whoever asks for any; here nobody asks.
pub fn own_host() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Other systems have one address alone.
    if !cfg!(target_os = "linux") {
        return Ipv4Addr::LOCALHOST;
    }
    // Above those that tests name, such as 127.0.0.2.
    let number = (std::process::id() << 6) | (NEXT.fetch_add(1, Ordering::Relaxed) % 64);
    Ipv4Addr::from_bits(127 << 24 | number & 0x00ff_ffff)
}

/// An address that can be listened on, and where nobody listens until a test does: its port is not
/// among those that systems give to whoever asks for any.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = || std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
    let address = || (Ipv4Addr::LOCALHOST, 10_000 + (number() % 22_000) as u16).into();
    std::iter::repeat_with(address).find(|it: &SocketAddr| TcpListener::bind(it).is_ok()).unwrap()
}

/// A folder of its own for a test, removed with the value.
pub struct Folder {
    pub path: PathBuf,
    /// Where its services listen, so that they find their ports free after a restart.
    pub host: Ipv4Addr,
}

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ginnel-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path, host: own_host() }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Options for a service on the file `name`.
    pub fn options(&self, name: &str) -> Options {
        let host = self.host.to_string();
        Options {
            store: StoreSettings { path: Some(self.file(name)), ..StoreSettings::default() },
            management: ManagementSettings { host: host.clone(), ..ManagementSettings::default() },
            gateway: GatewaySettings { host, ..GatewaySettings::default() },
            ..Options::default()
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
