use std::collections::HashMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::*;

const ORIGIN: &str = "https://api.example.test";

/// A target of its own.
struct Origin {
    host: Host,
    port: u16,
    is_tls: bool,
}

impl Origin {
    fn target(&self) -> ProxyTarget<'_> {
        ProxyTarget { host: &self.host, port: self.port, is_tls: self.is_tls }
    }
}

fn origin(address: &str) -> Origin {
    let (scheme, rest) = address.split_once("://").unwrap();
    let (is_tls, place) = (scheme == "https", rest.split('/').next().unwrap());
    let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port.parse().unwrap()),
        None => (place, if is_tls { 443 } else { 80 }),
    };
    Origin { host: Host::parse(host).unwrap(), port, is_tls }
}

fn proxy(address: &str) -> Proxy {
    Proxy::parse("proxy", address).unwrap()
}

fn problem(address: &str) -> String {
    Proxy::parse("proxy", address).err().unwrap_or_else(|| panic!("{address}")).to_string()
}

/// A proxy that reads so many bytes and then answers, step by step, and at the end reads on or closes
/// its side; gives what it read.
struct Stub {
    steps: Vec<(usize, Vec<u8>)>,
    closes: bool,
}

impl Stub {
    fn start(self) -> (TcpStream, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let served = thread::spawn(move || {
            let mut read = Vec::new();
            for (length, answer) in &self.steps {
                let mut request = vec![0; *length];
                // The client may have seen enough.
                if server.read_exact(&mut request).is_err() {
                    break;
                }
                read.extend(request);
                let _ = server.write_all(answer);
            }
            if self.closes {
                let _ = server.shutdown(Shutdown::Write);
            }
            let _ = server.read_to_end(&mut read);
            read
        });
        (client, served)
    }
}

/// What comes of a handshake with such a proxy, and what the proxy read.
fn open(
    address: &str,
    target: &str,
    steps: Vec<(usize, Vec<u8>)>,
) -> (Result<(), ProxyError>, Vec<u8>) {
    let (mut client, served) = Stub { steps, closes: true }.start();
    let outcome = proxy(address).open_tunnel(&mut client, &origin(target).target(), None);
    drop(client);
    (outcome, served.join().unwrap())
}

const CONNECT: &str = "CONNECT api.example.test:443 HTTP/1.1\r\nhost: api.example.test:443\r\n\r\n";

/// What comes of this answer to CONNECT.
fn connect(answer: &[u8]) -> Result<(), ProxyError> {
    let (outcome, read) = open("http://proxy", ORIGIN, vec![(CONNECT.len(), answer.to_vec())]);
    assert_eq!(read, CONNECT.as_bytes());
    outcome
}

/// What comes of these answers to the greeting, to the login if there is one, and to the request.
fn socks(address: &str, answers: &[&[u8]]) -> Result<(), ProxyError> {
    let login = [0x01, 0x01, b'u', 0x02, b'p', b'w'];
    let request = 7 + "api.example.test".len();
    let lengths = match address.contains('@') {
        true if answers.len() == 3 => vec![4, login.len(), request],
        true => vec![4, request],
        false => vec![3, request],
    };
    let steps = lengths.into_iter().zip(answers.iter().map(|answer| answer.to_vec()));
    open(address, ORIGIN, steps.collect()).0
}

