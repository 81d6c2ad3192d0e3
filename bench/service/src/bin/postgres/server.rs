//! A server of PostgreSQL in a folder of its own, which syncs as it does by default.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Who runs it, for it refuses an administrator.
const NOBODY: u32 = 65534;

pub struct Server {
    process: Child,
    pub port: u16,
}

impl Server {
    pub fn start(folder: &Path) -> Self {
        let folder = folder.join("postgres");
        fs::create_dir_all(&folder).expect("a folder");
        if is_administrator() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).expect("an administrator");
        }
        let data = folder.join("data");
        let data = data.to_str().expect("a path in text");
        let made = program("initdb")
            .current_dir(&folder)
            .args(["-D", data, "-U", "ginnel", "-A", "trust", "--encoding=UTF8"])
            .stdout(Stdio::null())
            .status();
        assert!(made.expect("initdb").success());
        let port = free_port();
        let process = program("postgres")
            .current_dir(&folder)
            .args(["-D", data, "-p", &port.to_string(), "-k", folder.to_str().expect("text")])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=on"])
            .args(["-c", "synchronous_commit=on", "-c", "max_connections=200"])
            .stderr(File::create(folder.join("log")).expect("a log"))
            .spawn()
            .expect("postgres");
        let server = Self { process, port };
        while !server.psql_status("postgres", "SELECT 1") {
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    /// The name of a new, empty database.
    pub fn new_database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    pub fn sql(&self, database: &str, statement: &str) {
        assert!(self.psql_status(database, statement), "{statement}");
    }

    fn psql_status(&self, database: &str, statement: &str) -> bool {
        let status = program("psql")
            .args(["-X", "-q", "-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "ginnel"])
            .args(["-d", database, "-c", statement])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.expect("psql").success()
    }

    /// Transactions per second of a script of pgbench with 64 clients.
    pub fn pgbench(&self, database: &str, script: &Path, seconds: u32) -> f64 {
        let output = program("pgbench")
            .args(["-n", "-M", "prepared", "-c", "64", "-j", "2", "-T", &seconds.to_string()])
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "ginnel", "-f"])
            .arg(script)
            .arg(database)
            .output()
            .expect("pgbench");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
        rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| {
            panic!("{text}{}", String::from_utf8_lossy(&output.stderr));
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its own signal for ending at once, after which nothing is left running.
        let _ = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

fn program(name: &str) -> Command {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed.map(|version| version.path().join("bin")).max();
    let mut command = Command::new(newest.unwrap_or_else(PathBuf::new).join(name));
    if is_administrator() && name != "pgbench" {
        command.uid(NOBODY).gid(NOBODY).current_dir("/tmp");
    }
    command
}

fn is_administrator() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
