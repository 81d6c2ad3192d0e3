//! Files that events are appended to: in one folder, which the operator names.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::delivery::DeliveryError;

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Who may read what events say: the service's own user.
const FILE_MODE: u32 = 0o600;
/// How long another one may append to the file, and how often it is looked whether it still does.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// What names of files end with, so that no other file of the folder can be meant.
const SUFFIX: &str = ".jsonl";

/// What is wrong with the name of a file, for a sentence behind the name of the field. It can lead nowhere
/// but into the folder: it has no separator and does not start with a dot.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("is {} bytes long, the limit is {MAX_NAME_BYTES}", name.len()));
    }
    let is_plain = name.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it));
    if name.is_empty() || name.starts_with('.') || !is_plain {
        return Err(format!(
            "{name:?} is no name of a file: letters, digits, '.', '_' and '-', and no '.' in front"
        ));
    }
    if !name.ends_with(SUFFIX) {
        return Err(format!("{name:?} does not end with {SUFFIX}"));
    }
    Ok(())
}

/// Appends lines to a file, and waits until they are on the disk.
pub(super) async fn append_lines(
    folder: PathBuf,
    name: String,
    lines: String,
) -> Result<(), DeliveryError> {
    let written = ginnel_base::tasks::spawn_blocking(move || {
        write_lines(&folder, &name, &lines).map_err(|source| DeliveryError::File { name, source })
    });
    written.await.unwrap_or_else(|panic| Err(DeliveryError::Unanswered(panic.to_string())))
}

fn write_lines(folder: &Path, name: &str, lines: &str) -> io::Result<()> {
    check_name(name).map_err(io::Error::other)?;
    // A link could lead out of the folder, and a pipe would be waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(FILE_MODE);
    options.custom_flags(flags.bits().cast_signed());
    let mut file = options.open(folder.join(name))?;
    check_file(&file.metadata()?)?;
    lock_file(&file)?;
    // An append that was cut short, by a full disk or a kill, has left a piece of a line.
    let separator = if ends_within_line(&mut file)? { "\n" } else { "" };
    file.write_all(format!("{separator}{lines}").as_bytes())?;
    file.sync_data()
}

/// Has others wait who append to the file: another destination of this name, events of traffic, or a node
/// with the same folder. The lock goes with the file.
fn lock_file(file: &File) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if began.elapsed() < LOCK_TIMEOUT => thread::sleep(LOCK_PAUSE),
            // Not all file systems have locks.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Refuses a file that others may read, or that is not this service's own.
fn check_file(file: &Metadata) -> io::Result<()> {
    let problem = if !file.is_file() {
        "it is no regular file".to_owned()
    } else if file.nlink() > 1 {
        format!("it has {} names, the limit is 1", file.nlink())
    } else if file.uid() != rustix::process::geteuid().as_raw() {
        format!("it belongs to the user {}, not to that of the service", file.uid())
    } else if file.mode() & 0o077 != 0 {
        format!("others may use it: its mode is {:o}, not {FILE_MODE:o}", file.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
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
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_name_leads_nowhere_but_into_the_folder() {
        for name in ["events.jsonl", "a.jsonl", "A-1_b...jsonl"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let long = "x".repeat(MAX_NAME_BYTES) + SUFFIX;
        for name in [
            "",
            ".",
            "..",
            "../x",
            "/etc/passwd",
            "a/b",
            ".bashrc",
            "a\0",
            "a\\b",
            "ginnel.db",
            &long,
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn lines_are_appended_whole_and_links_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("ginnel-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();

        let path = |name| folder.join(name);

        write_lines(&folder, "log.jsonl", "one\n").unwrap();
        write_lines(&folder, "cut.jsonl", "{\"cut").unwrap();
        write_lines(&folder, "cut.jsonl", "two\n").unwrap();
        std::os::unix::fs::symlink(path("log.jsonl"), path("link.jsonl")).unwrap();
        let followed = write_lines(&folder, "link.jsonl", "three\n");

        assert!(followed.is_err());
        assert_eq!(std::fs::read_to_string(path("log.jsonl")).unwrap(), "one\n");
        assert_eq!(std::fs::read_to_string(path("cut.jsonl")).unwrap(), "{\"cut\ntwo\n");

        std::fs::set_permissions(path("cut.jsonl"), Permissions::from_mode(0o640)).unwrap();
        std::fs::hard_link(path("log.jsonl"), path("name.jsonl")).unwrap();
        for (name, problem) in [("cut.jsonl", "mode is 640"), ("name.jsonl", "2 names")] {
            let error = write_lines(&folder, name, "four\n").unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            assert!(!std::fs::read_to_string(path(name)).unwrap().contains("four"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn lines_of_several_writers_do_not_mix() {
        let folder = std::env::temp_dir().join(format!("ginnel-mixed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let line = |writer: usize| format!("{}\n", writer.to_string().repeat(50_000));

        thread::scope(|scope| {
            for writer in 1..5 {
                let folder = &folder;
                scope.spawn(move || {
                    (0..5).for_each(|_| write_lines(folder, "log.jsonl", &line(writer)).unwrap());
                });
            }
        });

        let text = std::fs::read_to_string(folder.join("log.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 20);
        assert!(text.split_inclusive('\n').all(|it| (1..5).any(|writer| it == line(writer))));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
