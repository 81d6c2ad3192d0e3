//! The folder with the backups of one database; their names sort by time.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, NaiveDateTime, Utc};

use ginnel_base::logging::or_debug;
use ginnel_store as store;

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
    pub(super) fn for_database(path: PathBuf, database: Option<&Path>) -> Self {
        let stem = database.and_then(Path::file_stem).map(|stem| stem.to_string_lossy());
        Self { path, stem: stem.map_or(DEFAULT_STEM.to_owned(), |stem| stem.into_owned()) }
    }

    /// The name of a backup that is made now.
    pub(super) fn next(&self, now: SystemTime) -> PathBuf {
        let time = DateTime::<Utc>::from(now).format(TIME);
        self.path.join(format!("{}-{time}.db", self.stem))
    }

    /// When the newest backup was made; none counts that says a time which is still to come.
    pub(super) fn newest_time(&self, now: SystemTime) -> std::io::Result<Option<SystemTime>> {
        let times = self.complete_backups()?.into_iter().map(|(time, _)| time);
        let (past, future): (Vec<_>, Vec<_>) = times.partition(|time| *time <= now);
        if !future.is_empty() {
            let (count, folder) = (future.len(), self.path.display());
            tracing::warn!("{count} backups in {folder} say times that are still to come");
        }
        Ok(past.into_iter().max())
    }

    /// Removes all but the newest ones, and files that killed processes have left. One of a time that is
    /// still to come stays: when it was made is not known.
    pub(super) fn prune_old(&self, keep: usize, now: SystemTime) -> std::io::Result<()> {
        for left in self.unfinished_paths()? {
            // Another process may be writing it.
            or_debug!(store::remove_leftover(&left), "a copy that is not finished stays");
        }
        let mut backups = self.complete_backups()?;
        backups.retain(|(time, _)| *time <= now);
        backups.sort();
        let old = backups.len().saturating_sub(keep);
        backups.iter().take(old).try_for_each(|(_, path)| std::fs::remove_file(path))
    }

    /// The backups that are complete. Whatever has another name was not made here, and stays.
    fn complete_backups(&self) -> std::io::Result<Vec<(SystemTime, PathBuf)>> {
        let mut backups = Vec::new();
        for entry in self.path.read_dir()? {
            let path = entry?.path();
            if let Some(time) = path.file_name().and_then(|name| self.time_in(name.to_str()?)) {
                backups.push((time, path));
            }
        }
        Ok(backups)
    }

    /// Backups that are not complete.
    fn unfinished_paths(&self) -> std::io::Result<Vec<PathBuf>> {
        let paths = self.path.read_dir()?.map(|entry| entry.map(|entry| entry.path()));
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".new"));
            name.is_some_and(|name| self.time_in(name).is_some())
        };
        paths.filter(|path| path.as_ref().map_or(true, is_ours)).collect()
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
    fn a_backup_that_says_a_time_to_come_does_not_count_and_stays() {
        let path = std::env::temp_dir().join(format!("ginnel-backups-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let folder = BackupFolder::for_database(path.clone(), None);
        let now = UNIX_EPOCH + Duration::from_secs(1_795_352_018);
        let day = Duration::from_secs(86_400);
        for time in [now - 2 * day, now - day, now, now + day] {
            std::fs::write(folder.next(time), "").unwrap();
        }
        std::fs::write(path.join("ginnel-20261121T125338Z.db.new"), "").unwrap();
        std::fs::write(path.join("notes.db.new"), "").unwrap();

        let newest = folder.newest_time(now).unwrap();
        folder.prune_old(1, now).unwrap();

        assert_eq!(newest, Some(now));
        let entries = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let mut left: Vec<_> = entries.collect();
        left.sort();
        assert_eq!(left, [folder.next(now), folder.next(now + day), path.join("notes.db.new")]);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn names_sort_by_time_and_are_read_again() {
        let folder =
            BackupFolder::for_database(PathBuf::from("/backups"), Some(Path::new("/data/shop.db")));
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
