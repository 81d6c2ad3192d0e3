//! Text from outside that names a host is parsed by `base::address` before a lenient parser or a resolver sees it.

use super::source::crates;

/// Parsers that read one text in several ways, and functions that resolve names.
const LENIENT: &[&str] = &[
    "Url::parse(",
    "Url::from_str(",
    "Url::options(",
    "parse::<Url>",
    "parse::<url::Url>",
    ": Url = ",
    "Uri::try_from(",
    "Uri::from_str(",
    "Uri::from_maybe_shared(",
    "parse::<Uri>",
    "parse::<http::Uri>",
    ": Uri = ",
    "Authority::try_from(",
    "Authority::from_str(",
    "Authority::from_maybe_shared(",
    "parse::<Authority>",
    "lookup_host(",
    "to_socket_addrs(",
];

/// Files that may use them, how often, and the reason. The list only gets shorter.
const ALLOWED: &[(&str, usize, &str)] = &[
    ("crates/agent/src/relay/http2/heads.rs", 2, "the Host field of a request that was admitted"),
    ("crates/base/src/address/web_url.rs", 1, "the text is written anew from an Authority"),
    ("crates/client/src/dial.rs", 1, "the host of a BaseUrl or of a proxy"),
    ("crates/gateway/src/modules/traffic_policy/internal_fetch.rs", 1, "the path of a WebUrl"),
    ("crates/gateway/src/upstream/http2.rs", 1, "the Host field of a request that was admitted"),
    ("crates/net/src/outbound_client.rs", 1, "the text of a WebUrl"),
    ("crates/net/src/proxy/mod.rs", 1, "the host and the port of a ProxyTarget"),
    ("crates/net/src/resolve.rs", 2, "the host of a HostPort"),
    ("crates/policy/src/trial/traffic.rs", 1, "an Authority has read the text before"),
    ("crates/service/src/console/mod.rs", 1, "a path"),
];

#[test]
fn no_lenient_parser_sees_text_from_outside() {
    let mut wrong = Vec::new();
    let mut unused: Vec<_> = ALLOWED.iter().map(|(file, ..)| *file).collect();
    for file in crates().into_iter().flat_map(|it| it.files) {
        let name = file.path.to_str().unwrap();
        let found = count(&file.code);
        let allowed = ALLOWED.iter().find(|(file, ..)| *file == name);
        let allowed = allowed.map_or(0, |(_, number, _)| *number);
        unused.retain(|file| *file != name);
        if found != allowed {
            wrong.push(format!("{name}: {found} uses, {allowed} are allowed"));
        }
    }
    assert!(
        wrong.is_empty(),
        "use WebUrl, Authority, HostPort or RequestHost of base::address first:\n{}",
        wrong.join("\n")
    );
    assert!(unused.is_empty(), "remove from ALLOWED what is gone: {unused:?}");
}

/// Returns the number of uses, without types such as `EndpointUrl` whose names end in the same way.
fn count(code: &str) -> usize {
    let is_whole =
        |at: usize| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    let uses = LENIENT.iter().flat_map(|word| code.match_indices(word));
    uses.filter(|(at, word)| word.starts_with(':') || is_whole(*at)).count()
}

#[test]
fn a_lenient_parser_is_found() {
    for code in [
        "let url = Url::parse(text)?;",
        "url::Url::parse(text)",
        "let uri: Uri = text.parse()?;",
        "text.parse::<Uri>()",
        "uri::Authority::try_from(host)",
        "tokio::net::lookup_host((host, 80)).await",
    ] {
        assert_eq!(count(code), 1, "{code}");
    }
    for code in ["EndpointUrl::parse(text)", "WebUrl::parse(text)", "fn parse(text: &str) -> Url {"]
    {
        assert_eq!(count(code), 0, "{code}");
    }
}
