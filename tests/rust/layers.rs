//! Cargo keeps the arrows between crates; this keeps what Cargo cannot: small circles inside of a crate, the
//! invariants of crates, and one place for what is done for all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::source::{Crate, CratePath, SourceFile, crates};

/// How many files, or rooms of a folder, may use each other in a circle.
const LARGEST_CIRCLE: usize = 3;

/// Crates with larger circles: of files, and of rooms of a folder. These numbers only get smaller.
const LARGER_CIRCLES: &[(&str, usize, usize)] = &[];

/// A crate, a sentence of its documentation, and what its code may not name and its manifest may not contain.
const INVARIANTS: &[(&str, &str, &[&str])] = &[
    ("agent", "does not depend on the service", &["ginnel_service", "ginnel_gateway", "pyo3"]),
    ("api", "does no I/O", IO),
    ("base", "knows no protocol", &["http::", "hyper::", "rustls::", "ginnel_api::"]),
    ("cli", "uses no Python", &["pyo3"]),
    ("client", "the service nor the agent is needed", &["ginnel_service", "ginnel_agent", "axum"]),
    ("content", "does no I/O", IO),
    ("gateway", "neither the database nor the management API", &["ginnel_store", "rusqlite"]),
    ("ginnel", "the only crate that knows Python", &[]),
    ("http1", "do no I/O", &["tokio::fs", "std::fs", "ginnel_net"]),
    ("metrics", "neither locks nor allocates", &["tokio", "axum"]),
    (
        "mux",
        "does not know which connections",
        &["ginnel_service", "ginnel_agent", "ginnel_gateway"],
    ),
    ("net", "passes the dialler", &["ginnel_gateway", "ginnel_client"]),
    ("policy", "does no I/O and starts no threads", IO),
    ("service", "only the crate `store` contains SQL", &["rusqlite", "tokio_postgres", "pyo3"]),
    ("sessions", "the operations of the management API", &["ginnel_service", "rusqlite", "pyo3"]),
    ("settings", "does not know which settings exist", &["ginnel_service", "ginnel_agent"]),
    ("store", "SQL is written only in this crate", &["ginnel_service", "ginnel_gateway"]),
    ("web", "Pages load nothing from other hosts", &["reqwest", "ginnel_net"]),
];

/// The folders of the gateway, and the folders of the crate that each of them may use. Files directly in the
/// crate belong to no folder. Only the server may use the server.
const GATEWAY_FOLDERS: &[(&str, &[&str])] = &[
    ("message", &["published"]),
    ("login", &["message", "published"]),
    ("modules", &["login", "message", "published", "upstream"]),
    ("published", &[]),
    ("routing", &["message", "modules", "tls", "upstream"]),
    ("server", &["login", "message", "modules", "published", "routing", "tls", "upstream"]),
    ("tls", &[]),
    ("upstream", &["message"]),
];

/// What code without I/O and threads does not name.
const IO: &[&str] = &[
    "std::fs",
    "std::net::Tcp",
    "std::thread",
    "tokio::net",
    "tokio::fs",
    "ginnel_net",
    "reqwest",
];

/// What `net` does for all, by the words of the code that does it, and the files that say these words
/// beside it: they run calls at once, or do not use `net` yet. The lists only shrink.
const DONE_BY_NET: &[(&str, &[&str])] = &[
    // One loop accepts connections.
    (".accept()", &[]),
    // One way to stop, and to wait for what is in flight.
    ("watch::Sender<bool>", &["crates/mux/src/session.rs"]),
    ("watch::Sender<()>", &[]),
    ("JoinSet", &["crates/agent/src/drain.rs", "crates/sessions/src/agents/registry.rs"]),
    // One set-up of TLS.
    ("TlsAcceptor", &[]),
    ("default_provider", &["crates/client/src/tls.rs"]),
    ("with_custom_certificate_verifier", &[]),
    ("load_native_certs", &["crates/client/src/tls.rs"]),
    // One dialler opens connections; the drivers of the clients wait in their own ways, and ask it first.
    ("TcpStream::connect", &[]),
    ("Client::builder()", &[]),
    ("lookup_host", &[]),
    ("to_socket_addrs", &["crates/client/src/dial.rs"]),
    ("socket2::Socket::new", &["crates/client/src/dial.rs"]),
];

