use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::agent::capture::{CaptureLimit, CaptureStore, NewCapture};
use crate::http1::Body;

/// A folder of one test, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ginnel-inspect-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("captures.db")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

const LIMITS: FileLimits = FileLimits { bytes: 10 << 20, age: Duration::from_secs(3600) };

fn open(path: &Path, limits: FileLimits) -> Result<Arc<CaptureStore>, InspectFileError> {
    CaptureStore::with_file(CaptureLimit::Bytes(20 << 20), path, limits)
}

/// Captures a request with a body of so many bytes; its identifier.
fn capture(captures: &Arc<CaptureStore>, size: usize) -> String {
    let recording = captures.open(NewCapture {
        tunnel_name: "web",
        source: Arc::default(),
        head: b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        body: &Body::Length(size as u64),
    });
    recording.request_body(&vec![b'x'; size]);
    recording.request_complete(b"");
    recording.response_head(b"HTTP/1.1 204 No Content\r\n\r\n", &Body::NONE);
    recording.complete();
    recording.record().id.clone()
}

fn ids(captures: &CaptureStore) -> Vec<String> {
    let mut ids: Vec<_> = captures.list(usize::MAX, None).iter().map(|it| it.id.clone()).collect();
    ids.reverse();
    ids
}

#[test]
fn requests_survive_and_later_ones_come_after_them() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let before = [100, 200].map(|size| capture(&captures, size));
    let shown = captures.find(&before[0]).unwrap().show();
    drop(captures);

    let captures = open(&folder.file(), LIMITS).unwrap();
    let after = capture(&captures, 10);

    assert_eq!(ids(&captures), [before[0].clone(), before[1].clone(), after.clone()]);
    assert_eq!(captures.find(&before[0]).unwrap().show(), shown);
    assert!(after > before[1], "{after} sorts after {}", before[1]);
    let counted: usize = captures.list(9, None).iter().map(|record| record.cost()).sum();
    assert_eq!(captures.usage().bytes, counted);
}

#[test]
fn what_was_removed_stays_so_and_a_clear_empties_the_file() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let ids_before: Vec<_> = (0..3).map(|_| capture(&captures, 100_000)).collect();
    assert!(captures.remove(&ids_before[1]));
    drop(captures);

    let captures = open(&folder.file(), LIMITS).unwrap();
    assert_eq!(ids(&captures), [ids_before[0].clone(), ids_before[2].clone()]);
    let lasting = captures.open(NewCapture {
        tunnel_name: "web",
        source: Arc::default(),
        head: b"GET /lasting HTTP/1.1\r\n\r\n",
        body: &Body::NONE,
    });
    captures.clear().unwrap().blocking_recv().unwrap().unwrap();
    lasting.complete();
    drop(lasting);
    let content = fs::read(folder.file()).unwrap();
    assert!(!content.windows(4).any(|four| four == b"xxxx"), "bodies are still in the file");
    drop(captures);

    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()), Vec::<String>::new());
}

#[test]
fn the_oldest_go_first_and_what_is_pinned_last() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let all: Vec<_> = (0..12).map(|_| capture(&captures, 300_000)).collect();
    captures.annotate(&all[0], Some(true), Some("the first".to_owned())).unwrap().unwrap();
    drop(captures);

    let few = FileLimits { bytes: 1 << 20, ..LIMITS };
    let captures = open(&folder.file(), few).unwrap();

    assert_eq!(ids(&captures), [all[0].clone(), all[10].clone(), all[11].clone()]);
    let record = captures.find(&all[0]).unwrap();
    let exchange = record.exchange().clone();
    assert_eq!((exchange.is_pinned, exchange.note.as_str()), (true, "the first"));
    assert!(captures.file().unwrap().usage().bytes <= few.bytes);
}

