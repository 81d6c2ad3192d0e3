//! Files that hold a secret.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ginnel_api::{Secret, mask};

/// The size limit of a secret file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads a file with one secret. Blanks and line ends around it do not count.
///
/// # Errors
/// If the file cannot be read, is empty, has more than one line, or is not UTF-8.
pub fn read_secret(path: &Path) -> io::Result<Secret> {
    let text = read_secret_lines(path)?;
    match text.trim() {
        "" => Err(invalid_data("the file is empty")),
        lines if lines.contains(['\n', '\r', '\u{2028}', '\u{2029}', '\u{85}']) => {
            Err(invalid_data("the file has more than one line; write only the secret into it"))
        }
        secret => Ok(Secret(secret.to_owned())),
    }
}

/// Reads a file with secrets as text without the byte order mark. A file that others may read is reported, not
/// refused: volumes of containers often have such modes.
///
/// # Errors
/// If the file cannot be read or is not UTF-8.
pub fn read_secret_lines(path: &Path) -> io::Result<String> {
    let mut content = Vec::new();
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    warn_if_readable(path);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(invalid_data("the file is larger than 1 MiB, too large for a secret"));
    }
    secret_text(content)
}

/// Returns the text of a secret without the byte order mark that editors and shells of Windows write.
///
/// # Errors
/// If the content is not UTF-8; the message does not show it.
pub fn secret_text(content: Vec<u8>) -> io::Result<String> {
    if content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]) {
        return Err(invalid_data("the file is in UTF-16; save it as UTF-8"));
    }
    let text = String::from_utf8(content).map_err(|error| {
        let position = error.utf8_error().valid_up_to() + 1;
        invalid_data(&format!("the file is not UTF-8 (byte {position}); save it as UTF-8"))
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The files with secrets that every user may read. Most files are read before there is a log.
static READABLE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Logs a warning if every user may read a file with secrets. The group may: a service often runs as a user of its own.
pub fn warn_if_readable(path: &Path) {
    if is_readable_by_others(path) {
        tracing::warn!(
            path = %mask::path(path),
            "every user of this machine may read a secret file; chmod o-r prevents it"
        );
        READABLE.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
    }
}

/// Returns a warning for each file with secrets that was read since the last call and that every user may read.
pub fn take_readable_files() -> Vec<String> {
    let files = std::mem::take(&mut *READABLE.lock().unwrap_or_else(PoisonError::into_inner));
    let warning = |path: PathBuf| {
        let path = mask::path(&path);
        format!("every user of this machine may read the secret file {path}; chmod o-r prevents it")
    };
    files.into_iter().map(warning).collect()
}

fn invalid_data(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    // A pipe or a device, such as /dev/stdin, has no content at rest.
    let is_open = |it: std::fs::Metadata| it.is_file() && it.permissions().mode() & 0o004 != 0;
    path.metadata().is_ok_and(is_open)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<String, String> {
        let name = format!("ginnel-secret-{}-{:x}", std::process::id(), crc32(content));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        let read = read_secret(&path);
        std::fs::remove_file(&path).unwrap();
        read.map(|secret| secret.0).map_err(|error| error.to_string())
    }

    /// Distinguishes the files of tests that run at the same time.
    fn crc32(content: &[u8]) -> u32 {
        content.iter().fold(content.len() as u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte))
    }

    #[test]
    fn a_secret_is_what_stands_between_mark_blanks_and_line_ends() {
        for content in [
            "s3cret",
            "s3cret\n",
            "s3cret\r\n",
            "s3cret\n\n\n",
            "\u{feff}s3cret",
            "\u{feff}s3cret\r\n",
            "  s3cret \t\n",
        ] {
            assert_eq!(read(content.as_bytes()).as_deref(), Ok("s3cret"), "{content:?}");
        }
    }

    #[test]
    fn a_file_without_a_secret_is_refused_and_nothing_of_it_is_shown() {
        let utf16: Vec<_> = "\u{feff}s3cret".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<_> = "\u{feff}s3cret".encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (content, problem) in [
            (&b""[..], "the file is empty"),
            (b"\r\n \n", "the file is empty"),
            ("\u{feff}\r\n".as_bytes(), "the file is empty"),
            (&utf16, "the file is in UTF-16; save it as UTF-8"),
            (&big, "the file is in UTF-16; save it as UTF-8"),
            (b"s3cret\xff", "the file is not UTF-8 (byte 7); save it as UTF-8"),
        ] {
            assert_eq!(read(content), Err(problem.to_owned()));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_read() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("ginnel-secret-mode-{}", std::process::id()));
        std::fs::write(&path, "s3cret").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();

        let is_open = is_readable_by_others(&path);
        let read = read_secret(&path);

        std::fs::remove_file(&path).unwrap();
        assert!(is_open);
        assert_eq!(read.unwrap().0, "s3cret");
    }
}
