//! Writers of one node, in this process or one of their own.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ginnel_api::Origin;
use ginnel_store::{Document, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How many writers there are.
pub const WRITERS: usize = 64;
/// How many documents there are to read.
pub const SEEDED: usize = 20_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    pub id: String,
    pub text: String,
}

impl Document for Note {
    const PREFIX: &'static str = "note";

    fn id(&self) -> &str {
        &self.id
    }
}

/// The text of a document, as long as that of a resource with a description and metadata.
pub fn text() -> String {
    "office network, for all who work there ".repeat(4)
}

/// What a job does beside storing a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobShape {
    Create,
    /// Reads one of the documents that were there before.
    ReadAndCreate,
}

/// What became of the jobs of a node: when each was acknowledged, and how long it took, in microseconds.
pub struct Acknowledgements(pub Vec<(u64, u64)>);

impl Acknowledgements {
    pub fn rate(&self, seconds: f64) -> f64 {
        self.0.len() as f64 / seconds
    }

    pub fn percentile(&self, share: f64) -> f64 {
        let mut times: Vec<_> = self.0.iter().map(|(_, took)| *took).collect();
        times.sort_unstable();
        let at = (times.len() as f64 * share) as usize;
        times.get(at.min(times.len().saturating_sub(1))).map_or(0.0, |took| *took as f64 / 1e3)
    }

    /// The longest time without an acknowledgement, in seconds.
    pub fn longest_gap(&self) -> f64 {
        let mut times: Vec<_> = self.0.iter().map(|(at, _)| *at).collect();
        times.sort_unstable();
        times.windows(2).map(|two| (two[1] - two[0]) as f64 / 1e6).fold(0.0, f64::max)
    }
}

pub fn open(address: &str) -> Store {
    let options = address.parse().expect("an address");
    Store::open_postgres(options, Origin::default()).expect("a database")
}

/// Stores the documents that are read later.
pub async fn seed(store: &Store) {
    for chunk in 0..SEEDED / 1000 {
        let seeded = store.write(move |change| -> Result<(), StoreError> {
            (0..1000).try_for_each(|number| change.put_document(&seeded_note(chunk * 1000 + number)))
        });
        seeded.await.expect("a change");
    }
}

fn seeded_note(number: usize) -> Note {
    Note { id: format!("note_{number:027}"), text: text() }
}

/// Has all writers write for so long.
pub async fn write(store: &Arc<Store>, shape: JobShape, seconds: f64) -> Acknowledgements {
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds);
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let (mut acknowledged, mut number) = (Vec::new(), writer * 7919);
            while Instant::now() < end {
                let started = Instant::now();
                number = (number * 31 + 17) % SEEDED;
                let made = store.write(move |change| -> Result<(), StoreError> {
                    if shape == JobShape::ReadAndCreate {
                        change.find_document::<Note>(&seeded_note(number).id)?.expect("it was seeded");
                    }
                    let id = change.new_id("note")?;
                    change.put_document(&Note { id, text: text() })
                });
                made.await.expect("a change");
                acknowledged.push((micros(began.elapsed()), micros(started.elapsed())));
            }
            acknowledged
        })
    });
    let mut all = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        all.extend(writer.await.expect("a writer"));
    }
    Acknowledgements(all)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The part of a node that is a process of its own: writes for so long, and says what became of it.
pub async fn run(address: &str, seconds: f64) {
    let store = Arc::new(open(address));
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).expect("a word to start");
    let Acknowledgements(all) = write(&store, JobShape::Create, seconds).await;
    println!("{}", json!(all));
    store.close();
}

/// A node in a process of its own.
pub struct Node {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Node {
    pub fn start(address: &str, seconds: f64) -> Self {
        let program = std::env::current_exe().expect("a program");
        let mut process = Command::new(program)
            .args(["node", address, &seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        output.read_line(&mut String::new()).expect("a node that is ready");
        Self { process, output }
    }

    /// Has it write from now on.
    pub fn go(&mut self) {
        drop(self.process.stdin.take());
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// Waits until it has written.
    pub fn finish(mut self) -> Acknowledgements {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a report");
        self.process.wait().expect("its end");
        let report: Value = serde_json::from_str(&line).expect("JSON");
        Acknowledgements(serde_json::from_value(report).expect("pairs of numbers"))
    }
}