#[test]
fn an_address_has_a_scheme_a_host_and_a_port() {
    for (address, shown) in [
        ("http://proxy", "http://proxy:80"),
        ("https://proxy", "https://proxy:443"),
        ("socks5://proxy", "socks5://proxy:1080"),
        ("socks5h://proxy", "socks5h://proxy:1080"),
        ("proxy", "http://proxy:80"),
        ("proxy:3128", "http://proxy:3128"),
        ("user:pw@proxy:3128", "http://proxy:3128"),
        ("localhost:3128/", "http://localhost:3128"),
        (" HTTP://Proxy.Example:8080/ \n", "http://proxy.example:8080"),
        ("SOCKS5H://Proxy.Example:80", "socks5h://proxy.example:80"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("socks5://[2001:DB8::1]", "socks5://[2001:db8::1]:1080"),
        ("socks5://127.0.0.1:9050", "socks5://127.0.0.1:9050"),
        ("http://bücher.example", "http://xn--bcher-kva.example:80"),
        ("socks5://bücher.example", "socks5://xn--bcher-kva.example:1080"),
    ] {
        assert_eq!(proxy(address).0.to_string(), shown, "{address}");
    }
    let v6 = proxy("https://[::1]");
    assert_eq!((v6.host(), v6.port(), v6.is_tls()), ("::1", 443, true));
    assert!(!proxy("http://proxy").is_tls() && !proxy("socks5://proxy").is_tls());
}

#[test]
fn what_is_no_address_of_a_proxy_is_refused_with_what_it_takes() {
    for (address, words) in [
        ("ftp://proxy", "the scheme ftp is not supported"),
        ("socks4://proxy", "the scheme socks4 is not supported"),
        ("socks4a://proxy", "the scheme socks4a is not supported"),
        ("socks://proxy", "the scheme socks is not supported"),
        ("file:///etc/passwd", "the scheme file is not supported"),
        ("://proxy", "the scheme  is not supported"),
        ("", "empty host"),
        ("  ", "empty host"),
        ("http://", "empty host"),
        ("socks5://", "empty host"),
        ("http://:3128", "empty host"),
        ("socks5:proxy:1080", "invalid port"),
        ("http:/proxy", "no port follows the colon"),
        ("proxy:port", "invalid port"),
        ("proxy:65536", "invalid port"),
        ("proxy:0", "port 0"),
        ("socks5://proxy:0", "port 0"),
        ("http://proxy/path", "something follows"),
        ("http://proxy?query", "something follows"),
        ("http://proxy#fragment", "something follows"),
        ("http://a b", "white space"),
        ("socks5://a b", "white space"),
        ("http://[::1", "not an IPv6 address"),
        ("http://::1:80", "in brackets"),
        ("proxy:08080", "invalid port"),
        ("proxy:+80", "invalid port"),
        ("http://127.1:80", "127.1 is a number, not a host"),
        ("http://\u{ff11}27.0.0.1", "look like ASCII"),
        ("socks5://:pw@proxy", "1 to 255 bytes"),
        ("nonsense:", "no port follows the colon"),
        ("http://proxy:", "no port follows the colon"),
        ("socks5h://proxy:/", "no port follows the colon"),
        ("http://[::1]:", "no port follows the colon"),
        ("https:", "no port follows the colon"),
        ("socks5://:1080", "empty host"),
        ("socks5:///proxy", "empty host"),
        ("http:///proxy", "empty host"),
        ("http://user:pw@", "empty host"),
        ("user@:3128", "empty host"),
        ("3128", "3128 is a number, not a host"),
        ("http://3128:80", "3128 is a number, not a host"),
        ("socks5://0x7f.1", "0x7f.1 is a number, not a host"),
        ("ht\ntp://proxy", "no white space"),
        ("http://pro\txy", "no white space"),
        ("socks5://proxy\\path", "no white space"),
    ] {
        let problem = problem(address);
        assert!(problem.starts_with(&format!("proxy={address:?}: ")) || address.contains('@'));
        assert!(problem.contains(words), "{address}: {problem}");
        assert!(problem.contains("must be http, https, socks5 or socks5h://"), "{problem}");
    }
    let long = format!("socks5://{}:pw@proxy", "u".repeat(256));
    assert!(problem(&long).contains("1 to 255 bytes"));
}

#[test]
fn no_error_shows_a_password() {
    for address in [
        "ftp://user:s3cret@proxy",
        "user:s3cret@proxy:port",
        "http://user:s3cret@pro xy",
        "http://user:s3/cret@proxy",
        "http://user:s3@cret@proxy/path",
        "socks5://:s3cret@proxy",
    ] {
        let problem = problem(address);
        assert!(!problem.contains("s3") && !problem.contains("user:s"), "{problem}");
        assert!(problem.contains("@pro"), "{problem}");
    }
}

#[test]
fn credentials_are_decoded() {
    let proxy = proxy("http://us%65r:p%40ss%3A%F6@proxy");
    assert_eq!(proxy.0.login, Some((b"user".to_vec(), b"p@ss:\xf6".to_vec())));
    // base64 of the bytes above
    assert_eq!(proxy.authorization().unwrap(), "Basic dXNlcjpwQHNzOvY=");
    assert!(proxy.authorization().unwrap().is_sensitive());

    let user = self::proxy("http://user@proxy");
    assert_eq!(user.authorization().unwrap(), "Basic dXNlcjo=");
    assert!(self::proxy("http://proxy").authorization().is_none());
}

#[test]
fn only_http_proxies_see_whole_addresses_and_only_of_origins_without_tls() {
    let (plain, tls) = (origin("http://api.example.test"), origin(ORIGIN));
    for (address, absolute) in
        [("http://p", true), ("https://p", true), ("socks5://p", false), ("socks5h://p", false)]
    {
        assert_eq!(proxy(address).uses_absolute_form(&plain.target()), absolute, "{address}");
        assert!(!proxy(address).uses_absolute_form(&tls.target()), "{address}");
    }
    let nothing = open("http://proxy", "http://api.example.test", vec![]);
    assert!(nothing.0.is_ok() && nothing.1.is_empty());
}

/// An origin, variables, and the proxy that they lead to.
type Case = (&'static str, &'static [(&'static str, &'static str)], Option<&'static str>);

fn in_environment(
    target: &str,
    variables: &[(&str, &str)],
) -> Result<Option<String>, ProxyConfigError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    let chosen = Proxy::from_variables(&origin(target).target(), |name| {
        variables.get(name).map(|value| (*value).to_owned())
    });
    Ok(chosen?.map(|proxy| proxy.0.to_string()))
}

#[test]
fn the_environment_names_a_proxy_for_each_scheme() {
    const HTTP: &str = "http://api.example.test";
    let cases: &[Case] = &[
        (HTTP, &[], None),
        (HTTP, &[("http_proxy", "a:1")], Some("http://a:1")),
        (HTTP, &[("HTTP_PROXY", "a:1")], Some("http://a:1")),
        (HTTP, &[("https_proxy", "a:1")], None),
        (ORIGIN, &[("http_proxy", "a:1")], None),
        (ORIGIN, &[("https_proxy", "a:1")], Some("http://a:1")),
        (ORIGIN, &[("HTTPS_PROXY", "https://a")], Some("https://a:443")),
        (ORIGIN, &[("all_proxy", "socks5h://a")], Some("socks5h://a:1080")),
        (HTTP, &[("ALL_PROXY", "socks5://a:9")], Some("socks5://a:9")),
        (HTTP, &[("http_proxy", "a:1"), ("HTTP_PROXY", "b:1")], Some("http://a:1")),
        (HTTP, &[("HTTP_PROXY", "a:1"), ("all_proxy", "b:1")], Some("http://a:1")),
        (
            HTTP,
            &[("http_proxy", " "), ("HTTP_PROXY", ""), ("all_proxy", "b:1")],
            Some("http://b:1"),
        ),
        (HTTP, &[("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "a:1")], None),
        (HTTP, &[("REQUEST_METHOD", "GET"), ("http_proxy", "a:1")], Some("http://a:1")),
        (ORIGIN, &[("REQUEST_METHOD", "GET"), ("HTTPS_PROXY", "a:1")], Some("http://a:1")),
    ];
    for (target, variables, expected) in cases {
        let chosen = in_environment(target, variables).unwrap();
        assert_eq!(chosen.as_deref(), *expected, "{target} {variables:?}");
    }
}

#[test]
fn a_bad_variable_is_named_and_never_means_a_direct_connection() {
    for (variable, address) in [
        ("https_proxy", "ftp://user:s3cret@proxy"),
        ("HTTPS_PROXY", "socks4://proxy"),
        ("all_proxy", "socks://proxy/"),
        ("ALL_PROXY", "proxy:port"),
    ] {
        let problem = in_environment(ORIGIN, &[(variable, address)]).unwrap_err();
        assert!(problem.to_string().starts_with(&format!("{variable}=\"")), "{problem}");
        assert!(!problem.to_string().contains("s3cret"), "{problem}");
        // Of no concern to an origin that it is not for.
        let exempt = [(variable, address), ("no_proxy", "example.test")];
        assert_eq!(in_environment(ORIGIN, &exempt).unwrap(), None);
    }
}

#[test]
fn no_proxy_exempts_hosts_domains_and_networks() {
    for (target, exempt, expected) in [
        ("https://api.example.test", "api.example.test", false),
        ("https://api.example.test", "example.test", false),
        ("https://api.example.test", ".example.test", false),
        ("https://api.example.test", "other.test, example.test", false),
        ("https://api.example.test:8443", "example.test", false),
        ("https://api.example.test", "*", false),
        ("https://api.example.test", "other.test,*", false),
        ("https://api.example.test", "*.example.test", false),
        ("https://example.test", "*.example.test", false),
        ("https://example.test", ".example.test", false),
        ("https://api.example.test", "API.Example.TEST.", false),
        ("https://api.example.test.", "example.test", false),
        ("https://api.example.test", "other.test example.test", false),
        ("https://api.example.test", " , .example.test , ", false),
        ("https://api.example.test", "api.example.test:443", false),
        ("https://api.example.test", "api.example.test:8443", true),
        ("https://api.example.test:8443", "api.example.test:8443", false),
        ("https://api.example.test:8443", ".example.test:8443", false),
        ("https://api.example.test:8443", "example.test:443", true),
        ("https://api.example.test:8443", "*:8443", false),
        ("https://api.example.test", "*:8443", true),
        ("https://api.example.test", "https://api.example.test", false),
        ("https://api.example.test", "http://api.example.test", true),
        ("https://api.example.test", "api.example.test:port", true),
        ("https://api.example.test", ".", true),
        ("https://10.1.2.3", "10.1.2.3", false),
        ("https://10.1.2.3", "2.3", true),
        ("https://10.1.2.3:444", "10.1.2.3:443", true),
        ("https://10.1.2.3:444", "10.1.2.3:444", false),
        ("https://10.1.2.3", "10.1.2.0/23", false),
        ("https://10.1.2.3", "10.1.4.0/23", true),
        ("https://10.1.2.3", "0.0.0.0/0", false),
        ("https://10.1.2.3", "10.0.0.0/33", true),
        ("https://10.1.2.3", "::/0", true),
        ("https://[2001:db8::1]", "2001:db8::1", false),
        ("https://[2001:db8::1]", "[2001:DB8::1]", false),
        ("https://[2001:db8::1]:8443", "[2001:db8::1]:8443", false),
        ("https://[2001:db8::1]", "[2001:db8::1]:8443", true),
        ("https://[2001:db8::1]", "[2001:db8::]/32", false),
        ("https://[2001:db8::1]", "[2001:db8::1]:443", false),
        ("https://[2001:db8::1:443]", "[2001:db8::1]:443", true),
        ("https://[2001:db8::1:443]", "2001:db8::1:443", false),
        ("https://[2001:db8::1]", "[2001:db8::]1", true),
        ("https://[2001:db8::1]", "[2001:db8::1]:", true),
        ("https://[2001:db8::1]", "[2001:db8::1", true),
        ("https://[2001:db8::1]", "[2001:db8::/32]", true),
        ("https://[2001:db8::1]", "[2001:db8::]/129", true),
        ("https://10.1.2.3", "[10.1.2.3]", true),
        ("https://[2001:db9::1]", "2001:db8::/32", true),
        ("https://[2001:db8::1]", "::/0", false),
        ("https://api.example.test", "ample.test", true),
        ("https://api.example.test", "other.test", true),
        ("https://10.1.2.3", "10.0.0.0/8", false),
        ("https://11.1.2.3", "10.0.0.0/8", true),
        ("https://[2001:db8::1]", "2001:db8::/32", false),
        ("https://api.example.test", "", true),
    ] {
        for name in ["no_proxy", "NO_PROXY"] {
            let variables = [("https_proxy", "a:1"), (name, exempt)];
            let chosen = in_environment(target, &variables).unwrap();
            assert_eq!(chosen.is_some(), expected, "{target} {exempt}");
        }
    }
}

#[test]
fn connect_names_the_origin_and_logs_in() {
    let login = "proxy-authorization: Basic dXNlcjpwdw==\r\n";
    for (address, target, host, login) in [
        ("http://proxy", "https://api.example.test/base", "api.example.test:443", ""),
        ("https://user:pw@proxy", "https://api.example.test:8443", "api.example.test:8443", login),
        ("http://proxy", "https://10.1.2.3", "10.1.2.3:443", ""),
        ("http://proxy", "https://[2001:db8::1]:444", "[2001:db8::1]:444", ""),
    ] {
        let expected = format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n{login}\r\n");
        let answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        let (outcome, read) = open(address, target, vec![(expected.len(), answer)]);
        outcome.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected);
    }
}

#[test]
fn every_2xx_opens_a_tunnel_whatever_it_says_of_a_body() {
    for answer in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.0 200 Connection established\r\nproxy-agent: x\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 200 \r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 299 Odd\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: nonsense\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        connect(answer.as_bytes()).unwrap_or_else(|error| panic!("{answer:?}: {error}"));
    }
}

#[test]
fn nothing_behind_an_answer_is_taken() {
    let follows = b"\x16\x03\x03 what the origin says";
    let http = [&b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"[..], follows].concat();
    let socks = [&b"\x05\x00\x00\x03\x04host\x01\xbb"[..], follows].concat();
    for (address, steps) in [
        ("http://proxy", vec![(CONNECT.len(), http)]),
        ("socks5h://proxy", vec![(3, b"\x05\x00".to_vec()), (23, socks)]),
    ] {
        let (mut client, served) = Stub { steps, closes: true }.start();
        proxy(address).open_tunnel(&mut client, &origin(ORIGIN).target(), None).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, follows);
        drop(client);
        served.join().unwrap();
    }
}

#[test]
fn a_refused_tunnel_says_why() {
    for (answer, words, transient) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n",
            "407 Proxy Authentication Required",
            false,
        ),
        ("HTTP/1.1 407\r\n", "407 Proxy Authentication Required", false),
        ("HTTP/1.1 403 Blocked by policy\r\ncontent-length: 9\r\n", "403 Blocked by policy", false),
        ("HTTP/1.0 502 Bad Gateway\r\n", "502 Bad Gateway", true),
        ("HTTP/1.1 503 \x1b[2J\tsorry\r\n", "503 [2Jsorry", true),
        ("HTTP/1.1 429 Too Many Requests\r\n", "429 Too Many Requests", true),
        ("HTTP/1.1 301 Moved\r\nlocation: http://x/\r\n", "301 Moved", false),
        ("HTTP/1.1 101 Switching Protocols\r\n", "101 Switching Protocols", false),
        ("HTTP/1.1 599\r\n", "599", true),
    ] {
        let error = connect(format!("{answer}\r\n").as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("the proxy refused the tunnel: {words}"));
        assert_eq!(error.is_transient(), transient, "{words}");
    }
    let long = format!("HTTP/1.1 500 {}\r\n\r\n", "x".repeat(9_000));
    assert!(connect(long.as_bytes()).unwrap_err().to_string().len() < 200);
}

