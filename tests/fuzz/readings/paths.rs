//! Paths of requests, and the targets that they are in.

use serde_json::{Value, json};

use ginnel_policy::path::RequestPath;

use super::super::random::Random;
use super::super::targets::raw_targets;
use super::{assembled, compare, read, refused};

/// The texts of a run in `make test`, which takes a second.
const TEXTS: usize = 1_000;

const PATHS: &[&str] = &[
    "/", "/", "/", "/", "//", ".", "..", "...", "%2e", "%2E%2e", "%2F", "%2f", "\\", "%5c", ";",
    ";x=1", "..;", "a", "b", "admin", "%61", "%41b", "%", "%zz", "%4", "%00", "%20", "%25",
    "%252f", "%3B", "\u{e9}", "%c3%a9", "%ff", "\"", "|", "{x}", "~", "%7e", "+", ":", "@", "=&,",
    "'", "^", "`",
];
const SCHEMES: &[&str] = &["", "", "", "http://", "https://", "HTTP://", "http:", "//", "ftp://"];
const HOSTS: &[&str] = &[
    "a.test",
    "A.Test",
    "a.test:80",
    "a.test:",
    "a.test:0080",
    "a.test:99999",
    "[::1]:8080",
    "[::1",
    "127.0.0.1",
    "127.1",
    "ada@a.test",
    "ada:b@a.test:80",
    "a_b.test",
    "a b",
    "",
    "b\u{fc}.test",
    "a%2etest",
    "a.test.",
    "*",
];
const QUERIES: &[&str] = &[
    "",
    "",
    "?",
    "?q",
    "?a=1&b=2",
    "?q=%2F..",
    "?x?y",
    "?\"",
    "?q=a/../b",
    "?\u{e9}",
    "?[x]|{}^",
    "?`",
    "#part",
    "?q#part",
    "?q= x",
    "?%zz",
    "?<",
];

#[test]
fn other_programs_read_no_other_path() {
    compare("path", TEXTS, |random| vec![path(random), target(random)]);
}

fn path(random: &mut Random) -> Value {
    let text = format!("/{}", assembled(random, PATHS, 8));
    let path = RequestPath::new(&text);
    assert_eq!(RequestPath::new(path.normal()).normal(), path.normal(), "{text}");
    let resolved = path.resolve_path();
    if let Ok(resolved) = &resolved {
        assert_eq!(RequestPath::new(resolved).resolve_path().as_ref(), Ok(resolved), "{text}");
    }
    let reading = json!({
        "normal": path.normal(),
        "readings": path.other_readings().0,
        "ambiguity": path.ambiguity().map(|it| it.content()),
        "resolved": resolved.ok(),
    });
    read("RequestPath", text.clone(), reading)
}

fn target(random: &mut Random) -> Value {
    let scheme = *random.pick(SCHEMES);
    let host = if scheme.is_empty() && random.below(8) > 0 { "" } else { *random.pick(HOSTS) };
    let slash = if random.below(8) == 0 { "" } else { "/" };
    let path = assembled(random, PATHS, 4);
    let text = format!("{scheme}{host}{slash}{path}{}", random.pick(QUERIES));
    let Some(admitted) = raw_targets::admitted(&text) else {
        return refused("Target", text, "Refused");
    };
    let (host, port, target) = &admitted;
    let place = port.map(|port| format!(":{port}")).unwrap_or_default();
    let printed = format!("http://{host}{place}{target}");
    assert_eq!(raw_targets::admitted(&printed).as_ref(), Some(&admitted), "{text}");
    let host = (!text.starts_with('/')).then_some(host);
    read("Target", text, json!({"host": host, "port": port, "target": target}))
}
