//! What a trial is given: a visitor, a request, what the upstream answers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{CONTENT_LENGTH, HOST, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, response};
use serde::Deserialize;

use ginnel_base::address::Authority;
use ginnel_http1::strip_identity;

use crate::AddressLookup;
use crate::authority::host_and_port;
use crate::checker;
use crate::exchange::{EndpointFacts, Request, Response, TlsFacts, VisitorConnection};
use crate::ip_rules::IpRules;
use crate::login::{Admission, Identity, LoginOutcome, LoginProvider, LoginRequest, VisitKind};
use crate::verdict::LocalResponse;

/// What comes, and what is around it. Everything may be left out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Who comes.
    pub connection: Peer,
    /// The URL of the endpoint; that of the request unless given.
    pub endpoint: Option<String>,
    /// The request; a connection that is bytes has none.
    pub request: Option<Wish>,
    /// What the upstream answers; an empty 200 unless given.
    pub response: Option<SimulatedResponse>,
    /// The rules of IP policies, by identifier.
    pub ip_policies: BTreeMap<String, Ranges>,
    /// What other servers answer, by URL; an address without an answer cannot be reached.
    pub fetch: BTreeMap<String, SimulatedResponse>,
    /// Who has logged in; nobody unless given.
    pub login: Option<SimulatedLogin>,
    /// Endpoints that `forward-internal` does not reach.
    pub offline: Vec<String>,
    /// How long after the message before this one comes, such as `10s`.
    pub after: Option<String>,
}

/// Who comes, and how.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Peer {
    /// The address of the visitor; 127.0.0.1 unless given.
    pub client_ip: Option<IpAddr>,
    /// The port of the visitor; 40000 unless given.
    pub client_port: Option<u16>,
    /// What was agreed on by TLS.
    pub tls: Option<Agreed>,
}

/// What was agreed on by TLS.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agreed {
    /// The version.
    pub version: String,
    /// The cipher suite.
    pub cipher_suite: String,
    /// The name that the visitor asked for.
    pub sni: String,
    /// The protocol.
    pub alpn: String,
    /// Whether the session was resumed.
    pub resumed: bool,
}

/// A request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wish {
    /// The method; GET unless given.
    pub method: Option<String>,
    /// The URL; `http://localhost/` unless given.
    pub url: Option<String>,
    /// The headers, each with one value or several.
    pub headers: BTreeMap<String, HeaderValues>,
    /// The body.
    pub body: String,
}

/// A response.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulatedResponse {
    /// The status; 200 unless given.
    pub status: Option<u16>,
    /// The headers, each with one value or several.
    pub headers: BTreeMap<String, HeaderValues>,
    /// The body.
    pub body: String,
}

/// Somebody who has logged in, in the words of the issuer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulatedLogin {
    /// The name that the issuer gives to nobody else.
    pub id: String,
    /// The email address.
    pub email: Option<String>,
    /// Whether the issuer has verified the address; it does not say unless given.
    pub email_verified: Option<bool>,
    /// What they are called.
    pub name: Option<String>,
    /// Their groups.
    pub groups: Vec<String>,
}

/// The rules of an IP policy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ranges {
    /// The ranges that may come in.
    pub allow: Vec<String>,
    /// The ranges that may not.
    pub deny: Vec<String>,
}

/// One value of a header, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum HeaderValues {
    /// One.
    One(String),
    /// Several, in order.
    Several(Vec<String>),
}

/// The arguments are not a valid request or connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {text:?} is not a valid {what}")]
pub struct InvalidTraffic {
    /// The field.
    pub field: &'static str,
    /// What it holds.
    pub text: String,
    /// What it should hold.
    pub what: &'static str,
}

fn invalid_field(field: &'static str, text: &str, what: &'static str) -> InvalidTraffic {
    InvalidTraffic { field, text: text.to_owned(), what }
}

impl Traffic {
    pub(super) fn elapsed_time(&self) -> Result<Duration, InvalidTraffic> {
        let Some(text) = &self.after else { return Ok(Duration::ZERO) };
        checker::parse_duration(text)
            .ok_or_else(|| invalid_field("after", text, "duration such as 10s"))
    }

