use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use ginnel_http1::{Body, HeadWriter};

use super::*;
use crate::capture::{
    CaptureLimit, CaptureSource, CaptureStore, CapturedExchange, ExchangeMarks, ImportedCapture,
    NewCapture,
};

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

    /// Whether a file of the folder has these bytes.
    fn holds(&self, bytes: &[u8]) -> bool {
        let contents = self.names().into_iter().map(|name| fs::read(self.0.join(name)).unwrap());
        contents.into_iter().any(|it| it.windows(bytes.len()).any(|part| part == bytes))
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

/// The records of a file, all of which are read.
fn open(path: &Path, limits: FileLimits) -> Result<Arc<CaptureStore>, InspectFileError> {
    let captures = open_now(path, limits)?;
    wait_until_restored(&captures);
    Ok(captures)
}

/// The records of a file, some of which are read.
fn open_now(path: &Path, limits: FileLimits) -> Result<Arc<CaptureStore>, InspectFileError> {
    CaptureStore::with_file(CaptureLimit::Bytes(20 << 20), path, limits)
}

fn wait_until_restored(captures: &CaptureStore) {
    while captures.is_restoring() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Lets a file go, as agents do at their end: who reads it may have the records a moment longer.
fn end(captures: Arc<CaptureStore>) {
    captures.file().unwrap().close();
    drop(captures);
}

/// Records in a file, more than are read before an agent goes on; their identifiers, oldest first.
fn fill(path: &Path, count: usize) -> Vec<String> {
    let captures = open(path, LIMITS).unwrap();
    let record = |_| ImportedCapture {
        tunnel_name: String::new(),
        source: CaptureSource::default(),
        start: chrono::Utc::now(),
        exchange: CapturedExchange::ended(ExchangeMarks::default(), Duration::ZERO),
    };
    let ids = captures.import_captures((0..count).map(record).collect());
    // A busy machine may need longer for them than the end of an agent waits.
    while !captures.file().unwrap().queue.lock_state().jobs.is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    end(captures);
    ids
}

/// All records of a database, oldest first.
fn read_all(database: &CaptureDatabase) -> Vec<CaptureRecord> {
    let (mut position, mut all) = (ReadPosition::START, Vec::new());
    while let Some(records) = database.read_next(&mut position).unwrap() {
        all.extend(records);
    }
    all.sort_by_key(|record| record.sequence);
    all
}

fn request_head(target: &str) -> Vec<u8> {
    let mut head = Vec::new();
    HeadWriter::begin_request("POST", &[target], &mut head).end();
    head
}

/// Captures a request with a body of so many bytes; its identifier.
fn capture(captures: &Arc<CaptureStore>, size: usize) -> String {
    let recording = captures.start_recording(NewCapture {
        tunnel_name: "web",
        source: Arc::default(),
        head: &request_head("/"),
        body: &Body::Length(size as u64),
    });
    recording.request_body(&vec![b'x'; size]);
    recording.request_complete(b"");
    let mut head = Vec::new();
    HeadWriter::begin_response(204, &mut head).end();
    recording.response_head(&head, &Body::NONE);
    recording.mark_complete();
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
    let shown = captures.find(&before[0]).unwrap().to_captured_request();
    end(captures);

    let captures = open(&folder.file(), LIMITS).unwrap();
    let after = capture(&captures, 10);

    assert_eq!(ids(&captures), [before[0].clone(), before[1].clone(), after.clone()]);
    assert_eq!(captures.find(&before[0]).unwrap().to_captured_request(), shown);
    assert!(after > before[1], "{after} sorts after {}", before[1]);
    let counted: usize = captures.list(9, None).iter().map(|record| record.memory_cost()).sum();
    assert_eq!(captures.usage().bytes, counted);
}

#[test]
fn what_was_removed_stays_so_and_a_clear_empties_the_file() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let ids_before: Vec<_> = (0..3).map(|_| capture(&captures, 100_000)).collect();
    assert!(captures.remove(&ids_before[1]));
    end(captures);

    let captures = open(&folder.file(), LIMITS).unwrap();
    assert_eq!(ids(&captures), [ids_before[0].clone(), ids_before[2].clone()]);
    let lasting = captures.start_recording(NewCapture {
        tunnel_name: "web",
        source: Arc::default(),
        head: &request_head("/lasting"),
        body: &Body::NONE,
    });
    captures.clear().unwrap().blocking_recv().unwrap().unwrap();
    lasting.mark_complete();
    drop(lasting);
    assert!(!folder.holds(b"xxxx"), "bodies are still there");
    end(captures);

    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()), Vec::<String>::new());
}

