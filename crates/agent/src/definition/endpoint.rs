//! Endpoints as definitions of tunnels: a public URL and an upstream in place of a protocol and an address.

use std::io;
use std::path::Path;

use serde_json::Value;

use ginnel_api::local::endpoints;
use ginnel_api::local::tunnels;
use ginnel_api::{TextOrNumber, mask};
use ginnel_base::address::{AddressError, EndpointUrl};
use ginnel_net::tls::certificate;

/// The binding of what everybody reaches.
pub(crate) const PUBLIC: &str = "public";
/// The binding of what only policies lead to.
pub(crate) const INTERNAL: &str = "internal";
/// The end of host names that only other endpoints reach.
const INTERNAL_SUFFIX: &str = ".internal";
/// Fields of tunnels, and what stands for them in an endpoint.
pub(crate) const TUNNEL_NAMES: [(&str, &str); 16] = [
    ("addr", "upstream.url"),
    ("app_protocol", "upstream.protocol"),
    ("proxy_proto", "upstream.proxy_protocol"),
    ("proxy_protocol", "upstream.proxy_protocol"),
    ("domain", "url"),
    ("hostname", "url"),
    ("subdomain", "url"),
    ("remote_addr", "url"),
    ("proto", "url"),
    ("schemes", "url"),
    ("bind_tls", "url"),
    ("policy", "traffic_policy"),
    ("terminate_at", "agent_tls_termination"),
    ("crt", "agent_tls_termination.server_certificate"),
    ("key", "agent_tls_termination.server_private_key"),
    ("mutual_tls_cas", "agent_tls_termination.mutual_tls_certificate_authorities"),
];
/// The field of a private key or its file.
const PRIVATE_KEY: &str = "server_private_key";
/// What ends TLS at the agent.
const TLS_TERMINATION: &str = "agent_tls_termination";

/// What a public URL asks for, in the fields of a tunnel.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PublicAddress {
    /// `http`, `tcp` or `tls`.
    pub proto: &'static str,
    /// The schemes of an HTTP tunnel.
    pub schemes: Option<Vec<String>>,
    /// The host of an HTTP or TLS tunnel; none where the service assigns it.
    pub domain: Option<String>,
    /// The address of a TCP tunnel; none where the service assigns it.
    pub remote_addr: Option<String>,
}

impl PublicAddress {
    /// Reads a public URL, or a host alone, which stands for HTTPS.
    ///
    /// # Errors
    /// With what is wrong, for a sentence behind the name of the field.
    pub fn parse_url(text: &str) -> Result<Self, String> {
        let shown = mask::url(text);
        let (scheme, place) = text.split_once("://").unwrap_or(("https", text));
        let place = place.strip_suffix('/').unwrap_or(place);
        let unknown = || format!("{shown:?} begins with none of https://, http://, tls://, tcp://");
        let (host, port) = match place {
            "" => (None, None),
            _ => {
                let url = EndpointUrl::parse(&format!("{scheme}://{place}"));
                let url = url.map_err(|problem| match problem {
                    AddressError::Login => "must not hold a user or a password".to_owned(),
                    AddressError::Scheme(_) => unknown(),
                    problem => format!("{shown:?} is not a URL: it {problem}"),
                })?;
                (Some(url.host_pattern()), url.port)
            }
        };
        match (scheme.to_ascii_lowercase().as_str(), port) {
            (scheme @ ("http" | "https"), None) => Ok(Self::for_http(scheme, host)),
            (scheme @ "http", Some(80)) | (scheme @ "https", Some(443)) => {
                Ok(Self::for_http(scheme, host))
            }
            ("tls", None | Some(443)) => Ok(Self { proto: "tls", domain: host, ..Self::default() }),
            ("tcp", None) if host.is_none() => Ok(Self { proto: "tcp", ..Self::default() }),
            ("tcp", Some(port)) => {
                let place = host.map(|host| format!("{host}:{port}"));
                Ok(Self { proto: "tcp", remote_addr: place, ..Self::default() })
            }
            ("tcp", _) => Err(format!("{shown:?} is neither tcp:// nor tcp://host:port")),
            (scheme @ ("http" | "https" | "tls"), Some(port)) => {
                Err(format!("{shown:?}: {scheme} is not served at port {port}"))
            }
            _ => Err(unknown()),
        }
    }