    pub(super) fn build_connection(
        &self,
        now: DateTime<Utc>,
    ) -> Result<Arc<VisitorConnection>, InvalidTraffic> {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let client_ip = self.connection.client_ip.unwrap_or(here);
        let tls = self.connection.tls.as_ref().map(|tls| TlsFacts {
            version: tls.version.clone(),
            cipher_suite: tls.cipher_suite.clone(),
            sni: tls.sni.clone(),
            alpn: tls.alpn.clone(),
            resumed: tls.resumed,
            ..TlsFacts::default()
        });
        Ok(Arc::new(VisitorConnection {
            client: SocketAddr::new(client_ip, self.connection.client_port.unwrap_or(40_000)),
            server: SocketAddr::new(here, self.build_endpoint()?.port),
            region: String::new(),
            started: now,
            tls,
            lookup: AddressLookup::default(),
        }))
    }

    pub(super) fn build_endpoint(&self) -> Result<Arc<EndpointFacts>, InvalidTraffic> {
        let asked = self.request.as_ref().map_or("tcp://localhost:443", Wish::url_or_default);
        let url = self.endpoint.as_deref().unwrap_or(asked);
        let field = if self.endpoint.is_some() { "endpoint" } else { "request.url" };
        let no_url = || invalid_field(field, url, "URL");
        let (protocol, rest) = url.split_once("://").ok_or_else(no_url)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = host_and_port(authority, protocol);
        Ok(Arc::new(EndpointFacts {
            id: Arc::default(),
            url: format!("{protocol}://{authority}").into(),
            host: host.to_owned(),
            port,
            protocol: protocol.to_owned().into(),
        }))
    }

    pub(super) fn build_request(
        &self,
        now: DateTime<Utc>,
    ) -> Result<Option<Request>, InvalidTraffic> {
        self.request.as_ref().map(|wish| wish.to_request(now)).transpose()
    }

    pub(super) fn build_response(&self) -> Result<Response, InvalidTraffic> {
        match &self.response {
            Some(reply) => reply.to_response(),
            None => SimulatedResponse::default().to_response(),
        }
    }

    pub(super) fn request_body(&self) -> Bytes {
        self.request.as_ref().map_or_else(Bytes::new, |wish| wish.body.clone().into())
    }

    pub(super) fn response_body(&self) -> Bytes {
        self.response.as_ref().map_or_else(Bytes::new, |reply| reply.body.clone().into())
    }

    pub(super) fn find_reply(&self, url: &str) -> Option<&SimulatedResponse> {
        self.fetch.get(url)
    }

    /// Who has sent the request; the issuer itself is not asked.
    pub(super) fn logged_in(&self, request: &LoginRequest) -> LoginOutcome {
        let steps = [VisitKind::Login, VisitKind::Logout, VisitKind::Callback];
        match &self.login {
            Some(login) if !steps.contains(&request.visit.kind) => login.to_outcome(),
            _ => unknown_visitor(request),
        }
    }

    pub(super) fn is_offline(&self, url: &str) -> bool {
        self.offline.iter().any(|offline| offline == url)
    }

    pub(super) fn ip_policies(&self) -> Result<BTreeMap<String, Arc<IpRules>>, InvalidTraffic> {
        let ranges = |texts: &[String]| {
            let range = |text: &String| {
                text.parse().map_err(|_| invalid_field("ip_policies", text, "CIDR"))
            };
            texts.iter().map(range).collect::<Result<Vec<_>, _>>()
        };
        let rules = |(id, texts): (&String, &Ranges)| {
            let rules = IpRules { allow: ranges(&texts.allow)?, deny: ranges(&texts.deny)? };
            Ok((id.clone(), Arc::new(rules)))
        };
        self.ip_policies.iter().map(rules).collect()
    }
}

