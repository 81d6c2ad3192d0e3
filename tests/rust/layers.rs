//! Arrows between folders point one way.

use std::fs;
use std::path::Path;

/// Each folder, and what it may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("http1", &[]),
    ("net", &["api"]),
    ("gateway", &["api", "files", "http1", "net", "policy", "reuse"]),
    ("policy", &[]),
    ("mux", &[]),
    ("protocol", &["mux"]),
    ("client", &["api", "http1", "reuse"]),
    ("service", &["api", "files", "gateway", "http1", "net", "policy", "reuse", "mux", "protocol"]),
    ("agent", &["api", "http1", "net", "reuse", "mux", "protocol"]),
    ("cli", &["agent", "api", "client", "gateway", "net", "policy", "service"]),
    ("python", &["agent", "api", "client", "gateway", "policy", "service", "cli"]),
];

#[test]
fn every_folder_uses_only_what_lies_below() {
    let folders = fs::read_dir("src").unwrap().map(|entry| entry.unwrap().path());
    for folder in folders.filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let (_, may_use) =
            MAY_USE.iter().find(|(known, _)| *known == name).expect("a folder with a place");
        let mut seen = 0;
        check(&folder, name, may_use, &mut seen);
        assert!(seen > 0, "{name} holds no code");
    }
}

fn check(folder: &Path, name: &str, may_use: &[&str], seen: &mut usize) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            check(&path, name, may_use, seen);
            continue;
        }
        *seen += 1;
        let text = fs::read_to_string(&path).unwrap();
        for used in text.split("crate::").skip(1) {
            let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            let allowed = used == name || may_use.contains(&used) || used.is_empty();
            assert!(allowed, "{} uses {used}", path.display());
        }
    }
}
