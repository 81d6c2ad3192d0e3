//! Properties of all address types, on generated text.

use proptest::prelude::*;

use super::*;

/// Texts that are addresses, and texts that nearly are.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("localhost"),
        Just("a.test"),
        Just("A_b.TEST."),
        Just("127.0.0.1"),
        Just("127.1"),
        Just("0x7f"),
        Just("0177"),
        Just("[::1]"),
        Just("::1"),
        Just("[::ffff:1.2.3.4]"),
        Just("b\u{fc}cher"),
        Just("\u{ff11}"),
        Just("xn--bcher-kva"),
        Just("http://"),
        Just("HTTPS://"),
        Just("tcp://"),
        Just("unix:"),
        Just("file://"),
        Just("/run/a.sock"),
        Just(":"),
        Just(":80"),
        Just(":443"),
        Just(":00080"),
        Just(":99999"),
        Just("/"),
        Just("."),
        Just("*."),
        Just("-"),
        Just("@"),
        Just("?"),
        Just("#"),
        Just("%"),
        Just(" "),
        Just("\n"),
        Just("\t"),
        Just("\0"),
        Just("80"),
        Just("8080"),
        Just("+80"),
        Just("]"),
        Just("["),
        Just("\\"),
    ];
    let parts = prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat());
    prop_oneof![3 => parts, 1 => any::<String>(), 1 => "[a-z0-9.:/@\\[\\]-]{0,40}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn printing_and_parsing_is_the_identity(text in text()) {
        fn same<T: PartialEq + ToString + std::fmt::Debug>(
            text: &str,
            parse: impl Fn(&str) -> Result<T, AddressError>,
        ) {
            if let Ok(parsed) = parse(text) {
                assert_eq!(parse(&parsed.to_string()).as_ref(), Ok(&parsed), "{text:?}");
            }
        }
        same(&text, HostName::parse);
        same(&text, HostPattern::parse);
        same(&text, Host::parse);
        same(&text, HostPort::parse);
        same(&text, HostPort::parse_to_listen);
        same(&text, Authority::parse);
        same(&text, EndpointUrl::parse);
        for protocol in [AddressProtocol::Http, AddressProtocol::Tcp, AddressProtocol::Tls] {
            same(&text, |text| UpstreamAddress::parse(text, protocol));
        }
    }

    #[test]
    fn an_address_that_is_printed_has_no_other_reading(text in text()) {
        if let Ok(place) = HostPort::parse(&text) {
            let url = url::Url::parse(&format!("http://{place}/")).ok();
            // The URL parser refuses `xn--` labels that are not valid.
            if let Some(url) = url {
                // It writes mapped addresses in another form, so the values are compared.
                let other = url.host_str().map(Host::parse);
                assert_eq!(other, Some(Ok(place.host.clone())), "{text:?}");
                assert_eq!(url.port_or_known_default(), Some(place.port), "{text:?}");
            }
        }
    }
}

#[test]
fn upstream_addresses_have_many_forms() {
    let shown =
        |text: &str, protocol| UpstreamAddress::parse(text, protocol).map(|it| it.to_string());

    for (text, expected) in [
        ("80", "localhost:80"),
        ("8080", "localhost:8080"),
        ("localhost:80", "localhost:80"),
        ("app.test", "app.test:80"),
        ("App.Test.:9000", "app.test:9000"),
        ("[::1]:9000", "[::1]:9000"),
        ("http://app.test", "app.test:80"),
        ("http://app.test/", "app.test:80"),
        ("HTTPS://app.test:8443", "https://app.test:8443"),
        ("http://app.test:443", "http://app.test:443"),
        ("443", "https://localhost:443"),
        ("file:///srv/www", "file:///srv/www"),
        ("b\u{fc}cher.test", "xn--bcher-kva.test:80"),
        ("unix:/run/app.sock", "unix:/run/app.sock"),
        ("unix:///run/app.sock", "unix:/run/app.sock"),
        ("unix:8080", "unix:8080"),
        ("http://unix:8080", "unix:8080"),
    ] {
        assert_eq!(shown(text, AddressProtocol::Http).as_deref(), Ok(expected), "{text}");
    }
    assert_eq!(shown("tls://a.test", AddressProtocol::Tcp).as_deref(), Ok("http://a.test:443"));
    assert_eq!(shown("a.test", AddressProtocol::Tls).as_deref(), Ok("https://a.test:443"));
    assert_eq!(shown("a.test", AddressProtocol::Tcp), Err(AddressError::NoPort));
}

#[test]
fn other_upstream_addresses_are_rejected() {
    let long = format!("unix:/{}", "a".repeat(MAX_SOCKET_PATH_BYTES));
    let at_most = format!("unix:/{}", "a".repeat(MAX_SOCKET_PATH_BYTES - 1));
    assert!(UpstreamAddress::parse(&at_most, AddressProtocol::Http).is_ok());

    for text in [
        "",
        "0",
        "00080",
        "-1",
        "-1:80",
        "+80",
        "70000",
        "99999",
        "a b",
        "ftp://x",
        "tcp://x:1",
        "ws://x",
        "http://",
        "http://x:",
        "x:",
        "host:port",
        "file://rel",
        "40367\n",
        "40367\t",
        "40367.",
        "40367/",
        "40367?",
        "40367#",
        "0x9daf",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "2130706433",
        "\u{ff18}\u{ff10}",
        "http://x/app",
        "http://x/?a=1",
        "http://x?a",
        "http://x#a",
        "http://u:p@x",
        "u@x:80",
        "x:80/",
        "x/app",
        "http://x:0",
        "http://x:99999",
        "[fe80::1%eth0]:80",
        "::1:80",
        "http:\\\\x",
        "x:80\0",
        "unix:run/app.sock",
        "unix://run/app.sock",
        "unix:/run/../app.sock",
        "unix:/run/app.sock/",
        "unix:",
        "unix:/a\0b",
        "UNIX:/run/app.sock",
        &long,
    ] {
        let parsed = UpstreamAddress::parse(text, AddressProtocol::Http);
        assert!(parsed.is_err(), "{text:?} became {parsed:?}");
    }
    assert!(UpstreamAddress::parse("unix:/a", AddressProtocol::Tls).is_err());
    assert!(UpstreamAddress::parse("file:///a", AddressProtocol::Tcp).is_err());
}