#[test]
fn what_is_too_old_goes_unless_it_is_pinned() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let [pinned, _] = [10, 20].map(|size| capture(&captures, size));
    captures.annotate(&pinned, Some(true), None).unwrap().unwrap();
    drop(captures);

    let captures = open(&folder.file(), FileLimits { age: Duration::ZERO, ..LIMITS }).unwrap();

    assert_eq!(ids(&captures), [pinned]);
}

#[test]
fn one_file_is_for_one_agent() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();

    let refused = open(&folder.file(), LIMITS).unwrap_err();

    assert!(matches!(refused, InspectFileError::InUse(_)), "{refused}");
    captures.file().unwrap().close();
    assert!(open(&folder.file(), LIMITS).is_ok(), "it is free as soon as it is closed");
}

#[test]
fn a_damaged_file_is_put_aside_and_another_kind_of_file_left_alone() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    (0..50).for_each(|_| drop(capture(&captures, 4_000)));
    drop(captures);
    let mut content = fs::read(folder.file()).unwrap();
    let from = content.len() / 2;
    content[100..from].fill(0x5a);
    fs::write(folder.file(), &content).unwrap();

    let captures = open(&folder.file(), LIMITS).unwrap();
    assert_eq!(ids(&captures), Vec::<String>::new());
    capture(&captures, 10);
    drop(captures);
    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()).len(), 1);
    let names = folder.names();
    assert!(names.iter().any(|name| name.starts_with("captures.db.damaged-")), "{names:?}");

    for other in [&b"my notes, which are no database at all"[..], b"SQLite format 3\0 nearly"] {
        let path = folder.0.join("other");
        fs::write(&path, other).unwrap();
        let refused = open(&path, LIMITS).unwrap_err();
        assert!(matches!(refused, InspectFileError::Foreign(_)), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), other);
    }
    let path = folder.0.join("other.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1);").unwrap();
    drop(database);
    assert!(matches!(open(&path, LIMITS).unwrap_err(), InspectFileError::Foreign(_)));
    assert!(open(&folder.0, LIMITS).unwrap_err().to_string().contains("is no file"));
}

#[cfg(unix)]
#[test]
fn only_its_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let captures = open(&folder.file(), LIMITS).unwrap();
    capture(&captures, 10);
    for name in folder.names() {
        assert_eq!(mode(&folder.0.join(&name)), 0o600, "{name}");
    }
    drop(captures);
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o644)).unwrap();

    let captures = open(&folder.file(), LIMITS).unwrap();

    assert_eq!(mode(&folder.file()), 0o600);
    drop(captures);
}

#[test]
fn records_that_find_no_place_in_the_queue_are_counted() {
    let queue = FileQueue::default();
    let file = InspectFile { path: PathBuf::from("f"), queue: Arc::new(queue) };
    let captures = CaptureStore::new(CaptureLimit::default());
    let id = capture(&captures, 10);
    let record = captures.find(&id).unwrap();

    (0..MAX_QUEUED_RECORDS + 5).for_each(|_| file.save(&record));

    assert_eq!(file.usage().dropped, 5);
    file.queue.lock().is_closed = true;
}

#[test]
fn a_disk_that_is_full_costs_records_and_nothing_else() {
    let folder = Folder::new();
    let mut database = CaptureDatabase::open(&folder.file(), LIMITS).unwrap();
    database.limit_pages(20);
    let queue = FileQueue::default();
    let captures = CaptureStore::new(CaptureLimit::default());
    for size in [10, 500_000, 20] {
        let id = capture(&captures, size);
        queue.push(FileJob::Save(captures.find(&id).unwrap()));
        queue.lock().records += 1;
        assert!(queue.write_some(&mut database));
        let usage = queue.lock().usage.clone();
        assert_eq!(usage.problem.is_some(), size == 500_000, "{usage:?}");
    }

    assert_eq!(queue.lock().usage.dropped, 1);
    let (records, _) = database.load(usize::MAX).unwrap();
    assert_eq!(records.len(), 2);
}
