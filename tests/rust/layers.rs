//! Arrows between folders point one way, and folders below them as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each folder, and what it may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("base", &[]),
    ("http1", &[]),
    ("logging", &[]),
    ("metrics", &[]),
    ("admin", &["metrics", "net"]),
    ("net", &["api", "http1"]),
    ("policy", &["api", "coding", "http1"]),
    ("settings", &["api"]),
    ("mux", &[]),
    ("protocol", &["mux"]),
    ("client", &["api", "coding", "http1", "net", "reuse"]),
    ("gateway", &["api", "files", "http1", "metrics", "net", "policy", "reuse"]),
    (
        "service",
        &[
            "admin",
            "api",
            "files",
            "gateway",
            "http1",
            "metrics",
            "mux",
            "net",
            "policy",
            "protocol",
            "reuse",
            "settings",
            "thread_runtime",
            "web",
        ],
    ),
    ("web", &[]),
    (
        "agent",
        &[
            "admin", "api", "coding", "http1", "metrics", "mux", "net", "protocol", "reuse",
            "settings", "web",
        ],
    ),
    (
        "cli",
        &["agent", "api", "client", "files", "gateway", "net", "policy", "service", "settings"],
    ),
    (
        "python",
        &[
            "agent",
            "api",
            "client",
            "coding",
            "gateway",
            "policy",
            "service",
            "cli",
            "thread_runtime",
        ],
    ),
];

/// What every folder may use.
const FOR_ALL: &[&str] = &["base", "fork", "logging"];

/// Rooms, and what they may use of their own folder and of those beside it.
const ROOMS: &[(&str, &str, &[&str])] = &[
    ("service/store", "service", &["store"]),
    (
        "service/publish",
        "service",
        &["certificates", "check", "cloud_endpoint", "publish", "references", "store", "vaults"],
    ),
    ("service/cluster", "service", &["Error", "agents", "cluster", "error", "store"]),
    (
        "service/agents",
        "service",
        &["Error", "Refusal", "accounts", "agents", "cluster", "code", "domains", "error", "store"],
    ),
    (
        "gateway/listener",
        "gateway",
        &["GatewayError", "GatewayState", "http", "listener", "routing", "tcp", "tls"],
    ),
    ("gateway/tls", "gateway", &["routing", "tls"]),
    ("gateway/upstream", "gateway", &["Io", "http", "routing", "upstream"]),
];

/// How many files may use each other in a circle.
const LARGEST_CYCLE: usize = 3;

/// Larger circles, by their folder, and how many files they have; these only shrink.
const CYCLES: &[(&str, usize)] = &[("gateway", 12)];

/// What `net` does for all, by the words of the code that does it, and the files that say these words
/// beside it: they accept answers, run calls at once, or are yet to use `net`. The lists only shrink.
const DONE_BY_NET: &[(&str, &[&str])] = &[
    // One loop accepts connections; clients accept answers.
    (
        ".accept()",
        &[
            "src/cli/doctor/reach.rs",
            "src/cli/operations/send.rs",
            "src/client/mod.rs",
            "src/python/core.rs",
        ],
    ),
    // One way to stop, and to wait for what is in flight.
    ("watch::Sender<bool>", &["src/mux/session.rs"]),
    ("watch::Sender<()>", &[]),
    ("JoinSet", &["src/agent/drain.rs", "src/service/agents/registry.rs"]),
    // One set-up of TLS.
    ("TlsAcceptor", &[]),
    ("default_provider", &["src/client/tls.rs"]),
    ("with_custom_certificate_verifier", &[]),
    ("load_native_certs", &["src/client/tls.rs"]),
    // One dialler opens connections; the drivers of the clients wait in their own ways, and ask it first.
    ("TcpStream::connect", &["src/service/cluster/peers/tests/lost.rs"]),
    ("Client::builder()", &[]),
    ("lookup_host", &[]),
    ("to_socket_addrs", &["src/client/dial.rs"]),
    ("socket2::Socket::new", &["src/client/dial.rs"]),
];

/// What `http1` does for all, in the same form: it writes heads, knows which fields concern one connection
/// alone, and reads lists.
const DONE_BY_HTTP1: &[(&str, &[&str])] = &[
    // One list of fields that go no further. The fast path takes no other option of a connection, and
    // HTTP/1.0 is told that its connection stays open.
    (
        "keep-alive\"",
        &["src/gateway/http/fast_path/request.rs", "src/gateway/http/response_writer.rs"],
    ),
    ("proxy-connection\"", &[]),
    ("http2-settings\"", &[]),
    ("\"te\"", &["src/agent/outgoing.rs"]),
    // Who writes a body says how it is framed; policies may not, wherever they come from.
    (
        "transfer-encoding\"",
        &[
            "src/agent/capture/record.rs",
            "src/agent/relay/http2/heads.rs",
            "src/gateway/http/fast_path/request.rs",
            "src/gateway/http/fast_path/response.rs",
            "src/policy/headers.rs",
        ],
    ),
    (
        "TRANSFER_ENCODING",
        &[
            "src/gateway/http/response_writer.rs",
            "src/gateway/upstream/http1.rs",
            "src/policy/exchange.rs",
        ],
    ),
    // One reader of heads, and one writer.
    ("httparse", &[]),
    ("HTTP/1.1 ", &[]),
    ("HTTP/1.1\\r\\n", &[]),
    // One reader of lists; clients believe in the last of those who forwarded a request first, and
    // `coding` stands below.
    ("split(|byte| *byte == b',')", &["src/coding.rs"]),
];

