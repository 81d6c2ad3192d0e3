//! Where a tunnel forwards to.

use std::path::PathBuf;

use url::Url;

use crate::agent::relay::LocalAddress;

/// Reads a port, `host:port`, a host or a URL.
pub(super) fn address(text: &str, proto: &str) -> Result<LocalAddress, &'static str> {
    if let Ok(port) = text.parse::<u16>() {
        return local("localhost".to_owned(), port);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is not a port");
    }
    if let Some(folder) = text.strip_prefix("file://") {
        let folder = PathBuf::from(folder);
        return match proto {
            "http" if folder.is_absolute() => Ok(LocalAddress::Files(folder)),
            "http" => Err("is not file:// and an absolute path"),
            _ => Err("is a folder, which only http serves"),
        };
    }
    if text.contains("://") {
        return of_url(text, proto);
    }
    match Url::parse(&format!("http://{text}")) {
        // No host begins so, but negative numbers do.
        Ok(url) if is_bare(&url) && !text.starts_with('-') => {
            let host = host_of(&url).ok_or("has no host")?;
            // A URL leaves out the usual port.
            let has_port =
                text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            match (url.port(), proto) {
                (Some(port), _) => local(host, port),
                (None, _) if has_port => local(host, 80),
                (None, "http") => local(host, 80),
                (None, "tls") => local(host, 443),
                (None, _) => Err("has no port"),
            }
        }
        _ => Err("is not a port, host:port or a URL"),
    }
}

fn of_url(text: &str, proto: &str) -> Result<LocalAddress, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    let host = host_of(&url).ok_or("has no host")?;
    match (url.scheme(), url.port()) {
        ("http", port) => Ok(LocalAddress::Tcp { host, port: port.unwrap_or(80) }),
        ("https", port) => Ok(LocalAddress::Tls { host, port: port.unwrap_or(443) }),
        ("tcp", Some(port)) if proto != "http" => Ok(LocalAddress::Tcp { host, port }),
        ("tls", port) if proto != "http" => {
            Ok(LocalAddress::Tcp { host, port: port.unwrap_or(443) })
        }
        _ => Err("has a scheme that does not go with the protocol"),
    }
}

/// Port 443 speaks TLS.
fn local(host: String, port: u16) -> Result<LocalAddress, &'static str> {
    match port {
        0 => Err("has port 0"),
        443 => Ok(LocalAddress::Tls { host, port }),
        _ => Ok(LocalAddress::Tcp { host, port }),
    }
}

fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?.trim_matches(['[', ']']);
    Some(host.to_owned()).filter(|host| !host.is_empty())
}

fn is_bare(url: &Url) -> bool {
    url.path() == "/" && url.query().is_none() && url.username().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_many_forms() {
        let shown = |text: &str, proto: &str| address(text, proto).map(|it| it.shown());

        for (text, expected) in [
            ("80", "localhost:80"),
            ("8080", "localhost:8080"),
            ("localhost:80", "localhost:80"),
            ("app.test", "app.test:80"),
            ("[::1]:9000", "[::1]:9000"),
            ("http://app.test", "app.test:80"),
            ("https://app.test:8443", "https://app.test:8443"),
            ("443", "https://localhost:443"),
            ("file:///srv/www", "file:///srv/www"),
        ] {
            assert_eq!(shown(text, "http").as_deref(), Ok(expected), "{text}");
        }
        assert!(shown("app.test", "tcp").is_err());
        for bad in [
            "",
            "0",
            "-1",
            "-1:80",
            "70000",
            "a b",
            "ftp://x",
            "http://",
            "host:port",
            "file://rel",
        ] {
            assert!(shown(bad, "http").is_err(), "{bad}");
        }
    }
}
