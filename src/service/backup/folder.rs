//! The folder with the backups of one database; their names sort by time.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, NaiveDateTime, Utc};

/// How the time is written in a name, in UTC.
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// What a database in memory is called.
const DEFAULT_STEM: &str = "ginnel";

/// The backups of one database.
#[derive(Debug, Clone)]
pub(super) struct BackupFolder {
    path: PathBuf,
    /// What names begin with, before the time.
    stem: String,
}

impl BackupFolder {
    /// The backups of a database in a folder: `<name of the database>-<time>.db`.
    pub(super) fn of(path: PathBuf, database: Option<&Path>) -> Self {
        let stem = database.and_then(Path::file_stem).map(|stem| stem.to_string_lossy());
        Self { path, stem: stem.map_or(DEFAULT_STEM.to_owned(), |stem| stem.into_owned()) }
    }

    /// The name of a backup that is made now.
    pub(super) fn next(&self, now: SystemTime) -> PathBuf {
        let time = DateTime::<Utc>::from(now).format(TIME);
        self.path.join(format!("{}-{time}.db", self.stem))
    }

    /// When the newest backup was made.
    pub(super) fn newest(&self) -> std::io::Result<Option<SystemTime>> {
        Ok(self.backups()?.into_iter().map(|(time, _)| time).max())
    }

    /// Removes all but the newest ones.
    pub(super) fn prune(&self, keep: usize) -> std::io::Result<()> {
        let mut backups = self.backups()?;
        backups.sort();
        let old = backups.len().saturating_sub(keep);
        backups.iter().take(old).try_for_each(|(_, path)| std::fs::remove_file(path))
    }

    /// The backups that are complete. Whatever has another name was not made here, and stays.
    fn backups(&self) -> std::io::Result<Vec<(SystemTime, PathBuf)>> {
        let mut backups = Vec::new();
        for entry in self.path.read_dir()? {
            let path = entry?.path();
            if let Some(time) = path.file_name().and_then(|name| self.time_in(name.to_str()?)) {
                backups.push((time, path));
            }
        }
        Ok(backups)
    }

    fn time_in(&self, name: &str) -> Option<SystemTime> {
        let rest = name.strip_prefix(&self.stem)?.strip_prefix('-')?.strip_suffix(".db")?;
        Some(NaiveDateTime::parse_from_str(rest, TIME).ok()?.and_utc().into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn names_sort_by_time_and_are_read_again() {
        let folder = BackupFolder::of(PathBuf::from("/backups"), Some(Path::new("/data/shop.db")));
        let early = UNIX_EPOCH + Duration::from_secs(1_795_352_018);
        let (first, second) =
            (folder.next(early), folder.next(early + Duration::from_secs(86_400)));

        assert_eq!(first, Path::new("/backups/shop-20261122T125338Z.db"));
        assert!(first < second);
        assert_eq!(folder.time_in("shop-20261122T125338Z.db"), Some(early));
        for other in
            ["shop.db", "shop-20261122T125338Z.db.new", "other-20261122T125338Z.db", "shop-x.db"]
        {
            assert_eq!(folder.time_in(other), None, "{other}");
        }
    }
}