    fn for_http(scheme: &str, domain: Option<String>) -> Self {
        Self { proto: "http", schemes: Some(vec![scheme.to_owned()]), domain, remote_addr: None }
    }
}

/// What ends the TLS of visitors at the agent, in PEM.
pub(super) struct TlsMaterial {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    /// Who signs the certificates that visitors must show, if they must.
    pub authorities: Option<Vec<u8>>,
}

/// The definition of a tunnel that does what an endpoint asks for, and what ends TLS at the agent.
///
/// # Errors
/// When a field is unusable, one line for each.
pub(super) fn tunnel_from_endpoint(
    start: endpoints::Start,
) -> Result<(tunnels::Start, Option<TlsMaterial>), Vec<String>> {
    let url = start.url.as_deref().unwrap_or("https://");
    let (mut problems, public) = (refused_bindings(&start, url), url);
    let public = PublicAddress::parse_url(public).unwrap_or_else(|problem| {
        problems.push(format!("url: {problem}"));
        PublicAddress::default()
    });
    let upstream = start.upstream;
    let Some(addr) = upstream.url.filter(|url| !url.0.is_empty()) else {
        problems.push("upstream.url: is required".to_owned());
        return Err(problems);
    };
    let termination = start.agent_tls_termination;
    if termination.is_some() && problems.is_empty() && public.proto != "tls" {
        problems.push(format!("{TLS_TERMINATION}: is only for a URL that begins with tls://"));
    }
    let material = termination.and_then(|it| tls_material(it, &mut problems));
    if !problems.is_empty() {
        return Err(problems);
    }
    // Only requests are captured: that bytes are not needs no saying.
    let inspect = start.inspect.filter(|inspect| *inspect || public.proto == "http");
    let tunnel = tunnels::Start {
        addr,
        proto: Some(public.proto.to_owned()),
        name: start.name,
        metadata: start.metadata,
        description: start.description,
        inspect,
        schemes: public.schemes,
        domain: public.domain,
        remote_addr: public.remote_addr,
        proxy_proto: upstream.proxy_protocol.filter(|version| version.0 != "0"),
        app_protocol: upstream.protocol,
        pooling_enabled: start.pooling_enabled,
        traffic_policy: start.traffic_policy.filter(|policy| *policy != Value::Null),
        terminate_at: material.is_some().then(|| "agent".to_owned()),
        ..tunnels::Start::default()
    };
    Ok((tunnel, material))
}

/// Reads what ends TLS at the agent; none where something of it is missing or cannot be read.
fn tls_material(
    termination: endpoints::AgentTlsTermination,
    problems: &mut Vec<String>,
) -> Option<TlsMaterial> {
    let mut read = |field: &str, texts: &[String]| {
        let read_file = match field {
            PRIVATE_KEY => certificate::read_key_file,
            _ => certificate::read_file,
        };
        let read =
            texts.iter().map(|text| read_pem(text, read_file)).collect::<Result<Vec<_>, _>>();
        let read =
            read.map_err(|problem| problems.push(format!("{TLS_TERMINATION}.{field}: {problem}")));
        read.ok().map(|parts| parts.join(&b'\n'))
    };
    let required = |text: Option<String>| [text.unwrap_or_default()];
    let certificate = read("server_certificate", &required(termination.server_certificate));
    let key = termination.server_private_key.map(|key| key.0);
    let key = read(PRIVATE_KEY, &required(key));
    const AUTHORITIES: &str = "mutual_tls_certificate_authorities";
    let authorities = termination.mutual_tls_certificate_authorities;
    let is_empty = authorities.as_ref().is_some_and(Vec::is_empty);
    let authorities =
        authorities.map(|authorities| read(AUTHORITIES, &authorities).unwrap_or_default());
    if is_empty {
        let problem =
            "is empty: name an authority, or leave it out to ask nobody for a certificate";
        problems.push(format!("{TLS_TERMINATION}.{AUTHORITIES}: {problem}"));
    }
    Some(TlsMaterial { certificate: certificate?, key: key?, authorities })
}

