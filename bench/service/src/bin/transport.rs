//! Measures our connections beside reqwest: the same calls, the same server, the same result type.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_service::median;
use ginnel_api::remote::api_keys::{ApiKey, Get};
use ginnel_api::{Secret, encode_operation};
use ginnel_client::{Client, ClientOptions};
use tokio::runtime::{Builder, Runtime};

const KEY: &str = "ak_2i00000kWq8Zx1T3mB7LrNp9YcVd";
const SECONDS: f64 = 0.6;
const ROUNDS: usize = 7;

fn main() {
    let built =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/server/target/release/bench-server");
    let program = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(built), PathBuf::from);
    let bundle = std::env::temp_dir().join(format!("ginnel-bench-{}.pem", std::process::id()));
    println!("{:<28}{:>10}{:>10}{:>8}", "GET of one object, calls/s", "ours", "reqwest", "ratio");
    for tls in [false, true] {
        let server = Server::start(&program, tls.then_some(&bundle));
        let subject = Subject::new(&server.base, tls.then_some(&bundle));
        let scheme = if tls { "https" } else { "http" };
        for (name, threads, flights) in [
            ("one thread", 1, 0),
            ("8 threads", 8, 0),
            ("1 in flight", 0, 1),
            ("64 in flight", 0, 64),
        ] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(run(&subject, Transport::Ours, threads, flights));
                theirs.push(run(&subject, Transport::Reqwest, threads, flights));
            }
            let (ours, theirs) = (median(ours), median(theirs));
            let name = format!("{scheme}, {name}");
            println!("{name:<28}{ours:>10.0}{theirs:>10.0}{:>8.2}", ours / theirs);
        }
    }
    let _ = std::fs::remove_file(bundle);
}

#[derive(Clone, Copy)]
enum Transport {
    Ours,
    Reqwest,
}

/// The server, ended with its owner.
struct Server {
    process: Child,
    base: String,
}

impl Server {
    fn start(program: &PathBuf, bundle: Option<&PathBuf>) -> Self {
        let mut command = Command::new(program);
        if let Some(bundle) = bundle {
            command.arg("--tls").arg(bundle);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().expect("bench-server is built");
        let mut line = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let port = line.split_whitespace().nth(1).expect("a port").to_owned();
        let scheme = if bundle.is_some() { "https" } else { "http" };
        Self { process, base: format!("{scheme}://127.0.0.1:{port}") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both clients of one server.
struct Subject {
    base: String,
    bundle: Option<PathBuf>,
    tls: rustls::ClientConfig,
}

impl Subject {
    fn new(base: &str, bundle: Option<&PathBuf>) -> Self {
        Self { base: base.to_owned(), bundle: bundle.cloned(), tls: tls(bundle) }
    }

    fn ours(&self) -> Client {
        let client = Client::new(ClientOptions {
            api_key: Some(Secret("t".to_owned())),
            base_url: Some(self.base.clone()),
            ca_bundle: self.bundle.clone(),
            ..ClientOptions::default()
        });
        client.expect("a client")
    }

    fn reqwest(&self) -> reqwest::Client {
        reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .http1_only()
            .tls_backend_preconfigured(self.tls.clone())
            .build()
            .expect("a client")
    }

    fn request(&self) -> reqwest::Request {
        let address = format!("{}/api_keys/{KEY}", self.base).parse().expect("an address");
        let mut request = reqwest::Request::new(reqwest::Method::GET, address);
        let headers = request.headers_mut();
        for (name, value) in [
            ("authorization", "Bearer t"),
            ("service-version", "2"),
            ("user-agent", "ginnel"),
            ("accept", "application/json"),
        ] {
            headers.insert(name, value.parse().expect("a header"));
        }
        request
    }
}

fn tls(bundle: Option<&PathBuf>) -> rustls::ClientConfig {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    if let Some(bundle) = bundle {
        for certificate in CertificateDer::pem_file_iter(bundle).expect("a bundle") {
            roots.add(certificate.expect("a certificate")).expect("a root");
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn run(subject: &Subject, transport: Transport, threads: usize, flights: usize) -> f64 {
    if threads > 0 {
        blocking(subject, transport, threads)
    } else {
        flying(subject, transport, flights)
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Blocking calls per second from so many threads, each of which drives its own connection.
fn blocking(subject: &Subject, transport: Transport, threads: usize) -> f64 {
    let ours = subject.ours();
    let ours = &ours;
    let started = Instant::now();
    let end = started + Duration::from_secs_f64(SECONDS);
    let calls = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let (runtime, client) = (runtime(), subject.reqwest());
                    let request = subject.request();
                    let mut calls = 0u32;
                    while Instant::now() < end {
                        match transport {
                            Transport::Ours => ours_blocking(ours),
                            Transport::Reqwest => runtime.block_on(theirs(&client, &request)),
                        }
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum::<u32>()
    });
    f64::from(calls) / started.elapsed().as_secs_f64()
}

/// Calls per second with so many in flight on one thread.
fn flying(subject: &Subject, transport: Transport, flights: usize) -> f64 {
    // Connections belong to the runtime that opened them: both clients are new.
    let runtime = runtime();
    let (ours, client) = (subject.ours(), subject.reqwest());
    let request = subject.request();
    let started = Instant::now();
    let end = started + Duration::from_secs_f64(SECONDS);
    let calls = runtime.block_on(async {
        let local = tokio::task::LocalSet::new();
        let workers: Vec<_> = (0..flights)
            .map(|_| {
                let (ours, client) = (ours.clone(), client.clone());
                let request = request.try_clone().expect("no body");
                local.spawn_local(async move {
                    let mut calls = 0u32;
                    while Instant::now() < end {
                        match transport {
                            Transport::Ours => drop(ours.call(&wanted()).await.expect("an answer")),
                            Transport::Reqwest => theirs(&client, &request).await,
                        }
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        local.await;
        let mut calls = 0;
        for worker in workers {
            calls += worker.await.expect("a worker");
        }
        calls
    });
    f64::from(calls) / started.elapsed().as_secs_f64()
}

fn wanted() -> Get {
    Get { id: KEY.to_owned() }
}

fn ours_blocking(client: &Client) {
    let call = encode_operation(&wanted()).expect("a request");
    let answer =
        client.send_blocking(call, None, || false).expect("an answer").expect("not interrupted");
    let _: ApiKey = answer.error_for_status().and_then(|answer| answer.decode()).expect("a key");
}

async fn theirs(client: &reqwest::Client, request: &reqwest::Request) {
    let response = client.execute(request.try_clone().expect("no body")).await.expect("an answer");
    let body = response.bytes().await.expect("a body");
    let _: ApiKey = serde_json::from_slice(&body).expect("a key");
}