#[test]
fn the_oldest_go_first_and_what_is_pinned_last() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let all: Vec<_> = (0..12).map(|_| capture(&captures, 300_000)).collect();
    captures.annotate(&all[0], Some(true), Some("the first".to_owned())).unwrap().unwrap();
    end(captures);

    let few = FileLimits { bytes: 1 << 20, ..LIMITS };
    let captures = open(&folder.file(), few).unwrap();

    assert_eq!(ids(&captures), [all[0].clone(), all[10].clone(), all[11].clone()]);
    let record = captures.find(&all[0]).unwrap();
    let exchange = record.lock_exchange().clone();
    assert_eq!((exchange.is_pinned, exchange.note.as_str()), (true, "the first"));
    assert!(captures.file().unwrap().usage().bytes <= few.bytes);
}

#[test]
fn what_is_too_old_goes_unless_it_is_pinned() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let [pinned, _] = [10, 20].map(|size| capture(&captures, size));
    captures.annotate(&pinned, Some(true), None).unwrap().unwrap();
    end(captures);

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
    end(captures);
    let mut content = fs::read(folder.file()).unwrap();
    let from = content.len() / 2;
    content[100..from].fill(0x5a);
    fs::write(folder.file(), &content).unwrap();

    let captures = open(&folder.file(), LIMITS).unwrap();
    assert_eq!(ids(&captures), Vec::<String>::new());
    capture(&captures, 10);
    end(captures);
    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()).len(), 1);
    let names = folder.names();
    assert!(names.iter().any(|name| name == "captures.db.damaged"), "{names:?}");

    for other in [&b"my notes, which are no database at all"[..], b"SQLite format 3\0 nearly"] {
        let path = folder.0.join("other");
        fs::write(&path, other).unwrap();
        let refused = open(&path, LIMITS).unwrap_err();
        assert!(matches!(refused, InspectFileError::Foreign(_)), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), other);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    let path = folder.0.join("other.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1);").unwrap();
    drop(database);
    assert!(matches!(open(&path, LIMITS).unwrap_err(), InspectFileError::Foreign(_)));
    assert!(open(&folder.0, LIMITS).unwrap_err().to_string().contains("is a link, or no file"));
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
    end(captures);
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o644)).unwrap();

    let captures = open(&folder.file(), LIMITS).unwrap();

    assert_eq!(mode(&folder.file()), 0o600);
    end(captures);
}

#[test]
fn records_that_find_no_place_in_the_queue_are_counted() {
    let queue = FileQueue::default();
    let file = InspectFile { path: PathBuf::from("f"), queue: Arc::new(queue) };
    let captures = CaptureStore::new(CaptureLimit::default());
    let id = capture(&captures, 10);
    let record = captures.find(&id).unwrap();

    (0..MAX_QUEUED_RECORDS + 5).for_each(|_| file.save_record(&record));

    assert_eq!(file.usage().dropped, 5);
    file.queue.lock_state().is_closed = true;
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
        queue.push_job(FileJob::Save(captures.find(&id).unwrap()));
        queue.lock_state().records += 1;
        assert!(queue.write_some(&mut database, true));
        let usage = queue.lock_state().usage.clone();
        assert_eq!(usage.problem.is_some(), size == 500_000, "{usage:?}");
    }

    assert_eq!(queue.lock_state().usage.dropped, 1);
    let records = read_all(&database);
    assert_eq!(records.len(), 2);
}

