//! Several nodes on one server: what they rely on, and what becomes of changes when the server or the
//! way to it breaks.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ginnel_api::Origin;
use ginnel_service::copy_store;
use ginnel_store::{Changes, DatabaseLocation, PostgresOptions, Store, StoreError, Transaction};

use super::{Note, ids, note};
use crate::engines::{self, PostgresServer};
use crate::service::breaker::COMMIT;
use crate::service::nodes::Gate;
use crate::service::support::Folder;

/// Adds one to a number that is stored, which has to be read for that.
async fn count_up(store: &Store) -> Result<(), StoreError> {
    let count = store.write(|change| -> Result<(), StoreError> {
        let known =
            change.find_document::<Note>("note_count")?.map_or("0".to_owned(), |note| note.text);
        let next = known.parse::<u32>().unwrap() + 1;
        change.put_document(&Note { id: "note_count".to_owned(), text: next.to_string() })
    });
    count.await
}

fn counted(store: &Store) -> u32 {
    let found = store.read_blocking(|view| view.find_document::<Note>("note_count")).unwrap();
    found.map_or(0, |note| note.text.parse().unwrap())
}

/// How many of 600 increments are lost when four sessions make them in this way. `{lock}` and `{read}`
/// stand for statements.
fn lost_updates(body: &str) -> i64 {
    let server = engines::server();
    let database = server.new_database();
    server.psql(
        &database,
        "CREATE TABLE lock (version bigint); INSERT INTO lock VALUES (0);
         CREATE TABLE counter (value bigint); INSERT INTO counter VALUES (0)",
    );
    let script = format!(
        "DO $$ DECLARE seen bigint; BEGIN FOR i IN 1..150 LOOP {body}
         UPDATE counter SET value = seen + 1; COMMIT; END LOOP; END $$"
    );
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| server.psql(&database, &script));
        }
    });
    600 - server.psql(&database, "SELECT value FROM counter").parse::<i64>().unwrap()
}

/// True when increments are lost in this way; tries until the sessions have overlapped.
fn loses_updates(body: &str) -> bool {
    (0..20).any(|_| lost_updates(body) > 0)
}

