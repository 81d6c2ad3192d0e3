//! The engines that a test of the store runs on: SQLite, and PostgreSQL on a server of the tests' own.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ginnel_api::Origin;
use ginnel_service::{Options, StoreSettings};
use ginnel_store::{PostgresOptions, Store};

/// Makes two tests of a function that takes an [`Engine`].
macro_rules! on_each_engine {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[tokio::test]
            async fn on_sqlite() {
                super::$name($crate::engines::Engine::Sqlite).await;
            }

            #[tokio::test]
            async fn on_postgres() {
                super::$name($crate::engines::Engine::Postgres).await;
            }
        }
    )+};
}

pub(crate) use on_each_engine;

/// Where a store keeps what it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// SQLite in memory.
    Sqlite,
    /// A new database of the tests' server.
    Postgres,
}

impl Engine {
    /// A new, empty store.
    pub fn store(self) -> Store {
        match self {
            Self::Sqlite => Store::open(None).unwrap(),
            Self::Postgres => open(&new_database()),
        }
    }

    /// Options of a service with a new, empty store.
    pub fn options(self) -> Options {
        let server = (self == Self::Postgres).then(new_database);
        let store = StoreSettings { server, ..StoreSettings::default() };
        Options { store, ..Options::default() }
    }
}

/// Opens a store on a database.
pub fn open(database: &PostgresOptions) -> Store {
    Store::open_postgres(database.clone(), Origin::default()).unwrap()
}

/// A new, empty database.
pub fn new_database() -> PostgresOptions {
    let server = server();
    let name = server.new_database();
    server.address(&name).parse().unwrap()
}

/// The server that all tests share; it ends with their process.
pub fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    // Where the tests only look at what the server does, its disk is not what they wait for.
    SERVER.get_or_init(|| {
        remove_abandoned();
        PostgresServer::start(&["-c", "fsync=off"])
    })
}

/// Removes the folders of servers whose tests have ended: nothing is dropped at the end of a process.
fn remove_abandoned() {
    for folder in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("ginnel-pg-").and_then(|rest| rest.split('-').next());
        let is_abandoned = |id: &str| !PathBuf::from("/proc").join(id).exists();
        if process.is_some_and(is_abandoned) {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

/// A server of PostgreSQL in a folder of its own.
pub struct PostgresServer {
    folder: PathBuf,
    port: u16,
    pid: Mutex<u32>,
}

impl PostgresServer {
    pub fn start(settings: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("ginnel-pg-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let owner = owner();
        std::os::unix::fs::chown(&folder, Some(owner), Some(owner)).unwrap();
        let port = crate::service::support::free_address().port();
        let data = folder.join("data");
        let made = as_owner("initdb")
            .args(["--pgdata", data.to_str().unwrap(), "--username=ginnel", "--auth=trust"])
            .args(["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let server = Self { folder, port, pid: Mutex::new(0) };
        server.run(settings);
        server
    }

    /// Starts the server in its folder.
    pub fn run(&self, settings: &[&str]) {
        let mut command = as_owner("postgres");
        command
            .arg("-D")
            .arg(self.folder.join("data"))
            .arg("-k")
            .arg(&self.folder)
            .args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=400", "-c", "shared_buffers=64MB"])
            .args(settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.folder.join("log")).unwrap());
        // SAFETY: only an option of the new process is set, before its program runs.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::QUIT);
                Ok(rustix::process::set_parent_process_death_signal(signal)?)
            });
        }
        let (sender, started) = std::sync::mpsc::channel();
        // The server ends with the thread that started it, so that thread stays.
        std::thread::spawn(move || {
            let mut child = command.spawn().unwrap();
            sender.send(child.id()).unwrap();
            let _ = child.wait();
        });
        *self.pid.lock().unwrap() = started.recv().unwrap();
        self.wait();
    }

    /// Kills the server as a power cut would, but for what the kernel holds.
    pub fn kill(&self) {
        let pid = *self.pid.lock().unwrap();
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
        let lock = self.folder.join("data/postmaster.pid");
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() || lock.exists() {
            assert!(began.elapsed() < Duration::from_secs(20), "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has the server, which does not run, follow another one that there is none of: nobody can write to it.
    pub fn make_standby(&self) {
        let signal = self.folder.join("data/standby.signal");
        fs::write(&signal, "").unwrap();
        std::os::unix::fs::chown(&signal, Some(owner()), Some(owner())).unwrap();
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self, database: &str) -> String {
        format!("postgres://ginnel@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes a database; gives its name.
    pub fn new_database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name} STRATEGY file_copy"));
        name
    }

    /// Runs SQL; gives its result as text.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        self.psql_in_turn(database, &[sql])
    }

    /// As [`PostgresServer::psql`], each in a transaction of its own.
    pub fn psql_in_turn(&self, database: &str, statements: &[&str]) -> String {
        let output = as_owner("psql")
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"])
            .args(["-U", "ginnel", "-p", &self.port.to_string(), "-d", database])
            .args(statements.iter().flat_map(|sql| ["-c", sql]))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{statements:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn wait(&self) {
        let began = Instant::now();
        loop {
            let ready = as_owner("pg_isready")
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status();
            if ready.unwrap().success() {
                return;
            }
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(60), "no server: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Who runs the server, which refuses to be run by an administrator.
pub fn owner() -> u32 {
    match rustix::process::geteuid().as_raw() {
        0 => 65534,
        user => user,
    }
}

fn as_owner(program: &str) -> Command {
    let mut command = Command::new(programs().join(program));
    if rustix::process::geteuid().is_root() {
        command.uid(owner()).gid(owner());
    }
    command.current_dir(std::env::temp_dir());
    command
}

/// The folder of the server's programs.
fn programs() -> &'static PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let named = std::env::var_os("GINNEL_POSTGRES").map(PathBuf::from);
        let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let installed = installed.map(|version| version.path().join("bin")).max();
        let found = named.or(installed).filter(|folder| folder.join("initdb").exists());
        found.expect(
            "these tests need PostgreSQL: run `make packages`, or name it in GINNEL_POSTGRES",
        )
    })
}