#[test]
fn what_is_no_answer_to_connect_is_told() {
    for answer in [
        "",
        "H",
        "HTTP/1.",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nname: x\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        let error = connect(answer.as_bytes()).unwrap_err();
        assert!(matches!(error, ProxyError::Closed), "{answer:?}: {error}");
        assert!(error.is_transient());
    }
    for answer in [
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.x 200 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1\t200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 999 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "<html>",
        "\x15\x03\x01\x00\x02\x02\x28",
        "\x05\x7f",
        "SSH-2.0-OpenSSH_9.6\r\n",
    ] {
        let error = connect(answer.as_bytes()).unwrap_err();
        assert!(matches!(error, ProxyError::Malformed { .. }), "{answer:?}: {error}");
        assert!(
            error.to_string().starts_with("the response of the proxy is not HTTP: "),
            "{error}"
        );
        assert!(!error.is_transient());
    }
}

#[test]
fn a_head_without_an_end_is_given_up() {
    let endless = [&b"HTTP/1.1 200 OK\r\n"[..], &b"x: y\r\n".repeat(4_000)].concat();
    let error = connect(&endless).unwrap_err();
    assert!(error.to_string().ends_with("its head is longer than 16384 bytes"), "{error}");

    let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000);
    let error = connect(&interim).unwrap_err();
    assert!(error.to_string().ends_with("its head is longer than 16384 bytes"), "{error}");
}