impl SimulatedLogin {
    fn to_outcome(&self) -> LoginOutcome {
        LoginOutcome::Admitted(Box::new(Admission {
            identity: Identity {
                subject: self.id.clone(),
                email: self.email.clone(),
                email_verified: self.email_verified,
                name: self.name.clone(),
                username: None,
                groups: Some(self.groups.clone()),
            },
            session_id: "trial".to_owned(),
            id_token: None,
            access_token: None,
            refresh_token: None,
            expires_at: String::new(),
            is_refreshed: false,
            headers: HeaderMap::new(),
        }))
    }
}

/// What somebody gets who has not logged in: a browser is sent to the issuer.
fn unknown_visitor(request: &LoginRequest) -> LoginOutcome {
    if request.visit.kind == VisitKind::Call {
        let sentence = "You must log in: open this address in a browser.";
        return LoginOutcome::refused(StatusCode::UNAUTHORIZED, 3445, sentence);
    }
    let mut response = LocalResponse::empty(StatusCode::FOUND);
    let url = match &request.config.provider {
        LoginProvider::Issuer(issuer) => issuer,
        LoginProvider::Endpoints(endpoints) => &endpoints.authorization_url,
    };
    if let Ok(url) = HeaderValue::try_from(url) {
        response.headers.insert(LOCATION, url);
    }
    LoginOutcome::Answered { response, result: serde_json::json!({}) }
}

impl Wish {
    fn url_or_default(&self) -> &str {
        self.url.as_deref().unwrap_or("http://localhost/")
    }

    fn to_request(&self, now: DateTime<Utc>) -> Result<Request, InvalidTraffic> {
        let method = self.method.as_deref().unwrap_or("GET");
        let invalid_url = || invalid_field("request.url", self.url_or_default(), "URL");
        Authority::split_url(self.url_or_default()).map_err(|_| invalid_url())?;
        let url: Uri = self.url_or_default().parse().map_err(|_| invalid_url())?;
        let scheme = match url.scheme_str() {
            Some("https") => "https",
            Some("http") => "http",
            _ => {
                return Err(invalid_field(
                    "request.url",
                    self.url_or_default(),
                    "http or https URL",
                ));
            }
        };
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.method = Method::try_from(method)
            .map_err(|_| invalid_field("request.method", method, "method"))?;
        head.headers = parse_headers("request.headers", &self.headers)?;
        strip_identity(&mut head.headers);
        if let Some(host) =
            url.authority().and_then(|host| HeaderValue::try_from(host.as_str()).ok())
        {
            head.headers.entry(HOST).or_insert(host);
        }
        if !self.body.is_empty() {
            head.headers.entry(CONTENT_LENGTH).or_insert(self.body.len().into());
        }
        // A server sees a path alone.
        head.uri = url.path_and_query().cloned().map(Uri::from).unwrap_or_default();
        Ok(Request::new(head, scheme, now))
    }
}

impl SimulatedResponse {
    /// Head and body.
    pub(super) fn to_message(&self) -> Result<(response::Parts, Bytes), InvalidTraffic> {
        let (mut head, ()) = http::Response::new(()).into_parts();
        let status = self.status.unwrap_or(200);
        head.status = StatusCode::from_u16(status)
            .map_err(|_| invalid_field("response.status", &status.to_string(), "status"))?;
        head.headers = parse_headers("response.headers", &self.headers)?;
        if !self.body.is_empty() {
            head.headers.entry(CONTENT_LENGTH).or_insert(self.body.len().into());
        }
        Ok((head, self.body.clone().into()))
    }
}

fn parse_headers(
    field: &'static str,
    named: &BTreeMap<String, HeaderValues>,
) -> Result<HeaderMap, InvalidTraffic> {
    let mut headers = HeaderMap::new();
    for (name, values) in named {
        let values = match values {
            HeaderValues::One(value) => std::slice::from_ref(value),
            HeaderValues::Several(values) => values,
        };
        let name =
            HeaderName::try_from(name).map_err(|_| invalid_field(field, name, "header name"))?;
        for value in values {
            let no_value = |_| invalid_field(field, value, "header value");
            headers.append(&name, HeaderValue::try_from(value).map_err(no_value)?);
        }
    }
    Ok(headers)
}