#[test]
fn what_cannot_be_written_takes_no_removal_with_it() {
    let folder = Folder::new();
    let mut database = CaptureDatabase::open(&folder.file(), LIMITS).unwrap();
    let captures = CaptureStore::new(CaptureLimit::default());
    let queue = FileQueue::default();
    let save = |size| {
        let record = captures.find(&capture(&captures, size)).unwrap();
        queue.push_job(FileJob::Save(record.clone()));
        queue.lock_state().records += 1;
        record
    };
    let first = save(10);
    assert!(queue.write_some(&mut database, true));
    database.limit_pages(24);

    save(500_000);
    let small = save(20);
    queue.push_job(FileJob::Remove(first.sequence));
    assert!(queue.write_some(&mut database, true));

    let records = read_all(&database);
    let ids: Vec<_> = records.iter().map(|record| record.id.as_str()).collect();
    assert_eq!((ids, queue.lock_state().usage.dropped), (vec![small.id.as_str()], 1));
}

#[test]
fn an_archive_longer_than_the_queue_is_kept_whole_however_old_it_is() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let old = || ImportedCapture {
        tunnel_name: String::new(),
        source: CaptureSource::default(),
        start: chrono::DateTime::UNIX_EPOCH,
        exchange: CapturedExchange::ended(ExchangeMarks::default(), Duration::ZERO),
    };
    let count = 2 * MAX_QUEUED_RECORDS;
    captures.import_captures((0..count).map(|_| old()).collect());
    end(captures);

    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()).len(), count);
}

#[test]
fn what_is_removed_is_in_no_file_any_more() {
    let folder = Folder::new();
    let captures = open(&folder.file(), LIMITS).unwrap();
    let id = capture(&captures, 100_000);
    captures.remove(&id);
    capture(&captures, 0);
    let is_written = || captures.file().unwrap().queue.lock_state().jobs.is_empty();
    while !is_written() || folder.holds(b"xxxx") {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_long_file_is_read_behind_what_comes_meanwhile() {
    let folder = Folder::new();
    let mut all = fill(&folder.file(), 4000);
    let mut was_seen_in_part = false;

    // On a busy machine all may be read before this thread has its turn.
    for _ in 0..20 {
        let captures = open_now(&folder.file(), LIMITS).unwrap();
        while captures.is_restoring() {
            all.push(capture(&captures, 10));
            let listed = ids(&captures);
            was_seen_in_part |= listed.len() < all.len();
            assert_eq!(listed, all[all.len() - listed.len()..], "the newest, and all of them");
        }
        assert_eq!(ids(&captures), all);
        let counted: usize =
            captures.list(usize::MAX, None).iter().map(|it| it.memory_cost()).sum();
        assert_eq!(captures.usage().bytes, counted);
        end(captures);
        if was_seen_in_part {
            break;
        }
    }

    assert!(was_seen_in_part);
    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()), all, "and all are written");
}

#[test]
fn a_clear_while_a_file_is_read_leaves_nothing() {
    let folder = Folder::new();
    fill(&folder.file(), 4000);

    let captures = open_now(&folder.file(), LIMITS).unwrap();
    let emptied = captures.clear().unwrap();
    let after = capture(&captures, 10);
    emptied.blocking_recv().unwrap().unwrap();
    assert_eq!(ids(&captures), std::slice::from_ref(&after));
    end(captures);

    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()), [after]);
}

#[test]
fn what_is_pinned_is_read_first_and_what_has_no_room_is_not() {
    let folder = Folder::new();
    let before = fill(&folder.file(), 4000);
    let captures = open(&folder.file(), LIMITS).unwrap();
    captures.annotate(&before[0], Some(true), None).unwrap().unwrap();
    let most = captures.usage().bytes / 2;
    end(captures);

    let limit = CaptureLimit::Bytes(most);
    let captures = CaptureStore::with_file(limit, &folder.file(), LIMITS).unwrap();
    assert!(captures.find(&before[0]).is_some());
    wait_until_restored(&captures);
    let listed = ids(&captures);
    assert_eq!(listed[0], before[0]);
    assert_eq!(listed[1..], before[before.len() + 1 - listed.len()..]);
    assert!((1900..2100).contains(&listed.len()), "{}", listed.len());
    assert!(captures.usage().bytes <= most && captures.usage().evicted == 0);
}

#[test]
fn an_agent_that_ends_while_a_file_is_read_lets_it_go() {
    let folder = Folder::new();
    let before = fill(&folder.file(), 4000);

    for _ in 0..5 {
        end(open_now(&folder.file(), LIMITS).unwrap());
    }

    assert_eq!(ids(&open(&folder.file(), LIMITS).unwrap()), before);
}