#[test]
fn only_a_read_in_a_statement_after_the_lock_loses_no_update() {
    let lock_then_read =
        "UPDATE lock SET version = version + 1; SELECT value INTO seen FROM counter;";
    let both_in_one = "WITH locked AS (UPDATE lock SET version = version + 1 RETURNING version)
        SELECT value INTO seen FROM counter, locked;";
    let read_then_lock =
        "SELECT value INTO seen FROM counter; UPDATE lock SET version = version + 1;";

    assert_eq!(lost_updates(lock_then_read), 0);
    assert!(loses_updates(both_in_one), "the order of the statements would not matter");
    assert!(loses_updates(read_then_lock), "the order of the statements would not matter");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_lose_no_change_of_each_other_and_hear_of_it() {
    let database = engines::new_database();
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(engines::open(&database))).collect();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = heard.clone();
    nodes[0].watch_changes(move |changed| log.lock().unwrap().extend(ids(changed)));

    let writers = nodes.iter().cloned().map(|node| {
        tokio::spawn(async move {
            for _ in 0..50 {
                count_up(&node).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    nodes[1].write(|change| change.put_document(&note(7))).await.unwrap();

    assert!(nodes.iter().all(|node| counted(node) == 150));
    while !heard.lock().unwrap().contains(&"note_007".to_owned()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count = heard.lock().unwrap().iter().filter(|id| *id == "note_count").count();
    assert_eq!(count, 150, "each change is told of once, whoever made it");
}

/// What a node hears of when this SQL is run on its database, and of a change after that.
async fn heard_after(sql: &str) -> Vec<Changes> {
    let server = engines::server();
    let database = server.new_database();
    let address = server.address(&database).parse().unwrap();
    let (writer, reader) = (engines::open(&address), engines::open(&address));
    let (heard, news) = std::sync::mpsc::channel();
    reader.watch_changes(move |changes| heard.send(changes.clone()).unwrap());
    let next = || news.recv_timeout(Duration::from_secs(10)).unwrap();
    for number in 0..3 {
        writer.write(move |change| change.put_document(&note(number))).await.unwrap();
        assert_eq!(ids(&next()), [note(number).id]);
    }
    let (doubts, version) = (reader.doubt_count(), reader.change_news().unwrap().version);

    server.psql(&database, &sql.replace("{version}", &version.to_string()));
    let mut all = vec![next()];
    assert!(reader.doubt_count() > doubts, "nothing is true any more that was remembered");
    writer.write(move |change| change.put_document(&note(7))).await.unwrap();
    while all.last().is_none_or(|last| *last == Changes::All) {
        all.push(next());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_missed_changes_hears_that_all_may_have_changed_and_goes_on() {
    let histories = [
        ("trimmed", "UPDATE cluster SET version = {version} + 9; DELETE FROM changes"),
        (
            "trimmed, with newer ones",
            "UPDATE cluster SET version = {version} + 9; DELETE FROM changes;
             INSERT INTO changes VALUES ({version} + 9, 'token', '[]')",
        ),
        (
            "moved back",
            "DELETE FROM changes WHERE version >= {version};
             UPDATE cluster SET version = {version} - 1",
        ),
        (
            "moved back, and on again",
            "DELETE FROM changes WHERE version >= {version};
             INSERT INTO changes SELECT {version} + n, 'token', '[]' FROM generate_series(0, 5) n;
             UPDATE cluster SET version = {version} + 5",
        ),
    ];
    for (history, sql) in histories {
        let sql = format!("SET search_path = ginnel; BEGIN; {sql}; COMMIT");

        let heard = heard_after(&sql).await;

        assert_eq!(heard, [Changes::All, Changes::Of(vec![note(7).id])], "{history}");
    }
}

#[tokio::test]
async fn identifiers_of_one_node_are_larger_than_those_of_another_before() {
    let database = engines::new_database();
    let (one, other) = (engines::open(&database), engines::open(&database));
    let mut ids = Vec::new();

    for node in [&one, &other, &one, &other] {
        ids.push(
            node.write(|change| {
                let id = change.new_id("note")?;
                change.put_document(&Note { id: id.clone(), text: String::new() })?;
                Ok::<_, StoreError>(id)
            })
            .await
            .unwrap(),
        );
    }

    assert!(ids.is_sorted_by(|earlier, later| earlier < later), "{ids:?}");
}

/// How a connection is cut when a commit is sent over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The server gets the commit, and its response is lost.
    Response,
    /// The commit is lost.
    Commit,
    /// The client is cut off first, and the server gets the commit later.
    Late,
}

/// A way to the server that cuts a connection when the next commit is sent over it.
struct Cutter {
    port: u16,
    next: Arc<Mutex<Option<Cut>>>,
    cuts: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Cutter {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (next, cuts): (Arc<Mutex<Option<Cut>>>, Arc<AtomicUsize>) = Default::default();
        let ended = Arc::new(AtomicBool::new(false));
        let (of_thread, counted, is_over) = (next.clone(), cuts.clone(), ended.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let upstream = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (mut from, mut to) =
                    (upstream.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (next, cuts) = (of_thread.clone(), counted.clone());
                thread::spawn(move || forward(client, upstream, &next, &cuts));
            }
        });
        Self { port, next, cuts, ended }
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    next: &Mutex<Option<Cut>>,
    cuts: &AtomicUsize,
) {
    let mut buffer = vec![0; 1 << 16];
    let mut writes = false;
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let bytes = &buffer[..read];
        // Readers commit as well; only who writes sets this.
        writes |= contains(bytes, "synchronous_commit");
        let cut = match writes && contains(bytes, COMMIT) {
            true => next.lock().unwrap().take(),
            false => None,
        };
        let Some(cut) = cut else {
            if server.write_all(bytes).is_err() {
                break;
            }
            continue;
        };
        cuts.fetch_add(1, Ordering::Relaxed);
        match cut {
            Cut::Response => server.write_all(bytes).unwrap(),
            Cut::Commit => {}
            Cut::Late => {
                client.shutdown(Shutdown::Both).unwrap();
                thread::sleep(Duration::from_millis(100));
                server.write_all(bytes).unwrap();
            }
        }
        client.shutdown(Shutdown::Both).ok();
        thread::sleep(Duration::from_millis(20));
        break;
    }
    let _ = server.shutdown(Shutdown::Both);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_made_once_however_its_commit_is_cut_off() {
    let cuts: usize = match std::env::var("GINNEL_CUTS") {
        Ok(cuts) => cuts.parse().unwrap(),
        Err(_) => 20,
    };
    let server = engines::server();
    let database = server.new_database();
    let cutter = Cutter::start(server.port());
    let address = format!("postgres://ginnel@127.0.0.1:{}/{database}", cutter.port);
    let store = engines::open(&address.parse().unwrap());
    count_up(&store).await.unwrap();
    let direct = engines::open(&server.address(&database).parse().unwrap());

    for number in 0..cuts {
        let cut = [Cut::Response, Cut::Commit, Cut::Late][number % 3];
        let before = counted(&direct);
        *cutter.next.lock().unwrap() = Some(cut);

        let made = count_up(&store).await;

        assert!(made.is_ok(), "{cut:?}: {made:?}");
        assert_eq!(counted(&direct), before + 1, "{cut:?}");
    }
    assert_eq!(cutter.cuts.load(Ordering::Relaxed), cuts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_there_as_it_is_said_however_its_commit_is_cut_off() {
    let server = engines::server();
    let cutter = Cutter::start(server.port());
    let folder = Folder::new();
    let store = Store::open(Some(&folder.file("db"))).unwrap();
    store.write(|change| change.put_document(&note(7))).await.unwrap();
    drop(store);
    let original = DatabaseLocation::File(folder.file("db"));

    for cut in [Cut::Response, Cut::Commit, Cut::Late, Cut::Response, Cut::Commit, Cut::Late] {
        let database = server.new_database();
        let address = format!("postgres://ginnel@127.0.0.1:{}/{database}", cutter.port);
        let place: DatabaseLocation = address.parse().unwrap();
        *cutter.next.lock().unwrap() = Some(cut);

        let copied = copy_store(&original, &place);

        let found = "SELECT to_regclass('ginnel.resources') IS NOT NULL";
        assert_eq!(server.psql(&database, found) == "t", copied.is_ok(), "{cut:?}: {copied:?}");
        match cut {
            Cut::Response => assert!(copied.is_ok(), "{copied:?}"),
            Cut::Commit => assert!(copied.is_err()),
            Cut::Late => {}
        }
        if let Err(error) = copied {
            assert!(!error.to_string().contains("not known"), "{error}");
            copy_store(&original, &place).unwrap();
        }
    }
    assert_eq!(cutter.cuts.load(Ordering::Relaxed), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_change_is_lost_when_the_server_is_killed() {
    let server = Arc::new(PostgresServer::start(&[]));
    let database = server.new_database();
    let store = Arc::new(engines::open(&server.address(&database).parse().unwrap()));
    let stop = Arc::new(AtomicBool::new(false));
    let writers = (0..8).map(|writer| {
        let (store, stop) = (store.clone(), stop.clone());
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let id = format!("note_{writer}_{number:06}");
                let note = Note { id: id.clone(), text: String::new() };
                if store.write(move |change| change.put_document(&note)).await.is_ok() {
                    acknowledged.push(id);
                }
            }
            acknowledged
        })
    });
    let writers: Vec<_> = writers.collect();

    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let server = server.clone();
        tokio::task::spawn_blocking(move || {
            server.kill();
            server.run(&[]);
        })
        .await
        .unwrap();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }

    assert!(!acknowledged.is_empty());
    let ids = server.psql(&database, "SELECT id FROM ginnel.resources");
    let stored: std::collections::HashSet<_> = ids.lines().collect();
    let lost: Vec<_> = acknowledged.iter().filter(|id| !stored.contains(id.as_str())).collect();
    assert!(lost.is_empty(), "{} of {}: {lost:?}", lost.len(), acknowledged.len());
    store.close();
    server.kill();
}

/// How often other nodes were notified while so many changes were made one after the other.
async fn notified_of(changes: u32, work: fn(&Transaction<'_>)) -> usize {
    let database = engines::new_database();
    let node = engines::open(&database);
    let name = database.to_string().rsplit('/').next().unwrap().to_owned();
    let listener = name.clone();
    let listening = tokio::task::spawn_blocking(move || {
        engines::server().psql_in_turn(&listener, &["LISTEN ginnel_changes", "SELECT pg_sleep(5)"])
    });
    // It listens once it sleeps.
    let asleep = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND query = 'SELECT pg_sleep(5)'";
    let began = Instant::now();
    while tokio::task::block_in_place(|| engines::server().psql(&name, asleep)) != "1" {
        assert!(began.elapsed() < Duration::from_secs(30), "it listens");
    }

    for number in 0..changes {
        let change = move |change: &Transaction<'_>| {
            work(change);
            change.put_document(&note(number))
        };
        node.write(change).await.unwrap();
    }

    listening.await.unwrap().matches("Asynchronous notification").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_nodes_are_notified_of_a_change_and_once_of_many() {
    let notified = notified_of(100, |_| {}).await;

    assert!((1..100).contains(&notified), "{notified} notifications");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_nodes_are_not_notified_of_what_can_wait() {
    assert_eq!(notified_of(10, |change| change.defer_notice()).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_closes_although_its_server_does_not_respond() {
    let server = engines::server();
    let database = server.new_database();
    let gate = Gate::start(server.port()).await;
    let address = format!("postgres://ginnel@127.0.0.1:{}/{database}", gate.port);
    let store = Arc::new(engines::open(&address.parse().unwrap()));
    count_up(&store).await.unwrap();

    gate.close(true);
    let (writing, reading) = (store.clone(), store.clone());
    let write = tokio::spawn(async move { count_up(&writing).await });
    let read = tokio::spawn(async move { reading.read(|view| view.exists("note_1")).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let closed = tokio::task::spawn_blocking(move || store.close());

    // A response is waited for twelve seconds otherwise, and more than once.
    tokio::time::timeout(Duration::from_secs(11), closed).await.unwrap().unwrap();
    assert!(write.await.unwrap().is_err());
    assert!(read.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_gives_up_within_its_time_although_the_server_does_not_respond() {
    let server = engines::server();
    let database = server.new_database();
    let gate = Gate::start(server.port()).await;
    let address = format!("postgres://ginnel@127.0.0.1:{}/{database}", gate.port);
    let store = Arc::new(engines::open(&address.parse().unwrap()));
    count_up(&store).await.unwrap();

    gate.close(true);
    let reads: Vec<_> = (0..40)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.read(|view| view.exists("note_1")).await })
        })
        .collect();

    // A response is waited for twelve seconds otherwise.
    let written = tokio::time::timeout(Duration::from_millis(11_900), count_up(&store)).await;
    assert!(written.unwrap().is_err(), "ten seconds are promised");
    let all = async {
        for read in reads {
            assert!(read.await.unwrap().is_err());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("none waits for the others");
    store.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_follows_another_is_not_read() {
    let server = PostgresServer::start(&["-c", "fsync=off"]);
    let address: PostgresOptions = server.address(&server.new_database()).parse().unwrap();
    let store = engines::open(&address);
    store.write(|change| change.put_document(&note(1))).await.unwrap();

    // As after a switchover, for an address that leads to the wrong server.
    server.kill();
    server.make_standby();
    server.run(&["-c", "fsync=off"]);

    let read = store.read(|view| view.find_document::<Note>("note_001")).await;
    assert!(read.is_err(), "what it says may be old");
    assert!(Store::open_postgres(address, Origin::default()).is_err());
    let began = Instant::now();
    while store.change_news().unwrap().age < Duration::from_secs(1) {
        assert!(began.elapsed() < Duration::from_secs(20), "it gives news");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    store.close();
    server.kill();
}

/// How long after the response to a change another node hears of it, in milliseconds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it alone, with --nocapture"]
async fn propagation() {
    let database = engines::new_database();
    let (writer, reader) = (engines::open(&database), engines::open(&database));
    let (heard, news) = std::sync::mpsc::channel();
    reader.watch_changes(move |_| heard.send(std::time::Instant::now()).unwrap());
    let mut times = Vec::new();
    for number in 0..1000 {
        writer.write(move |change| change.put_document(&note(number))).await.unwrap();
        let answered = std::time::Instant::now();
        let heard = tokio::task::block_in_place(|| news.recv().unwrap());
        times.push(heard.saturating_duration_since(answered).as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(u64::from(number % 17))).await;
    }
    times.sort_by(f64::total_cmp);
    println!(
        "propagation: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        times[500], times[990], times[999]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_values_the_server_refuses_fails_alone() {
    let store = Arc::new(engines::open(&engines::new_database()));
    // While this one waits, the others come to share a commit.
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let opened = Arc::new(Mutex::new(opened));
    let first = store.clone();
    let first = tokio::spawn(async move {
        let wait = move |change: &Transaction<'_>| {
            let _ = opened.lock().unwrap().recv_timeout(Duration::from_secs(10));
            change.put_document(&note(999))
        };
        first.write(wait).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let write = |number: u32| {
        let store = store.clone();
        tokio::spawn(async move {
            let put = move |change: &Transaction<'_>| {
                // More than an index takes, also compressed.
                if number % 10 == 3 {
                    let numbers = (1u64..9000).map(|it| it.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    let name: String = numbers.map(|it| format!("{:x}", it >> 20)).collect();
                    change.store_setting(&name, "text")?;
                }
                change.put_document(&note(number))
            };
            store.write(put).await
        })
    };
    let writes: Vec<_> = (0..50).map(write).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    // It runs again behind the lock, and does not wait then.
    drop(open);

    first.await.unwrap().unwrap();
    for (number, write) in (0..).zip(writes) {
        let written = write.await.unwrap();
        assert_eq!(written.is_err(), number % 10 == 3, "{number}: {written:?}");
        let id = note(number).id;
        let found = store.read_blocking(|view| view.find_document::<Note>(&id)).unwrap();
        assert_eq!(found.is_some(), number % 10 != 3, "{number}");
    }
}

#[test]
fn a_database_that_cannot_hold_every_text_is_refused() {
    let server = engines::server();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = format!("encoded_{}", encoding.to_lowercase());
        let make = format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        server.psql("postgres", &make);
        let address: PostgresOptions = server.address(&name).parse().unwrap();

        let refused = Store::open_postgres(address.clone(), Origin::default()).err().unwrap();

        let message = refused.to_string();
        assert!(message.contains(&format!("{name}: has the encoding {encoding}")), "{message}");
        assert!(message.contains("needs UTF8"), "{message}");
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'ginnel'";
        assert_eq!(server.psql(&name, schemas), "0", "nothing is left there");
    }
}
