//! Files that events are appended to: in one folder, which the operator names.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::delivery::DeliveryError;

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Who may read what events say: the service's own user.
const FILE_MODE: u32 = 0o600;

/// What is wrong with the name of a file, for a sentence behind the name of the field. It can lead nowhere
/// but into the folder: it has no separator and does not start with a dot.
pub(in crate::service) fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("is {} bytes long, the limit is {MAX_NAME_BYTES}", name.len()));
    }
    let is_plain = name.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it));
    if name.is_empty() || name.starts_with('.') || !is_plain {
        return Err(format!(
            "{name:?} is no name of a file: letters, digits, '.', '_' and '-', and no '.' in front"
        ));
    }
    Ok(())
}

/// Appends lines to a file, and waits until they are on the disk.
pub(super) async fn append(
    folder: PathBuf,
    name: String,
    lines: String,
) -> Result<(), DeliveryError> {
    let written = tokio::task::spawn_blocking(move || {
        write(&folder, &name, &lines).map_err(|source| DeliveryError::File { name, source })
    });
    written.await.unwrap_or_else(|panic| Err(DeliveryError::Unanswered(panic.to_string())))
}

fn write(folder: &Path, name: &str, lines: &str) -> io::Result<()> {
    check_name(name).map_err(io::Error::other)?;
    // A link could lead out of the folder, and a pipe would be waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(FILE_MODE);
    options.custom_flags(flags.bits().cast_signed());
    let mut file = options.open(folder.join(name))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // An append that was cut short, by a full disk or a kill, has left a piece of a line.
    let separator = if ends_within_line(&mut file)? { "\n" } else { "" };
    file.write_all(format!("{separator}{lines}").as_bytes())?;
    file.sync_data()
}

fn ends_within_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_leads_nowhere_but_into_the_folder() {
        for name in ["events.jsonl", "a", "A-1_b..log"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", ".bashrc", "a\0", "a\\b", &long] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn lines_are_appended_whole_and_links_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("ginnel-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();

        write(&folder, "log", "one\n").unwrap();
        std::fs::write(folder.join("cut"), "{\"cut").unwrap();
        write(&folder, "cut", "two\n").unwrap();
        std::os::unix::fs::symlink(folder.join("log"), folder.join("link")).unwrap();
        let followed = write(&folder, "link", "three\n");

        assert!(followed.is_err());
        assert_eq!(std::fs::read_to_string(folder.join("log")).unwrap(), "one\n");
        assert_eq!(std::fs::read_to_string(folder.join("cut")).unwrap(), "{\"cut\ntwo\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
