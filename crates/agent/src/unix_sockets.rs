//! Unix sockets that callers of the agent API may name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders below which callers of the agent API may name Unix sockets: `unix_socket_roots`.
///
/// The agent API has no key, so every user of this machine can call it. Without roots, it would give all of them
/// the sockets that only the owner of the agent may open.
#[derive(Debug, Clone, Default)]
pub struct UnixSocketRoots(Arc<[PathBuf]>);

impl UnixSocketRoots {
    /// Reads the setting.
    ///
    /// # Errors
    /// With the folder that is not an absolute path.
    pub fn new(folders: &[PathBuf]) -> Result<Self, PathBuf> {
        match folders.iter().find(|folder| !folder.is_absolute()) {
            Some(relative) => Err(relative.clone()),
            None => Ok(Self(folders.into())),
        }
    }

    /// Returns the path of a socket with all links resolved, if it is below a root.
    ///
    /// # Errors
    /// If it is not, or its folder does not exist.
    pub fn resolve_path(&self, path: &Path) -> io::Result<PathBuf> {
        let real = real_path(path)?;
        let is_below =
            |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
        match self.0.iter().any(is_below) {
            true => Ok(real),
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, REFUSAL)),
        }
    }
}

/// The reason of a refusal, as a phrase that follows the address.
pub const REFUSAL: &str = "is a Unix socket that is not below unix_socket_roots; add its folder to that setting of \
    the agent, or name the socket in a flag or a configuration file";

/// Resolves the links of a path whose last part need not exist yet.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize().or_else(|error| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(parent.canonicalize()?.join(name))
        }
        _ => Err(error),
    })
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_a_root_are_allowed() {
        let folder = std::env::temp_dir().join(format!("ginnel-roots-{}", std::process::id()));
        let (inside, outside) = (folder.join("in"), folder.join("out"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::fs::write(outside.join("real.sock"), "").unwrap();
        std::os::unix::fs::symlink(outside.join("real.sock"), inside.join("link.sock")).unwrap();
        let roots = UnixSocketRoots::new(std::slice::from_ref(&inside)).unwrap();
        let none = UnixSocketRoots::default();

        assert!(roots.resolve_path(&inside.join("app.sock")).is_ok());
        for path in ["link/app.sock", "link.sock", "../out/app.sock", "none/app.sock"] {
            assert!(roots.resolve_path(&inside.join(path)).is_err(), "{path}");
        }
        assert!(roots.resolve_path(&folder.join("in-other.sock")).is_err());
        assert!(none.resolve_path(&inside.join("app.sock")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
        assert!(UnixSocketRoots::new(&[PathBuf::from("run")]).is_err());
    }
}
