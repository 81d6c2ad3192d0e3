//! The readings of a path: servers and libraries, each with the most lenient of its settings.
//!
//! Servers match their own routes with a path that they have decoded, taken parameters off or resolved, each
//! in its own way. A path that leads two of them to different places must not pass a rule for only one of
//! these. Real servers refuse some of these paths; a reading that never happens refuses a request too many,
//! and lets none through.

use percent_encoding::percent_decode_str;

use super::{RequestPath, decode_escape, has_broken_escape, is_path, normalize_escapes};

/// Reads a path as a server does, unless the server refuses it.
type PathReader = fn(&str) -> Option<String>;

const READERS: [PathReader; 10] = [
    read_as_tomcat,
    read_as_jetty,
    read_as_spring,
    read_as_nginx,
    read_as_node,
    node_behind_origin,
    read_as_resolver,
    literal_resolver,
    read_as_python,
    read_as_asgi,
];

/// The readings of a path by all servers that do not refuse it, in the form that routes and rules look at.
pub(super) fn server_readings(path: &str) -> impl Iterator<Item = String> {
    let read = READERS.iter().filter_map(move |read| read(path));
    read.map(|path| normalize_path(&path))
}

fn normalize_path(path: &str) -> String {
    RequestPath::new(path).into_normal().into_owned()
}

/// Tomcat takes parameters off, decodes, merges slashes and then resolves dot segments.
/// `encodedSolidusHandling` and `allowBackslash` can make slashes of `%2F` and `\`.
fn read_as_tomcat(path: &str) -> Option<String> {
    let decoded = decode_path(&without_parameters(path))?;
    within_root(&normalize_path(&decoded.replace("%5C", "/")))
}

/// Jetty takes parameters off each segment and resolves dot segments with and without escapes; `%2F` stays
/// part of a segment.
fn read_as_jetty(path: &str) -> Option<String> {
    if has_broken_escape(path) {
        return None;
    }
    within_root(&normalize_escapes(&without_parameters(path), false))
}

/// Spring's `UrlPathHelper` takes parameters off and decodes the rest; dot segments stay.
fn read_as_spring(path: &str) -> Option<String> {
    decode_path(&without_parameters(path))
}

/// nginx decodes, merges slashes and resolves dot segments; parameters stay.
fn read_as_nginx(path: &str) -> Option<String> {
    within_root(&normalize_path(&decode_path(path)?))
}

/// The `URL` of node, by the WHATWG standard: backslashes are slashes, what follows two of them is a host, and
/// dot segments are resolved. Nothing is decoded.
fn read_as_node(path: &str) -> Option<String> {
    let slashes = path.replace('\\', "/");
    let path = match slashes.strip_prefix("//") {
        Some(rest) => {
            let rest = rest.trim_start_matches('/');
            rest.get(rest.find('/').unwrap_or(rest.len())..).unwrap_or_default()
        }
        None => &slashes,
    };
    Some(resolved_within(&normalize_escapes(path, false)))
}

/// The `URL` of node for an origin with the path behind it, so that no part of the path is a host.
fn node_behind_origin(path: &str) -> Option<String> {
    read_as_resolver(&path.replace('\\', "/"))
}

/// Resolvers of URLs resolve dot segments, with and without escapes, and leave other escapes (RFC 3986, section 5.2.4).
fn read_as_resolver(path: &str) -> Option<String> {
    Some(resolved_within(&normalize_escapes(path, false)))
}

/// The resolvers of Python and libcurl resolve dot segments without escapes only.
fn literal_resolver(path: &str) -> Option<String> {
    Some(resolved_within(path))
}

/// The `http.server` of Python decodes without an error, merges slashes, and resolves dot segments at the root as well.
fn read_as_python(path: &str) -> Option<String> {
    Some(resolved_within(&normalize_path(&read_as_asgi(path)?)))
}

/// Servers of ASGI and WSGI, such as uvicorn, decode without an error, and resolve nothing.
fn read_as_asgi(path: &str) -> Option<String> {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    Some(encode_path(&decoded))
}

/// The path without the parameters of its segments.
fn without_parameters(path: &str) -> String {
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    segments.collect::<Vec<_>>().join("/")
}

