//! Takes secrets out of the command line that the system shows of this process.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};

use ginnel_base::logging::or_debug;

/// Overwrites each of the secrets where it stands in the command line of this process, as a word of its own
/// or behind `=`. Until then, and where the system does not allow it, `ps` shows them to others.
pub(super) fn wipe_secrets<'s>(secrets: impl Iterator<Item = &'s str>) {
    let secrets: Vec<_> = secrets.filter(|secret| !secret.is_empty()).collect();
    if !secrets.is_empty() {
        or_debug!(wipe_all(&secrets), "secrets stay in the command line of this process");
    }
}

/// The system keeps the command line in the memory of the process, and says where.
#[cfg(target_os = "linux")]
fn wipe_all(secrets: &[&str]) -> io::Result<()> {
    let unknown =
        || io::Error::new(io::ErrorKind::Unsupported, "the system does not say where it is");
    let stat =
        procfs::process::Process::myself().and_then(|it| it.stat()).map_err(io::Error::other)?;
    let (start, end) = stat.arg_start.zip(stat.arg_end).ok_or_else(unknown)?;
    let length = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
    let mut memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let mut words = vec![0; length];
    memory.seek(SeekFrom::Start(start))?;
    memory.read_exact(&mut words)?;
    mask(&mut words, secrets);
    memory.seek(SeekFrom::Start(start))?;
    memory.write_all(&words)
}

#[cfg(not(target_os = "linux"))]
fn wipe_all(_: &[&str]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Overwrites the secrets in words that end with a zero each.
#[cfg(any(target_os = "linux", test))]
fn mask(words: &mut [u8], secrets: &[&str]) {
    for word in words.split_mut(|byte| *byte == 0) {
        for secret in secrets.iter().map(|secret| secret.as_bytes()) {
            let is_option = word.starts_with(b"-") && word.ends_with(&[b"=", secret].concat());
            if word == secret || is_option {
                let start = word.len() - secret.len();
                word[start..].fill(b'*');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secrets_are_overwritten() {
        let mut words = b"ngrok\0start\0--authtoken\0start-me\0--auth=start-me\0http\0".to_vec();

        mask(&mut words, &["start-me"]);

        let masked = b"ngrok\0start\0--authtoken\0********\0--auth=********\0http\0";
        assert_eq!(words, masked);
    }
}
