//! Unix sockets of this process that nothing public may lead to: those that it listens on, and those that it reaches
//! with its own rights, such as the socket of its database.
//!
//! This is the one list of them. Code that opens or uses such a socket keeps a [`PrivateSocket`], and code that
//! connects on behalf of others calls [`check_socket`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

static SOCKETS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// A socket that nothing public may lead to, as long as this is kept.
#[derive(Debug)]
pub struct PrivateSocket(PathBuf);

impl PrivateSocket {
    /// Adds a socket, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        SOCKETS.write().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Self(path)
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = sockets.iter().position(|path| *path == self.0) {
            sockets.swap_remove(at);
        }
    }
}

/// Rejects a path that leads to a private socket, also by links. Blocks while it looks at the files.
///
/// # Errors
/// If it does.
pub fn check_socket(path: &Path) -> io::Result<()> {
    // A file system that does not respond must not hold the lock.
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner).clone();
    match sockets.iter().any(|socket| is_same(socket, path)) {
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is a Unix socket that ginnel itself uses", path.display()),
        )),
        false => Ok(()),
    }
}

/// Compares files instead of paths: a hard link has another path.
#[cfg(unix)]
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let file = |path: &Path| path.metadata().ok().map(|it| (it.dev(), it.ino()));
    one == other || file(one).is_some_and(|one| Some(one) == file(other))
}

#[cfg(not(unix))]
fn is_same(one: &Path, other: &Path) -> bool {
    one == other
}

/// Holds up every call of [`check_socket`], as a file system does that does not respond.
#[cfg(any(test, feature = "test-support"))]
#[derive(Debug)]
pub struct HeldSockets {
    release: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<bool>,
}

#[cfg(any(test, feature = "test-support"))]
impl HeldSockets {
    /// Holds up the calls until [`HeldSockets::release`], at most for 10 seconds.
    pub fn hold() -> Self {
        let (release, released) = std::sync::mpsc::channel();
        let (holding, held) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
            holding.send(()).is_ok()
                && released.recv_timeout(std::time::Duration::from_secs(10)).is_ok()
        });
        assert!(held.recv().is_ok(), "the sockets cannot be held");
        Self { release, thread }
    }

    /// Lets the calls go on. Returns false if that came too late.
    pub fn release(self) -> bool {
        self.release.send(()).is_ok() && self.thread.join().unwrap_or(false)
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_private_socket_is_found_under_each_of_its_names() {
        let folder = std::env::temp_dir().join(format!("ginnel-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, other) = (folder.join("own.sock"), folder.join("other.sock"));
        let _listeners = (UnixListener::bind(&path).unwrap(), UnixListener::bind(&other).unwrap());
        std::os::unix::fs::symlink(&path, folder.join("link.sock")).unwrap();
        std::fs::hard_link(&path, folder.join("hard.sock")).unwrap();
        let names = ["own.sock", "link.sock", "hard.sock", "./own.sock"];
        assert!(names.iter().all(|name| check_socket(&folder.join(name)).is_ok()));

        let private = PrivateSocket::new(path);

        for name in names {
            let refused = check_socket(&folder.join(name)).unwrap_err();
            assert!(refused.to_string().contains("ginnel itself uses"), "{name}");
        }
        assert!(check_socket(&other).is_ok());
        drop(private);
        assert!(names.iter().all(|name| check_socket(&folder.join(name)).is_ok()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