/// A text in PEM, or what the file holds that it names.
fn read_pem(text: &str, read_file: fn(&Path) -> io::Result<Vec<u8>>) -> Result<Vec<u8>, String> {
    let path = Path::new(text);
    match text {
        "" => Err("is required".to_owned()),
        _ if mask::is_content(path) => Ok(text.as_bytes().to_vec()),
        _ => read_file(path).map_err(|error| format!("{}: {error}", mask::path(path))),
    }
}

/// Bindings that the URL has not.
fn refused_bindings(start: &endpoints::Start, url: &str) -> Vec<String> {
    let (own, host) = match is_internal_url(url) {
        true => (INTERNAL, "a host below .internal"),
        false => (PUBLIC, "no host below .internal"),
    };
    let others = start.bindings.iter().flatten().filter(|binding| *binding != own);
    let refused = |binding| format!("bindings: {binding:?} is not {own:?}, as the URL has {host}");
    others.map(refused).collect()
}

/// Whether only policies lead to a URL, or to a host alone.
pub(crate) fn is_internal_url(url: &str) -> bool {
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    let parsed = EndpointUrl::parse(&format!("https://{}", place.trim_end_matches('/')));
    parsed.is_ok_and(|url| url.host_pattern().ends_with(INTERNAL_SUFFIX))
}

/// A problem of the tunnel's definition in the words of the endpoint.
pub(super) fn translate_problem(problem: &str) -> String {
    let known = TUNNEL_NAMES.iter().find_map(|(tunnel, endpoint)| {
        let rest = problem.strip_prefix(tunnel)?.strip_prefix(": ")?;
        Some(format!("{endpoint}: {rest}"))
    });
    known.unwrap_or_else(|| problem.to_owned())
}