#[test]
fn what_the_stream_says_comes_through() {
    let (mut client, served) = Stub { steps: vec![], closes: false }.start();
    client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let error =
        proxy("http://proxy").open_tunnel(&mut client, &origin(ORIGIN).target(), None).unwrap_err();
    let ProxyError::Io(error) = error else { panic!("{error}") };
    assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
    drop(client);
    assert_eq!(served.join().unwrap(), CONNECT.as_bytes());
}

#[test]
fn socks_asks_by_name_or_by_address() {
    let done = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    for (address, target, request) in [
        ("socks5h://proxy", ORIGIN, &b"\x05\x01\x00\x03\x10api.example.test\x01\xbb"[..]),
        (
            "socks5h://proxy",
            "http://api.example.test",
            b"\x05\x01\x00\x03\x10api.example.test\x00\x50",
        ),
        ("socks5h://proxy", "https://10.1.2.3:8443", b"\x05\x01\x00\x01\x0a\x01\x02\x03\x20\xfb"),
        ("socks5://proxy", "https://10.1.2.3:8443", b"\x05\x01\x00\x01\x0a\x01\x02\x03\x20\xfb"),
        (
            "socks5://proxy",
            "https://[2001:db8::1]",
            b"\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb",
        ),
    ] {
        let steps = vec![(3, b"\x05\x00".to_vec()), (request.len(), done.to_vec())];
        let (outcome, read) = open(address, target, steps);
        outcome.unwrap();
        assert_eq!(read, [b"\x05\x01\x00", request].concat(), "{address} {target}");
    }
}

