//! Reads a definition: what all tunnels have, and what each kind of them has.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::address::address;
use super::fields::DefinitionFields;
use super::{Definition, PublicEndpoint};
use crate::agent::relay::{AppProtocol, HostHeader, LocalAddress};
use crate::agent::tls;
use crate::api::mask;
use crate::net::certificate;
use crate::protocol::message::{
    Base64, Empty, HttpOpts, MutualTls, TcpOpts, TlsOpts, TlsTermination,
};

/// The longest metadata of a tunnel, in bytes.
const MAX_METADATA_BYTES: usize = 4096;
/// Where visitors can be asked for certificates.
const ONLY_WHERE_TLS_ENDS: &str = "is only supported if the service or the agent terminates TLS";

impl DefinitionFields<'_> {
    /// Reads all of them; none when some are missing or wrong.
    pub fn definition(&mut self) -> Option<Definition> {
        let name = self.name();
        let proto = self.text("proto");
        let labels = self.labels();
        let public = match (proto.as_deref(), labels) {
            (Some(_), Some(_)) => {
                self.problem("labels", "a tunnel has either proto or labels");
                None
            }
            (None, Some(labels)) => self.labeled(labels),
            (Some("http"), None) => self.http(),
            (Some("tcp"), None) => self.tcp(),
            (Some("tls"), None) => self.tls(),
            (Some(other), None) => {
                let text = format!("Invalid protocol name '{other}'; it is http, tcp or tls");
                self.problems.push(format!("proto: {text}"));
                None
            }
            (None, None) => {
                self.problem("proto", "is required, unless there are labels");
                None
            }
        };
        let is_http =
            matches!(public, Some(PublicEndpoint::Http { .. } | PublicEndpoint::Labeled(_)));
        let address = self.address(proto.as_deref());
        let metadata = self.text("metadata").unwrap_or_default();
        if metadata.len() > MAX_METADATA_BYTES {
            let problem =
                format!("is {} bytes long, the limit is {MAX_METADATA_BYTES}", metadata.len());
            self.problem("metadata", &problem);
        }
        let inspect = if is_http { self.flag("inspect").unwrap_or(true) } else { false };
        let host_header = match is_http {
            true => self.host_header(),
            false => HostHeader::Preserve,
        };
        let app_protocol = match is_http {
            true => self.app_protocol(address.as_ref()),
            false => AppProtocol::Http1,
        };
        let verify = self.verify(is_http);
        Some(Definition {
            name,
            ends_tls: self.ends_tls.take(),
            address: address?,
            app_protocol,
            metadata,
            inspect,
            public: public?,
            host_header,
            verify,
            document: self.document.clone(),
        })
    }

    fn app_protocol(&mut self, address: Option<&LocalAddress>) -> AppProtocol {
        match self.text("app_protocol").as_deref() {
            None | Some("http1") => {}
            Some("http2") if matches!(address, Some(LocalAddress::Files(_))) => {
                self.problem("app_protocol", "must be http1 for a folder");
            }
            Some("http2") => return AppProtocol::Http2,
            Some(_) => self.problem("app_protocol", "must be http1 or http2"),
        }
        AppProtocol::Http1
    }

    fn http(&mut self) -> Option<PublicEndpoint> {
        let schemes = self.schemes()?;
        if self.proxy_proto() != 0 {
            // The relay would read the header as a request.
            self.problem("proxy_proto", "is only supported for tcp and tls");
        }
        let mut options = HttpOpts {
            subdomain: self.subdomain(),
            compression: self.flag("compression").unwrap_or_default().then_some(Empty {}),
            websocket_tcp_converter: self
                .flag("websocket_tcp_converter")
                .unwrap_or_default()
                .then_some(Empty {}),
            circuit_breaker: self.circuit_breaker(),
            ip_restriction: self.ip_restriction(),
            basic_auth: self.basic_auth(),
            request_headers: self.headers("request_header"),
            response_headers: self.headers("response_header"),
            user_agent_filter: self.user_agent_filter(),
            webhook_verification: self.webhook(),
            traffic_policy: self.policy(),
            ..HttpOpts::default()
        };
        options.hostname = self.domain();
        options.domain.clone_from(&options.hostname);
        options.mutual_tls_ca = self.mutual_tls();
        if options.mutual_tls_ca.is_some() && schemes.contains(&"http") {
            self.problem("mutual_tls_cas", "is only supported for https alone");
        }
        self.refuse("oauth", "OAuth is not supported");
        Some(PublicEndpoint::Http { schemes, options: Box::new(options) })
    }

    fn tcp(&mut self) -> Option<PublicEndpoint> {
        Some(PublicEndpoint::Tcp(TcpOpts {
            addr: self.text("remote_addr").unwrap_or_default(),
            proxy_proto: self.proxy_proto(),
            ip_restriction: self.ip_restriction(),
            traffic_policy: self.policy(),
            ..TcpOpts::default()
        }))
    }

    fn tls(&mut self) -> Option<PublicEndpoint> {
        let mut options = TlsOpts {
            subdomain: self.subdomain(),
            proxy_proto: self.proxy_proto(),
            ip_restriction: self.ip_restriction(),
            traffic_policy: self.policy(),
            ..TlsOpts::default()
        };
        let pair = self.pair();
        match self.text("terminate_at").as_deref() {
            None if pair.is_none() => self.refuse("mutual_tls_cas", ONLY_WHERE_TLS_ENDS),
            Some("upstream") => self.refuse("mutual_tls_cas", ONLY_WHERE_TLS_ENDS),
            None | Some("edge") => {
                options.mutual_tls_at_edge = self.mutual_tls();
                self.check_pair(pair.as_ref());
                let (cert, key) = pair.unwrap_or_default();
                options.tls_termination = Some(TlsTermination {
                    cert: Base64(cert),
                    key: Base64(key),
                    ..TlsTermination::default()
                });
            }
            Some("agent") => options.mutual_tls_at_agent = self.end_tls(pair, options.proxy_proto),
            Some(_) => self.problem("terminate_at", "must be edge, agent or upstream"),
        }
        options.hostname = self.domain();
        options.domain.clone_from(&options.hostname);
        Some(PublicEndpoint::Tls(Box::new(options)))
    }

    /// A tunnel that edges find; TLS that they do not end, the agent can.
    fn labeled(&mut self, labels: BTreeMap<String, String>) -> Option<PublicEndpoint> {
        if let Some((certificate, key)) = self.pair() {
            match tls::server(&certificate, &key, None) {
                Ok(config) => self.ends_tls = Some(config),
                Err((field, problem)) => self.problem(field, &problem),
            }
        }
        Some(PublicEndpoint::Labeled(labels))
    }

    /// A certificate and its key.
    fn pair(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (certificate, key) = (self.pem("crt"), self.pem("key"));
        if certificate.is_some() != key.is_some() {
            self.problem("crt", "a certificate and its key belong together");
        }
        certificate.zip(key)
    }

    /// Refuses what the service could not use, before it is asked.
    fn check_pair(&mut self, pair: Option<&(Vec<u8>, Vec<u8>)>) {
        let Some((certificate, key)) = pair else { return };
        if let Err((field, problem)) = tls::server(certificate, key, None) {
            self.problem(field, &problem);
        }
    }

    /// Reads how TLS ends at the agent; true where visitors have to show a certificate.
    fn end_tls(&mut self, pair: Option<(Vec<u8>, Vec<u8>)>, proxy_proto: u8) -> bool {
        let authorities = self.pem("mutual_tls_cas");
        if proxy_proto != 0 {
            // The service writes that header before the TLS of the visitor.
            self.problem("proxy_proto", "is not supported if the agent terminates TLS");
        }
        let Some((certificate, key)) = pair else {
            self.problem("crt", "is required if the agent terminates TLS");
            return false;
        };
        match tls::server(&certificate, &key, authorities.as_deref()) {
            Ok(config) => self.ends_tls = Some(config),
            Err((field, problem)) => self.problem(field, &problem),
        }
        authorities.is_some()
    }

    /// Who signs the certificates that visitors must show to the service.
    fn mutual_tls(&mut self) -> Option<MutualTls> {
        self.pem("mutual_tls_cas").map(|pem| MutualTls { mutual_tls_ca: Base64(pem) })
    }

    /// What the file of this field holds.
    fn pem(&mut self, field: &'static str) -> Option<Vec<u8>> {
        self.text(field).map(|path| self.file(field, &path))
    }

    fn file(&mut self, field: &'static str, path: &str) -> Vec<u8> {
        let path = Path::new(path);
        certificate::read_file(path).unwrap_or_else(|error| {
            self.problem(field, &format!("{}: {error}", mask::path(path)));
            Vec::new()
        })
    }

    fn address(&mut self, proto: Option<&str>) -> Option<LocalAddress> {
        let text = match self.value("addr") {
            None => {
                self.problem("addr", "is required");
                return None;
            }
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(port)) => port.to_string(),
            Some(_) => {
                self.problem("addr", "must be a port, host:port or a URL");
                return None;
            }
        };
        match address(&text, proto.unwrap_or("http")) {
            Ok(LocalAddress::Files(folder)) if !folder.is_dir() => {
                let text = mask::target(&text);
                self.problem("addr", &format!("{text:?} is not a folder on this machine"));
                None
            }
            Ok(address) => Some(address),
            Err(problem) => {
                let text = mask::target(&text);
                self.problem("addr", &format!("{text:?} {problem}"));
                None
            }
        }
    }
}