/// What `http1` does for all, in the same form: it writes heads, knows which fields concern one connection
/// alone, and reads lists.
const DONE_BY_HTTP1: &[(&str, &[&str])] = &[
    // One list of fields that go no further. The fast path takes no other option of a connection, and
    // HTTP/1.0 is told that its connection stays open.
    (
        "keep-alive\"",
        &[
            "crates/gateway/src/server/fast_path/request.rs",
            "crates/gateway/src/server/response_writer.rs",
        ],
    ),
    ("proxy-connection\"", &[]),
    ("http2-settings\"", &[]),
    ("\"te\"", &["crates/content/src/outgoing.rs"]),
    // Who writes a body says how it is framed; policies may not, wherever they come from.
    (
        "transfer-encoding\"",
        &[
            "crates/agent/src/capture/record.rs",
            "crates/agent/src/relay/http2/heads.rs",
            "crates/gateway/src/server/fast_path/request.rs",
            "crates/gateway/src/server/fast_path/response.rs",
            "crates/policy/src/headers.rs",
        ],
    ),
    (
        "TRANSFER_ENCODING",
        &["crates/gateway/src/server/response_writer.rs", "crates/gateway/src/upstream/http1.rs"],
    ),
    // One owner of the fields that describe the bytes of a body.
    ("repr-digest\"", &[]),
    ("content-md5\"", &[]),
    // One reader of heads, and one writer.
    ("httparse", &[]),
    ("HTTP/1.1 ", &[]),
    ("HTTP/1.1\\r\\n", &[]),
    // One reader of lists; clients trust the last proxy that forwarded a request.
    ("split(|byte| *byte == b',')", &[]),
];

#[test]
fn only_net_does_what_it_does_for_all() {
    assert_done_by("net", DONE_BY_NET);
}

#[test]
fn only_http1_knows_what_concerns_one_connection_alone() {
    assert_done_by("http1", DONE_BY_HTTP1);
}

/// Makes sure that words stand in the files of a crate alone, and in those that are known.
fn assert_done_by(owner: &str, table: &[(&str, &[&str])]) {
    let crates = crates();
    let others = crates.iter().filter(|it| it.name != owner);
    let files: Vec<_> = others.flat_map(|it| &it.files).collect();
    for (words, known) in table {
        let saying = files.iter().filter(|file| file.code.contains(words));
        let mut saying: Vec<_> = saying.map(|file| file.path.to_str().unwrap()).collect();
        saying.sort_unstable();
        assert_eq!(saying, *known, "use what {owner} has instead of {words}");
    }
}

#[test]
fn every_crate_keeps_its_invariants() {
    let crates = crates();
    for (name, sentence, forbidden) in INVARIANTS {
        let found = crates.iter().find(|it| it.name == *name).expect("a crate of this name");
        let documentation = fs::read_to_string(&found.files[0].path).unwrap();
        assert!(documentation.contains(sentence), "the documentation of {name} lacks: {sentence}");
        let manifest = fs::read_to_string(found.folder.join("Cargo.toml")).unwrap();
        for word in *forbidden {
            let package = word.trim_end_matches("::").replace('_', "-");
            let dependency = format!("\n{package}.workspace");
            assert!(!manifest.contains(&dependency), "{name} depends on {word}, but: {sentence}");
            let saying = found.files.iter().find(|file| file.code.contains(word));
            let saying = saying.map(|file| file.path.display());
            assert!(saying.is_none(), "{} names {word}, but: {sentence}", saying.unwrap());
        }
    }
    let known: BTreeSet<_> = INVARIANTS.iter().map(|(name, ..)| *name).collect();
    let without: Vec<_> = crates.iter().filter(|it| !known.contains(it.name.as_str())).collect();
    assert!(without.is_empty(), "crates need an invariant");
}