#[test]
fn socks5_resolves_here_and_socks5h_at_the_proxy() {
    let local = origin("https://localhost:444");
    assert!(proxy("socks5://proxy").needs_address(&local.target()));
    for address in ["socks5h://proxy", "http://proxy"] {
        assert!(!proxy(address).needs_address(&local.target()), "{address}");
    }
    assert!(!proxy("socks5://proxy").needs_address(&origin("https://[::1]").target()));

    let done = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
    let steps = vec![(3, b"\x05\x00".to_vec()), (10, done)];
    let (mut client, served) = Stub { steps, closes: true }.start();
    let address = Some(IpAddr::from([192, 0, 2, 7]));
    proxy("socks5://proxy").open_tunnel(&mut client, &local.target(), address).unwrap();
    drop(client);
    assert!(served.join().unwrap().ends_with(b"\x05\x01\x00\x01\xc0\x00\x02\x07\x01\xbc"));
}

#[test]
fn socks_takes_every_type_of_address_in_a_reply() {
    for reply in [
        &b"\x05\x00\x00\x01\x7f\x00\x00\x01\x04\xd2"[..],
        b"\x05\x00\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x04\xd2",
        b"\x05\x00\x00\x03\x00\x04\xd2",
        &[&b"\x05\x00\x00\x03\xff"[..], &[b'x'; 255], b"\x04\xd2"].concat(),
        b"\x05\x00\xff\x01\x7f\x00\x00\x01\x04\xd2",
    ] {
        socks("socks5h://proxy", &[b"\x05\x00", reply]).unwrap();
    }
}

