//! Whether the process of a node still runs, where that can be seen from here.
//!
//! A node that was killed and started again would otherwise wait until its lease is over before it gets its
//! name back.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The nodes of this process.
static NODES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A node of this process, until it is dropped.
pub(super) struct LocalNode(String);

impl LocalNode {
    pub(super) fn new(node_id: &str) -> Self {
        lock_nodes().insert(node_id.to_owned());
        Self(node_id.to_owned())
    }
}

impl Drop for LocalNode {
    fn drop(&mut self) {
        lock_nodes().remove(&self.0);
    }
}

fn lock_nodes() -> MutexGuard<'static, BTreeSet<String>> {
    NODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What names this process among all of the machine since it was switched on: empty where that cannot be
/// known.
pub(super) fn own_process() -> String {
    let id = std::process::id();
    boot_namespace()
        .zip(start_of(id))
        .map_or_else(String::new, |(place, start)| format!("{place} {id} {start}"))
}

/// Whether the process that ran a node has ended, and so the node; false where that cannot be seen.
pub(super) fn has_ended(process: &str, node_id: &str) -> bool {
    if process.is_empty() {
        return false;
    }
    if process == own_process() {
        return !lock_nodes().contains(node_id);
    }
    let mut words = process.rsplitn(3, ' ');
    let (start, id, from) = (words.next(), words.next(), words.next());
    let id = id.and_then(|id| id.parse().ok());
    let is_here = from.is_some() && from.map(str::to_owned) == boot_namespace();
    is_here && id.is_some_and(|id| start_of(id).as_deref() != start)
}

/// What names the machine since it was switched on, and whose processes can be seen.
fn boot_namespace() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// When a process was started, in ticks since the machine was; none when it does not run.
fn start_of(id: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything; the state and 18 numbers follow it.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    let is_over = matches!(state, "Z" | "X");
    fields.nth(18).filter(|_| !is_over).map(str::to_owned)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_of_this_machine_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_of(child.id()).unwrap();
        let process = format!("{} {} {started}", boot_namespace().unwrap(), child.id());
        assert!(!has_ended(&process, "node_1"));

        child.kill().unwrap();
        child.wait().unwrap();

        assert!(has_ended(&process, "node_1"));
        assert!(!has_ended(&format!("another machine {} 1", child.id()), "node_1"));
        assert!(!has_ended("", "node_1"));
    }

    #[test]
    fn a_node_of_this_process_ends_when_it_is_dropped() {
        let node = LocalNode::new("node_own");
        assert!(!has_ended(&own_process(), "node_own"));

        drop(node);

        assert!(has_ended(&own_process(), "node_own"));
    }
}