#[test]
fn no_circle_is_large() {
    let found = crates().into_iter().filter_map(|it| {
        let graph = graph(&it);
        let (files, rooms) = (circles(&graph), circles_of_rooms(&graph));
        for circle in files.iter().chain(&rooms).filter(|it| it.len() > LARGEST_CIRCLE) {
            println!("{}: {} use each other: {}", it.name, circle.len(), circle.join(", "));
        }
        let largest = |circles: &[Vec<String>]| circles.first().map_or(0, Vec::len);
        let (files, rooms) = (largest(&files), largest(&rooms));
        (files.max(rooms) > LARGEST_CIRCLE).then_some((it.name, files, rooms))
    });
    let known =
        LARGER_CIRCLES.iter().map(|(name, files, rooms)| (name.to_string(), *files, *rooms));
    assert_eq!(found.collect::<Vec<_>>(), known.collect::<Vec<_>>());
}

#[test]
fn folders_of_the_gateway_use_only_those_below_them() {
    let gateway = crates().into_iter().find(|it| it.name == "gateway").expect("the gateway");
    let folder_of = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let known: BTreeMap<_, _> = GATEWAY_FOLDERS.iter().copied().collect();
    for (module, targets) in graph(&gateway) {
        let from = folder_of(&module);
        for to in targets.iter().map(|target| folder_of(target)).filter(|to| *to != from) {
            let is_below = match known.get(from.as_str()) {
                Some(below) => !known.contains_key(to.as_str()) || below.contains(&to.as_str()),
                None => module.is_empty() || to != "server",
            };
            assert!(is_below, "{module} may not use {to}");
        }
    }
}

/// Which files of a crate use which, by their modules; what a module re-exports belongs to where it is made.
/// A folder that names its own files makes no circle with files that use what the folder shares.
fn graph(it: &Crate) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeMap<CratePath, &SourceFile> =
        it.files.iter().map(|file| (file.module.clone(), file)).collect();
    let targets = |file: &SourceFile| {
        let used = file.uses.iter().map(|path| defined_in(path, &modules, 0));
        let others = used.filter(|used| !used.starts_with(&file.module));
        others.map(|used| used.join("::")).filter(|used| !used.is_empty()).collect()
    };
    it.files.iter().map(|file| (file.module.join("::"), targets(file))).collect()
}

/// The module that holds what a path names.
fn defined_in(
    path: &[String],
    modules: &BTreeMap<CratePath, &SourceFile>,
    depth: usize,
) -> CratePath {
    for length in (1..=path.len()).rev() {
        let (seen, rest) = path.split_at(length);
        if modules.contains_key(seen) {
            return seen.to_vec();
        }
        let (name, parent) = seen.split_last().unwrap();
        let made = modules.get(parent).and_then(|file| file.reexports.get(name));
        if let Some(made) = made.filter(|made| *made != seen && depth < 20) {
            return defined_in(&[&made[..], rest].concat(), modules, depth + 1);
        }
    }
    CratePath::new()
}

/// Circles of the rooms of each folder: of what lies directly in it.
fn circles_of_rooms(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, targets) in graph {
        let from: Vec<_> = from.split("::").collect();
        for to in targets {
            let to: Vec<_> = to.split("::").collect();
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if shared == from.len() || shared == to.len() {
                continue;
            }
            let room = |path: &[&str]| path[..=shared].join("::");
            let rooms = folders.entry(from[..shared].join("::")).or_default();
            rooms.entry(room(&to)).or_default();
            rooms.entry(room(&from)).or_default().insert(room(&to));
        }
    }
    let mut found: Vec<_> = folders.values().flat_map(circles).collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// The circles in a graph: nodes that reach each other, the largest circles first.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (node, reached) in &reach {
        if !reached.contains(node) || seen.contains(node) {
            continue;
        }
        let circle: Vec<_> =
            reached.iter().copied().filter(|other| reach[*other].contains(node)).collect();
        seen.extend(circle.iter().copied());
        circles.push(circle.into_iter().cloned().collect::<Vec<_>>());
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reachable<'g>(
    graph: &'g BTreeMap<String, BTreeSet<String>>,
    from: &String,
) -> BTreeSet<&'g String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = graph[from].iter().collect();
    while let Some(node) = next.pop() {
        if reached.insert(node) {
            next.extend(graph.get(node).into_iter().flatten());
        }
    }
    reached
}