#[test]
fn only_net_does_what_it_does_for_all() {
    assert_done_by("net", DONE_BY_NET);
}

#[test]
fn only_http1_knows_what_concerns_one_connection_alone() {
    assert_done_by("http1", DONE_BY_HTTP1);
}

/// Makes sure that words stand in the files of a folder alone, and in those that are known.
fn assert_done_by(folder: &str, table: &[(&str, &[&str])]) {
    let (files, folder) = (files_below(Path::new("src")), Path::new("src").join(folder));
    // What tests say is theirs, in files of their own as at the end of others.
    let is_other = |file: &&PathBuf| !file.starts_with(&folder) && !file.ends_with("tests.rs");
    let others: Vec<_> = files.iter().filter(is_other).collect();
    for (words, known) in table {
        let saying = others.iter().filter(|file| code_of(file).contains(words));
        let saying: Vec<_> = saying.map(|file| file.to_str().unwrap()).collect();
        assert_eq!(saying, *known, "use what {} has instead of {words}", folder.display());
    }
}

#[test]
fn every_folder_uses_only_what_lies_below() {
    let folders = fs::read_dir("src").unwrap().map(|entry| entry.unwrap().path());
    for folder in folders.filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let (_, may_use) =
            MAY_USE.iter().find(|(known, _)| *known == name).expect("a folder with a place");
        let files = files_below(&folder);
        assert!(!files.is_empty(), "{name} holds no code");
        for file in files {
            for used in used_paths(&file) {
                let allowed =
                    [name].iter().chain(*may_use).chain(FOR_ALL).any(|may| *may == used[0]);
                assert!(allowed, "{} uses {}", file.display(), used[0]);
            }
        }
    }
}

#[test]
fn every_room_uses_only_what_it_may() {
    for (room, folder, may_use) in ROOMS {
        let files = files_below(&Path::new("src").join(room));
        assert!(!files.is_empty(), "{room} holds no code");
        for file in files {
            let used = used_paths(&file);
            for used in used.iter().filter(|used| used[0] == *folder && used.len() > 1) {
                let allowed = may_use.contains(&used[1].as_str());
                assert!(allowed, "{} uses {folder}::{}", file.display(), used[1]);
            }
        }
    }
}

#[test]
fn no_circle_of_files_is_large() {
    let graph = graph();
    let cycles = cycles(&graph);
    let large: Vec<_> = cycles.iter().filter(|cycle| cycle.len() > LARGEST_CYCLE).collect();
    for cycle in &large {
        println!("{} files use each other: {}", cycle.len(), cycle.join(", "));
    }
    let found: Vec<_> = large.iter().map(|cycle| (folder_of(cycle), cycle.len())).collect();
    let known: Vec<_> = CYCLES.iter().map(|(folder, size)| (folder.to_string(), *size)).collect();
    assert_eq!(found, known, "circles of files; the list only gets shorter");
}

/// The first folder of the files in a circle.
fn folder_of(cycle: &[String]) -> String {
    cycle[0].split("::").next().unwrap().to_owned()
}

pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The module that a file holds: `gateway::http::body`.
fn module_of(file: &Path) -> Vec<String> {
    let path = file.strip_prefix("src").unwrap().with_extension("");
    let mut parts: Vec<_> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// The code of a file, without its comments and its unit tests.
pub fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]\n").next().unwrap();
    let code = code.split("\nmod tests {").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// What a file uses of this crate: paths without `crate::`, those of `super::` made whole, groups
/// taken apart.
fn used_paths(file: &Path) -> BTreeSet<Vec<String>> {
    let (code, module) = (code_of(file), module_of(file));
    let children = children_of(&code);
    let mut used = BTreeSet::new();
    let mut rest = code.as_str();
    let mut last = "";
    while let Some((before, word, after)) = next_word(rest) {
        let starts_path = after.starts_with("::") && !before.ends_with("::");
        let is_use = last == "use" && before.trim().is_empty();
        let is_visibility = last == "in" && before.trim().is_empty();
        last = word;
        let base = match word {
            "crate" => Some(Vec::new()),
            "super" => Some(module[..module.len().saturating_sub(1)].to_vec()),
            "self" => Some(module.clone()),
            child if is_use && children.contains(child) => {
                Some([&module[..], &[child.to_owned()]].concat())
            }
            _ => None,
        };
        rest = after;
        if let Some(base) = base.filter(|_| starts_path && !is_visibility) {
            rest = &after[2 + path(&after[2..], base, &mut used)..];
        }
    }
    // What a module inside of a file calls `super` is the file, and no folder.
    let is_known = |name: &String| {
        let place = Path::new("src").join(name);
        place.is_dir() || place.with_extension("rs").is_file()
    };
    used.into_iter().filter(|path| path.first().is_some_and(is_known)).collect()
}