/// An upstream of this address.
pub(crate) fn endpoint_upstream(
    url: String,
    protocol: Option<&str>,
) -> endpoints::EndpointUpstream {
    endpoints::EndpointUpstream {
        url: Some(TextOrNumber(url)),
        protocol: protocol.map(str::to_owned),
        proxy_protocol: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::definition::Definition;
    use serde_json::json;

    fn problems(document: Value) -> Vec<String> {
        Definition::read_endpoint(document.as_object().unwrap()).unwrap_err()
    }

    #[test]
    fn a_public_url_is_a_protocol_and_an_address() {
        let read = |text: &str| {
            let read = PublicAddress::parse_url(text).unwrap();
            (read.proto, read.schemes.unwrap_or_default().join(","), read.domain, read.remote_addr)
        };
        let host = || Some("a.test".to_owned());

        for text in ["https://a.test", "https://a.test/", "https://a.test:443", "a.test", "A.test"]
        {
            assert_eq!(read(text), ("http", "https".to_owned(), host(), None), "{text}");
        }
        assert_eq!(read("http://a.test:80"), ("http", "http".to_owned(), host(), None));
        assert_eq!(read("https://"), ("http", "https".to_owned(), None, None));
        assert_eq!(read("tls://a.test"), ("tls", String::new(), host(), None));
        assert_eq!(read("tcp://"), ("tcp", String::new(), None, None));
        let place = Some("a.test:22".to_owned());
        assert_eq!(read("tcp://a.test:22"), ("tcp", String::new(), None, place));
    }

    #[test]
    fn what_is_no_public_url_is_refused() {
        for (text, problem) in [
            ("ftp://a.test", "begins with none of"),
            ("https://user:secret@a.test", "must not hold a user or a password"),
            ("https://a.test/path", "is not a URL"),
            ("https://a.test?x=1", "is not a URL"),
            ("https://a b", "is not a URL"),
            ("https://a.test:8443", "https is not served at port 8443"),
            ("http://a.test:443", "http is not served at port 443"),
            ("tcp://a.test", "is neither tcp:// nor tcp://host:port"),
            ("tcp://:22", "is not a URL"),
        ] {
            let said = PublicAddress::parse_url(text).unwrap_err();
            assert!(said.contains(problem) && !said.contains("secret"), "{text}: {said}");
        }
    }

    #[test]
    fn an_endpoint_is_the_tunnel_that_it_describes() {
        let document = json!({
            "name": "api", "url": "https://a.test", "metadata": "m", "description": "d", "bindings": ["public"],
            "upstream": {"url": 8080, "protocol": "http2"}, "inspect": false, "pooling_enabled": true,
        });

        let definition = Definition::read_endpoint(document.as_object().unwrap()).unwrap();

        let tunnel = json!({
            "name": "api", "proto": "http", "schemes": ["https"], "domain": "a.test", "metadata": "m",
            "description": "d", "addr": "8080", "app_protocol": "http2", "inspect": false, "pooling_enabled": true,
        });
        let same = Definition::from_document(tunnel.as_object().unwrap()).unwrap();
        assert_eq!(definition.document, same.document);
        let bytes = json!({
            "url": "tcp://", "upstream": {"url": "a.test:22", "proxy_protocol": 2}, "inspect": false,
        });
        assert!(Definition::read_endpoint(bytes.as_object().unwrap()).is_ok());
    }

    #[test]
    fn tls_ends_at_the_agent_with_what_files_or_texts_hold() {
        let documents = |material: Value, url: &str| {
            let upstream = json!({"url": "localhost:1"});
            json!({"url": url, "upstream": upstream, TLS_TERMINATION: material})
        };
        for (material, url, expected) in [
            (json!({}), "tls://", "agent_tls_termination.server_certificate: is required"),
            (
                json!({"server_certificate": "no/such.pem", "server_private_key": "no/such.pem"}),
                "tls://",
                "agent_tls_termination.server_certificate: no/such.pem: No such file",
            ),
            (
                json!({"server_certificate": "-----BEGIN X", "server_private_key": "-----BEGIN X"}),
                "tls://",
                "agent_tls_termination.server_certificate: ",
            ),
            (
                json!({"server_certificate": "-----BEGIN X", "server_private_key": "-----BEGIN X"}),
                "https://",
                "agent_tls_termination: is only for a URL that begins with tls://",
            ),
            (
                json!({
                    "server_certificate": "-----BEGIN X", "server_private_key": "-----BEGIN X",
                    "mutual_tls_certificate_authorities": [],
                }),
                "tls://",
                "agent_tls_termination.mutual_tls_certificate_authorities: is empty",
            ),
        ] {
            let said = problems(documents(material, url));
            assert!(said[0].starts_with(expected), "{said:?}");
        }
    }

    #[test]
    fn problems_are_told_in_the_words_of_endpoints() {
        for (document, expected) in [
            (json!({}), "upstream: is required"),
            (json!({"upstream": {}}), "upstream.url: is required"),
            (json!({"upstream": {"url": "x:y"}}), "upstream.url: \"x:y\" is not a port"),
            (json!({"upstream": {"url": 1, "adr": 1}}), "upstream.adr: field adr not found"),
            (json!({"upstream": {"url": 1, "protocol": "h3"}}), "upstream.protocol: must be"),
            (
                json!({"upstream": {"url": "1", "proxy_protocol": 3}, "url": "tls://"}),
                "upstream.proxy_protocol: must be 1 or 2",
            ),
            (
                json!({"upstream": {"url": 1}, "bindings": ["internal"]}),
                "bindings: \"internal\" is",
            ),
            (
                json!({"upstream": {"url": 1}, "url": "app.internal", "bindings": ["public"]}),
                "bindings: \"public\" is",
            ),
            (json!({"upstream": {"url": 1}, "proto": "http"}), "proto: field proto not found"),
        ] {
            let said = problems(document);
            assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
        }
    }
}