#[test]
fn socks_logs_in_where_it_must() {
    let done = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    let steps = vec![(4, b"\x05\x02".to_vec()), (6, b"\x01\x00".to_vec()), (23, done.to_vec())];
    let (outcome, read) = open("socks5h://u:pw@proxy", ORIGIN, steps);
    outcome.unwrap();
    assert!(read.starts_with(b"\x05\x02\x00\x02\x01\x01u\x02pw\x05\x01\x00\x03"));

    socks("socks5h://u:pw@proxy", &[b"\x05\x00", done]).unwrap();
    socks("socks5h://u:pw@proxy", &[b"\x05\x02", b"\x05\x00", done]).unwrap();
    for (address, answers, words) in [
        ("socks5h://proxy", &[&b"\x05\xff"[..]][..], "it wants another login"),
        ("socks5h://u:pw@proxy", &[b"\x05\xff"], "it wants another login"),
        (
            "socks5h://u:pw@proxy",
            &[b"\x05\x02", b"\x01\x01", b""],
            "it does not accept the user and the password",
        ),
    ] {
        let error = socks(address, answers).unwrap_err();
        assert_eq!(error.to_string(), format!("the proxy refused the tunnel: {words}"));
        assert!(!error.is_transient());
    }
}

#[test]
fn a_refusal_of_socks_says_why() {
    for (code, words, transient) in [
        (1, "general failure (code 1)", true),
        (2, "not allowed by its rules (code 2)", false),
        (3, "network unreachable (code 3)", true),
        (4, "host unreachable (code 4)", true),
        (5, "connection refused (code 5)", true),
        (6, "TTL expired (code 6)", true),
        (7, "command not supported (code 7)", false),
        (8, "address type not supported (code 8)", false),
        (0x5b, "unknown reason (code 91)", false),
    ] {
        let reply = [5, code, 0, 1, 0, 0, 0, 0, 0, 0];
        let error = socks("socks5h://proxy", &[b"\x05\x00", &reply]).unwrap_err();
        assert_eq!(error.to_string(), format!("the proxy refused the tunnel: {words}"));
        assert_eq!(error.is_transient(), transient, "{words}");
    }
}