/// Reads what follows `::`, and adds the paths that it names; gives how much was read.
fn path(text: &str, mut base: Vec<String>, used: &mut BTreeSet<Vec<String>>) -> usize {
    if let Some(group) = text.strip_prefix('{') {
        let end = group_end(group);
        let items = split_group(&group[..end]).into_iter().map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            path(item, base.clone(), used);
        }
        return end + 2;
    }
    let length = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    match &text[..length] {
        "super" => drop(base.pop()),
        "self" | "" => {}
        word => base.push(word.to_owned()),
    }
    if let Some(after) = text[length..].strip_prefix("::") {
        return length + 2 + path(after, base, used);
    }
    used.insert(base);
    length
}

/// Where the braces close that were opened before the text.
fn group_end(text: &str) -> usize {
    let mut depth = 1;
    let close = text.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0
    });
    close.map_or(text.len(), |(at, _)| at)
}

fn split_group(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let split = text.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0 && c == ','
    });
    split.collect()
}

/// The first word of some code, with what stands before and after it.
fn next_word(text: &str) -> Option<(&str, &str, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let start = text.find(is_word)?;
    let length = text[start..].find(|c| !is_word(c)).unwrap_or(text.len() - start);
    Some((&text[..start], &text[start..start + length], &text[start + length..]))
}

/// The modules that a file declares in files of their own.
fn children_of(code: &str) -> BTreeSet<&str> {
    let declared = code.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let named = declared.filter_map(|line| line.rsplit_once("mod ").map(|(_, name)| name));
    named.filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')).collect()
}

/// Which files use which, by their modules; what a module re-exports belongs to where it is made.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let files = files_below(Path::new("src"));
    let modules: BTreeMap<String, &PathBuf> =
        files.iter().map(|file| (module_of(file).join("::"), file)).collect();
    let reexports = reexports(&files);
    let mut graph = BTreeMap::new();
    for (module, file) in &modules {
        let targets =
            used_paths(file).into_iter().map(|used| defined_in(used, &modules, &reexports));
        let others = targets.filter(|target| target != module && !target.is_empty());
        graph.insert(module.clone(), others.collect());
    }
    graph
}

/// What modules re-export, by the path under which it is seen.
fn reexports(files: &[PathBuf]) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for file in files {
        let (code, module) = (code_of(file), module_of(file));
        let children = children_of(&code);
        let uses = code.split(';').filter_map(|statement| {
            let (before, named) = statement.rsplit_once("use ")?;
            before.lines().last()?.trim().starts_with("pub").then_some(named.trim())
        });
        for named in uses {
            let first = named.split("::").next().unwrap();
            let base = match first {
                "crate" => Vec::new(),
                "super" => module[..module.len().saturating_sub(1)].to_vec(),
                "self" => module.clone(),
                child if children.contains(child) => [&module[..], &[child.to_owned()]].concat(),
                _ => continue,
            };
            let mut paths = BTreeSet::new();
            path(named[first.len()..].trim_start_matches("::"), base, &mut paths);
            for made in paths {
                let seen = [&module[..], &made[made.len() - 1..]].concat().join("::");
                found.insert(seen, made);
            }
        }
    }
    found
}

/// The module that holds what a path names.
fn defined_in(
    used: Vec<String>,
    modules: &BTreeMap<String, &PathBuf>,
    reexports: &BTreeMap<String, Vec<String>>,
) -> String {
    for length in (1..=used.len()).rev() {
        let seen = used[..length].join("::");
        if modules.contains_key(&seen) {
            return seen;
        }
        if let Some(made) = reexports.get(&seen).filter(|made| **made != used[..length]) {
            return defined_in([&made[..], &used[length..]].concat(), modules, reexports);
        }
    }
    String::new()
}

/// The circles in a graph: files that reach each other, the largest circles first.
fn cycles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut seen = BTreeSet::new();
    let mut cycles = Vec::new();
    for (file, reached) in &reach {
        if !reached.contains(file) || seen.contains(file) {
            continue;
        }
        let cycle: Vec<_> =
            reached.iter().copied().filter(|other| reach[*other].contains(file)).collect();
        seen.extend(cycle.iter().copied());
        cycles.push(cycle.into_iter().cloned().collect::<Vec<_>>());
    }
    cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    cycles
}

fn reachable<'g>(
    graph: &'g BTreeMap<String, BTreeSet<String>>,
    from: &String,
) -> BTreeSet<&'g String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = graph[from].iter().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(&graph[file]);
        }
    }
    reached
}