/// Returns the path without escapes, except of octets that no path may contain. Broken escapes and NUL are
/// refused.
fn decode_path(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let (mut octets, mut at) = (Vec::with_capacity(path.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let octet = if *byte == b'%' { decode_escape(bytes, at)? } else { *byte };
        at += if *byte == b'%' { 3 } else { 1 };
        octets.push(octet);
    }
    (!octets.contains(&0)).then(|| encode_path(&octets))
}

/// Octets as a path in which only those are escaped that must be.
fn encode_path(octets: &[u8]) -> String {
    let mut path = String::with_capacity(octets.len());
    for octet in octets {
        match octet {
            octet if is_path(*octet) => path.push(char::from(*octet)),
            octet => path.push_str(&format!("%{octet:02X}")),
        }
    }
    path
}

/// Returns the path without dot segments, unless they lead out of the root.
fn within_root(path: &str) -> Option<String> {
    resolve_dots(path).ok()
}

/// Returns the path without dot segments; those that lead out of the root lead to it.
fn resolved_within(path: &str) -> String {
    resolve_dots(path).unwrap_or_else(|path| path)
}

/// The path without dot segments, as an error where one led out of the root.
fn resolve_dots(path: &str) -> Result<String, String> {
    let mut segments: Vec<&str> = Vec::new();
    let mut is_outside = false;
    let mut rest = path.split('/').skip(1).peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        match segment {
            "." => {}
            ".." => is_outside |= segments.pop().is_none(),
            segment => {
                segments.push(segment);
                continue;
            }
        }
        if is_last {
            segments.push("");
        }
    }
    let resolved = format!("/{}", segments.join("/"));
    if is_outside { Err(resolved) } else { Ok(resolved) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reading of a path, in the form that rules look at.
    fn read(reader: PathReader, path: &str) -> Option<String> {
        reader(path).map(|path| normalize_path(&path))
    }

    #[test]
    fn each_server_reads_paths_in_its_own_way() {
        let servers = [
            read_as_tomcat as PathReader,
            read_as_jetty,
            read_as_spring,
            read_as_nginx,
            read_as_node,
            read_as_python,
        ];
        for (path, expected) in [
            ("/a", ["/a"; 6].map(Some)),
            ("/%61//b", ["/a/b"; 6].map(Some)),
            ("/a%2Fb", ["/a/b", "/a%2Fb", "/a/b", "/a/b", "/a%2Fb", "/a/b"].map(Some)),
            ("/;x/a", ["/a", "/a", "/a", "/;x/a", "/;x/a", "/;x/a"].map(Some)),
            ("/a;x/b", ["/a/b", "/a/b", "/a/b", "/a;x/b", "/a;x/b", "/a;x/b"].map(Some)),
            (
                "/a%3Bx/b",
                ["/a;x/b", "/a%3Bx/b", "/a;x/b", "/a;x/b", "/a%3Bx/b", "/a;x/b"].map(Some),
            ),
            ("/x/..;/a", ["/a", "/a", "/x/../a", "/x/..;/a", "/x/..;/a", "/x/..;/a"].map(Some)),
            ("/x/%2e%2E/a", ["/a", "/a", "/x/../a", "/a", "/a", "/a"].map(Some)),
            ("/x%2f..%2fa", ["/a", "/x%2F..%2Fa", "/x/../a", "/a", "/x%2F..%2Fa", "/a"].map(Some)),
            (
                "/x\\..\\a",
                ["/a", "/x%5C..%5Ca", "/x%5C..%5Ca", "/x%5C..%5Ca", "/a", "/x%5C..%5Ca"].map(Some),
            ),
            ("/x/;/../a", ["/a", "/x/a", "/x/../a", "/x/a", "/x/a", "/x/a"].map(Some)),
            ("/../a", [None, None, Some("/../a"), None, Some("/a"), Some("/a")]),
            ("//x/a", ["/x/a", "/x/a", "/x/a", "/x/a", "/a", "/x/a"].map(Some)),
            ("/a%00", [None, Some("/a%00"), None, None, Some("/a%00"), Some("/a%00")]),
            ("/%zz", [None, None, None, None, Some("/%zz"), Some("/%25zz")]),
        ] {
            for (server, expected) in servers.iter().zip(expected) {
                assert_eq!(read(*server, path).as_deref(), expected, "{path}");
            }
        }
    }

    #[test]
    fn lenient_readers_decode_or_resolve_what_strict_ones_refuse() {
        for (reader, path, expected) in [
            (node_behind_origin as PathReader, "/\\admin;x", "/admin;x"),
            (read_as_node, "/\\admin;x", "/"),
            (read_as_resolver, "/./a\\%zz", "/a%5C%zz"),
            (read_as_resolver, "/a%2F%2e%2E/b/../c", "/a%2F../c"),
            (literal_resolver, "/a/%2e/../admin", "/a/admin"),
            (read_as_asgi, "/a%2F../%zz;x", "/a/../%25zz;x"),
            (read_as_asgi, "/a%00%2F.", "/a%00/."),
            (read_as_python, "/%2Fa//../%zz", "/%25zz"),
        ] {
            assert_eq!(read(reader, path).as_deref(), Some(expected), "{path}");
            assert!(server_readings(path).any(|reading| reading == expected), "{path}");
        }
    }

    #[test]
    fn a_plain_path_has_one_reading() {
        for path in ["/", "/a/b.c/", "/a..b", "/a=c@d:e", "/a,b+c!d$e&f'g(h)*i~j"] {
            assert!(super::super::is_plain(path), "{path}");
            assert!(server_readings(path).all(|reading| reading == path), "{path}");
        }
    }
}