#[test]
fn what_is_no_socks_is_told() {
    for answers in [
        &[&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]][..],
        &[b"\x04\x00"],
        &[b"\x00\x5a"],
        &[b"\x01\x00"],
        &[b"\x05\x02"],
        &[b"\x05\x01"],
        &[b"\x05\x00", b"\x04\x00\x00\x01"],
        &[b"\x05\x00", b"\x01\x00\x00\x01"],
        &[b"\x05\x00", b"\x05\x00\x00\x02\x00\x00"],
        &[b"\x05\x00", b"\x05\x00\x00\x00\x00\x00"],
    ] {
        let error = socks("socks5h://proxy", answers).unwrap_err();
        assert!(matches!(error, ProxyError::Malformed { .. }), "{answers:?}: {error}");
        assert!(
            error.to_string().starts_with("the response of the proxy is not SOCKS5: "),
            "{error}"
        );
    }
    let reply: &[u8] = b"\x05\x00\x00\x03\x04host\x01\xbb";
    for length in 0..reply.len() {
        let error = socks("socks5h://proxy", &[b"\x05\x00", &reply[..length]]).unwrap_err();
        assert!(matches!(error, ProxyError::Closed), "{length}: {error}");
    }
    for greeting in [&b""[..], b"\x05"] {
        let error = socks("socks5h://proxy", &[greeting]).unwrap_err();
        assert!(matches!(error, ProxyError::Closed), "{error}");
    }
}
