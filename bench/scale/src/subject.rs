//! The service, in a process of its own, and how it is called.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ginnel_agent::Trust;
use ginnel_api::Secret;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::http::Connection;
use crate::process;

/// The argument by which this program is `ginnel` in place of the measurements.
pub const AS_GINNEL: &str = "as-ginnel";
/// The variable that may hold a command which runs the service, such as `perf record -g`.
const WATCHER_VARIABLE: &str = "SCALE_WATCHER";
/// How many calls fill a service at a time.
pub const WRITERS: usize = 64;

/// A service as `ginnel serve` runs it.
pub struct Subject {
    child: Child,
    folder: PathBuf,
    flags: Vec<String>,
    said: Value,
    key: String,
    authtoken: String,
    /// How long it took from the start of the process until everything was announced.
    pub started_in: Duration,
}

impl Subject {
    /// Starts a service on a new database below `folder`.
    pub async fn new(folder: &Path, name: &str, flags: &[String]) -> Self {
        Self::on_cores(folder, name, flags, None).await
    }

    /// The same, on so many cores; none for all of them.
    pub async fn on_cores(
        folder: &Path,
        name: &str,
        flags: &[String],
        cores: Option<usize>,
    ) -> Self {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).expect("a folder to write to");
        let (child, said, started_in) = start(&folder, flags, cores).await;
        let text = |name: &str| said[name].as_str().expect("a new database").to_owned();
        let (key, authtoken) = (text("api_key"), text("authtoken"));
        Self { child, folder, flags: flags.to_vec(), said, key, authtoken, started_in }
    }

    /// Ends the service, and starts it again on the same database.
    pub async fn restart(&mut self) {
        self.stop().await;
        (self.child, self.said, self.started_in) = start(&self.folder, &self.flags, None).await;
    }

    async fn stop(&mut self) {
        process::terminate(self.process());
        self.child.wait().await.expect("an end");
    }

    /// Ends the service, and removes what it stored.
    pub async fn remove(mut self) {
        self.stop().await;
        std::fs::remove_dir_all(&self.folder).expect("the folder is ours");
    }

    pub fn process(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub fn memory(&self) -> f64 {
        process::memory(self.process())
    }

    pub fn processor_time(&self) -> Duration {
        process::processor_time(self.process())
    }

    /// Where visitors come in, `host:port`.
    pub fn http_address(&self) -> String {
        self.address("http_url")
    }

    pub fn agent_address(&self) -> String {
        self.said["agent_addr"].as_str().expect("agents are taken").to_owned()
    }

    pub fn authtoken(&self) -> Secret {
        Secret(self.authtoken.clone())
    }

    /// Whom agents trust.
    pub fn trust(&self) -> Trust {
        let path = self.said["ca_path"].as_str().expect("a database in a file");
        Trust::from_file(Path::new(path)).expect("certificates")
    }

    pub fn client(&self) -> Client {
        Client::new(self.address("url"), self.key.clone())
    }

    fn address(&self, name: &str) -> String {
        self.said[name].as_str().expect("an address").trim_start_matches("http://").to_owned()
    }
}

/// Calls the management API.
#[derive(Clone)]
pub struct Client {
    address: String,
    key: String,
}

impl Client {
    /// Calls the API at `host:port`.
    pub fn new(address: String, key: String) -> Self {
        Self { address, key }
    }

    pub async fn connect(&self) -> Connection {
        Connection::new(&self.address).await.expect("the service accepts")
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The bytes of a call; `null` is no body.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> Vec<u8> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             service-version: 2\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            self.key,
            body.len()
        )
        .into_bytes()
    }

    /// Creates a resource; returns its identifier.
    pub async fn create(&self, to: &mut Connection, path: &str, body: &Value) -> String {
        let request = self.request("POST", path, body);
        let (status, body) = to.call(&request).await.expect("a response");
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(body));
        let made: Value = serde_json::from_slice(body).expect("JSON");
        made["id"].as_str().expect("an identifier").to_owned()
    }

    /// A backend at an address.
    pub async fn backend(&self, address: &str) -> String {
        let body = json!({"address": address});
        self.create(&mut self.connect().await, "/backends/static", &body).await
    }
}

async fn start(folder: &Path, flags: &[String], cores: Option<usize>) -> (Child, Value, Duration) {
    let began = Instant::now();
    let program = std::env::current_exe().expect("a program");
    let mut words = wrapper(cores).into_iter().chain([program.into_os_string()]);
    let mut command = Command::new(words.next().expect("the program at least"));
    command.args(words);
    command.args([AS_GINNEL, "serve", "--json", "--path"]).arg(folder.join("ginnel.db"));
    command.args(flags).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let line = lines.next_line().await.expect("output").expect("a service that starts");
    (child, serde_json::from_str(&line).expect("JSON"), began.elapsed())
}

/// What runs the program: something that watches it, where the environment names that, on so many cores.
fn wrapper(cores: Option<usize>) -> Vec<OsString> {
    let watching = std::env::var(WATCHER_VARIABLE).unwrap_or_default();
    let pinned =
        cores.map(|cores| format!("taskset --cpu-list 0-{}", cores - 1)).unwrap_or_default();
    let words = watching.split_whitespace().chain(pinned.split_whitespace());
    words.map(OsString::from).collect()
}
