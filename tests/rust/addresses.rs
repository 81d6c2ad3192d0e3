//! Text from outside that names a host is parsed by `base::address` before a lenient parser or a resolver sees it.

use std::fs;
use std::path::Path;

use super::layers::files_below;

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
    ("agent/relay/http2/heads.rs", 2, "the Host field of a request that was admitted"),
    ("base/address/web_url.rs", 1, "the text is written anew from an Authority"),
    ("client/dial.rs", 1, "the host of a BaseUrl or of a proxy"),
    ("client/proxy/mod.rs", 1, "the text of a BaseUrl"),
    ("gateway/modules/traffic_policy/internal_fetch.rs", 1, "the path of a WebUrl"),
    ("gateway/upstream/http2.rs", 1, "the Host field of a request that was admitted"),
    ("net/outbound_client.rs", 1, "the text of a WebUrl"),
    ("net/resolve.rs", 2, "the host of a HostPort"),
    ("policy/trial/traffic.rs", 1, "an Authority has read the text before"),
    ("service/console/mod.rs", 1, "a path"),
];

#[test]
fn no_lenient_parser_sees_text_from_outside() {
    let mut wrong = Vec::new();
    let mut unused: Vec<_> = ALLOWED.iter().map(|(file, ..)| *file).collect();
    for file in files_below(Path::new("src")).iter().filter(|file| !is_test(file)) {
        let name = file.strip_prefix("src").unwrap().to_str().unwrap().replace('\\', "/");
        let found = count(&code_of(file));
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

fn is_test(file: &Path) -> bool {
    file.ends_with("tests.rs") || file.iter().any(|part| part == "tests")
}

/// The code of a file without comments and unit tests. Some files declare their tests before their code.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap().replace("#[cfg(test)]\nmod tests;\n", "");
    let code = text.split("#[cfg(test)]\n").next().unwrap();
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
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
