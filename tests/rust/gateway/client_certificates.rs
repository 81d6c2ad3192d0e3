//! HTTPS edges that ask visitors for certificates, or for a newer TLS.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::configured::EdgeFixture;
use super::support::{header, soon};

/// Who vouches for visitors.
pub(super) struct Signer {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(super) struct Shown(CertificateDer<'static>, PrivateKeyDer<'static>);

impl Signer {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Replaces the certificate of the authority by one that was valid until a year.
    fn renew_until(&mut self, year: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) =
            (date_time_ymd(year - 1, 1, 1), date_time_ymd(year, 1, 1));
        self.pem = params.self_signed(&key).unwrap().pem();
        self.issuer = Issuer::new(params, key);
    }

    /// A certificate for a visitor.
    pub fn vouch(&self) -> Shown {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["visitor.test".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Shown(certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// The certificate of the authority itself.
    pub fn own(&self) -> Shown {
        let certificate = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        let key = self.issuer.key().serialize_der();
        Shown(certificate, PrivateKeyDer::try_from(key).unwrap())
    }

    /// Makes it known to a service; gives the module of it alone.
    pub async fn known_to(&self, site: &EdgeFixture) -> Value {
        let id = site.service.create("/certificate_authorities", json!({"ca_pem": self.pem})).await;
        json!({"certificate_authority_ids": [id]})
    }
}

/// How a visitor speaks TLS.
#[derive(Clone, Copy)]
pub(super) struct Visit<'v> {
    /// The name that the handshake asks for; none asks for no name.
    pub name: Option<&'v str>,
    pub shown: Option<&'v Shown>,
    pub version: &'static SupportedProtocolVersion,
    pub alpn: &'static str,
}

impl<'v> Visit<'v> {
    pub fn to(name: &'v str, shown: Option<&'v Shown>) -> Self {
        Self { name: Some(name), shown, version: &TLS13, alpn: "http/1.1" }
    }

    pub async fn connect(self, site: &EdgeFixture) -> io::Result<TlsStream<TcpStream>> {
        let edges = site.service.service.gateway();
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(edges.authority().pem().as_bytes()).unwrap();
        roots.add(trusted).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[self.version]).unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match self.shown {
            None => builder.with_no_client_auth(),
            Some(Shown(certificate, key)) => {
                let chain = vec![certificate.clone()];
                builder.with_client_auth_cert(chain, key.clone_key()).unwrap()
            }
        };
        config.enable_sni = self.name.is_some();
        config.alpn_protocols = vec![self.alpn.as_bytes().to_vec()];
        let name = ServerName::try_from(self.name.unwrap_or("localhost").to_owned()).unwrap();
        let tcp = TcpStream::connect(edges.https_address().unwrap()).await?;
        soon(TlsConnector::from(Arc::new(config)).connect(name, tcp)).await
    }

    /// The status of an answer to a request for a host.
    pub async fn ask(self, site: &EdgeFixture, host: &str) -> io::Result<String> {
        get(&mut self.connect(site).await?, host).await
    }

    /// The alert that the service ends the handshake with.
    pub async fn alert(self, site: &EdgeFixture) -> AlertDescription {
        // With TLS 1.3 a visitor is done before the service has looked at its certificate.
        let failed = match self.connect(site).await {
            Ok(mut stream) => soon(stream.read_u8()).await.unwrap_err(),
            Err(failed) => failed,
        };
        let cause = failed.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::AlertReceived(alert)) => *alert,
            other => panic!("no alert: {other:?} {failed}"),
        }
    }
}

/// Asks over a connection; the status of the answer.
async fn get(stream: &mut TlsStream<TcpStream>, host: &str) -> io::Result<String> {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // The body has no line ends.
    while !answer.ends_with(b"hello") && !answer.ends_with(b"host.\n") {
        answer.push(soon(stream.read_u8()).await?);
    }
    Ok(String::from_utf8(answer[9..12].to_vec()).unwrap())
}

/// Asks over a connection; the status of the answer, whose body has a length.
async fn get_head(stream: &mut TlsStream<TcpStream>, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(stream.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = header(&head, "content-length").map_or(0, |it| it.parse().unwrap());
    soon(stream.read_exact(&mut vec![0; length])).await.unwrap();
    head[9..12].to_owned()
}

/// An edge that answers `hello`, with a module of its own.
async fn edge(site: &EdgeFixture, host: &str, module: &str, given: &Value) -> String {
    let body = json!({"hostports": [format!("{host}:443")], module: given});
    let edge = site.service.create("/edges/https", body).await;
    let backend = site.fixed("hello").await;
    site.route(&edge, "/", json!({"backend": backend})).await;
    edge
}

#[tokio::test]
async fn only_visitors_whom_an_authority_vouches_for_come_in() {
    let site = EdgeFixture::start().await;
    let (known, unknown) = (Signer::new("known"), Signer::new("unknown"));
    let module = known.known_to(&site).await;
    edge(&site, "shop.test", "mutual_tls", &module).await;
    let (friend, stranger) = (known.vouch(), unknown.vouch());

    for version in [&TLS13, &TLS12] {
        let visit = |shown| Visit { version, ..Visit::to("shop.test", shown) };

        assert_eq!(visit(Some(&friend)).ask(&site, "shop.test").await.unwrap(), "202");
        assert_eq!(visit(None).alert(&site).await, AlertDescription::CertificateRequired);
        let alert = visit(Some(&stranger)).alert(&site).await;
        assert_eq!(alert, AlertDescription::UnknownCA);
    }
}

#[tokio::test]
async fn a_certificate_that_was_given_comes_in_itself() {
    let site = EdgeFixture::start().await;
    let (known, namesake) = (Signer::new("device 1"), Signer::new("device 1"));
    let module = known.known_to(&site).await;
    edge(&site, "shop.test", "mutual_tls", &module).await;
    let (own, other) = (known.own(), namesake.own());

    for version in [&TLS13, &TLS12] {
        let visit = |shown| Visit { version, ..Visit::to("shop.test", Some(shown)) };

        assert_eq!(visit(&own).ask(&site, "shop.test").await.unwrap(), "202");
        assert!(visit(&other).ask(&site, "shop.test").await.is_err());
    }
}

#[tokio::test]
async fn a_certificate_that_was_given_must_be_valid() {
    let site = EdgeFixture::start().await;
    let mut known = Signer::new("device 1");
    known.renew_until(2002);
    edge(&site, "shop.test", "mutual_tls", &known.known_to(&site).await).await;

    let alert = Visit::to("shop.test", Some(&known.own())).alert(&site).await;

    assert_eq!(alert, AlertDescription::CertificateExpired);
}

#[tokio::test]
async fn the_name_in_the_handshake_does_not_matter_but_its_policy_does() {
    let site = EdgeFixture::start().await;
    let (known, other) = (Signer::new("known"), Signer::new("other"));
    let module = known.known_to(&site).await;
    let [twin, foreign] = [known.known_to(&site).await, other.known_to(&site).await];
    edge(&site, "shop.test", "mutual_tls", &module).await;
    edge(&site, "twin.test", "mutual_tls", &twin).await;
    edge(&site, "foreign.test", "mutual_tls", &foreign).await;
    edge(&site, "open.test", "tls_termination", &json!({})).await;
    edge(&site, "new.test", "tls_termination", &json!({"min_version": "1.3"})).await;
    let shown = known.vouch();
    let with_certificate = Visit::to("shop.test", Some(&shown));
    let old = Visit { version: &TLS12, ..Visit::to("open.test", None) };
    let unnamed = Visit { name: None, ..Visit::to("", None) };
    let nobodys = Visit::to("origin.test", None);

    for (visit, host, expected) in [
        (unnamed, "open.test", "202"),
        (nobodys, "open.test", "202"),
        (nobodys, "new.test", "202"),
        (old, "new.test", "421"),
        (nobodys, "shop.test", "421"),
        (with_certificate, "open.test", "202"),
        (with_certificate, "new.test", "202"),
        (with_certificate, "twin.test", "202"),
        (with_certificate, "foreign.test", "421"),
    ] {
        assert_eq!(visit.ask(&site, host).await.unwrap(), expected, "{host}");
    }
}

#[tokio::test]
async fn rules_do_not_see_a_certificate_that_another_edge_asked_for() {
    let site = EdgeFixture::start().await;
    let known = Signer::new("known");
    let module = known.known_to(&site).await;
    let rule = json!({
        "expressions": ["conn.tls.client.san.dns_names.size() > 0"],
        "actions": [{"type": "deny", "config": {"status_code": 403}}],
    });
    for (host, module) in [("shop.test", json!({"mutual_tls": module})), ("open.test", json!({}))] {
        let mut body = module;
        body["hostports"] = json!([format!("{host}:443")]);
        let edge = site.service.create("/edges/https", body).await;
        let backend = site.fixed("hello").await;
        let policy = json!({"inbound": [rule]});
        site.route(&edge, "/", json!({"backend": backend, "policy": policy})).await;
    }
    let shown = known.vouch();
    let mut stream = Visit::to("shop.test", Some(&shown)).connect(&site).await.unwrap();

    let mut statuses = Vec::new();
    for host in ["shop.test", "open.test", "shop.test"] {
        statuses.push(get_head(&mut stream, host).await);
    }

    assert_eq!(statuses, ["403", "202", "403"]);
}

#[tokio::test]
async fn each_of_several_authorities_may_vouch() {
    let site = EdgeFixture::start().await;
    let [one, two] = ["one", "two"].map(Signer::new);
    let bundle = json!({"ca_pem": format!("{}{}", one.pem, two.pem)});
    let bundle = site.service.create("/certificate_authorities", bundle).await;
    let ids = [
        bundle,
        Signer::new("three").known_to(&site).await["certificate_authority_ids"][0]
            .as_str()
            .unwrap()
            .to_owned(),
    ];
    edge(&site, "shop.test", "mutual_tls", &json!({"certificate_authority_ids": ids})).await;

    for signer in [one, two] {
        let visit = Visit::to("shop.test", Some(&signer.vouch())).ask(&site, "shop.test").await;
        assert_eq!(visit.unwrap(), "202");
    }
}

#[tokio::test]
async fn a_change_acts_on_the_next_connection_and_ends_those_before() {
    let site = EdgeFixture::start().await;
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let [first, second] = [old.known_to(&site).await, new.known_to(&site).await];
    let (old, new) = (old.vouch(), new.vouch());
    let edge = edge(&site, "shop.test", "tls_termination", &json!({})).await;
    let module = format!("/edges/https/{edge}/mutual_tls");
    let mut anybody = Visit::to("shop.test", None).connect(&site).await.unwrap();
    assert_eq!(get(&mut anybody, "shop.test").await.unwrap(), "202");

    assert_eq!(site.service.put(&module, first).await.status, 200);
    assert_eq!(get(&mut anybody, "shop.test").await.unwrap(), "421");
    let mut kept = Visit::to("shop.test", Some(&old)).connect(&site).await.unwrap();
    assert_eq!(get(&mut kept, "shop.test").await.unwrap(), "202");
    let other = json!({"metadata": "of no concern"});
    assert_eq!(site.service.patch(&format!("/edges/https/{edge}"), other).await.status, 200);
    assert_eq!(get(&mut kept, "shop.test").await.unwrap(), "202", "nothing has changed for it");

    assert_eq!(site.service.put(&module, second).await.status, 200);
    assert_eq!(get(&mut kept, "shop.test").await.unwrap(), "421");
    let refused = Visit::to("shop.test", Some(&old)).alert(&site).await;
    assert_eq!(refused, AlertDescription::UnknownCA);
    let welcome = Visit::to("shop.test", Some(&new)).ask(&site, "shop.test").await;
    assert_eq!(welcome.unwrap(), "202");

    assert_eq!(site.service.delete(&module).await.status, 204);
    assert_eq!(Visit::to("shop.test", None).ask(&site, "shop.test").await.unwrap(), "202");
}

#[tokio::test]
async fn no_other_way_leads_around_the_certificate() {
    let site = EdgeFixture::start().await;
    let known = Signer::new("known");
    let module = known.known_to(&site).await;
    edge(&site, "shop.test", "mutual_tls", &module).await;
    edge(&site, "other.test", "mutual_tls", &Signer::new("other").known_to(&site).await).await;
    edge(&site, "open.test", "tls_termination", &json!({})).await;
    let shown = known.vouch();

    let by_another_name = Visit::to("open.test", None);
    assert_eq!(by_another_name.ask(&site, "open.test").await.unwrap(), "202");
    assert_eq!(by_another_name.ask(&site, "shop.test").await.unwrap(), "421");
    let by_no_name = Visit { name: None, ..Visit::to("", None) };
    assert_eq!(by_no_name.ask(&site, "shop.test").await.unwrap(), "421");
    assert_eq!(by_no_name.ask(&site, "shop.test:443").await.unwrap(), "421");
    let with_another = Visit::to("shop.test", Some(&shown));
    assert_eq!(with_another.ask(&site, "other.test").await.unwrap(), "421");

    let plain = site.get("shop.test", "/").await;
    assert!(plain.0.starts_with("HTTP/1.1 307 "), "{}", plain.0);
}

#[tokio::test]
async fn plain_http_does_not_reach_an_edge_that_asks_for_certificates() {
    let site = EdgeFixture::start().await;
    let module = Signer::new("known").known_to(&site).await;
    let edge = site.edge("shop.test").await;
    let backend = site.fixed("hello").await;
    site.route(&edge, "/", json!({"backend": backend})).await;
    assert!(site.get("shop.test", "/").await.0.starts_with("HTTP/1.1 202 "));

    site.service.put(&format!("/edges/https/{edge}/mutual_tls"), module).await;

    let refused = site.get("shop.test", "/").await;
    assert!(refused.0.starts_with("HTTP/1.1 421 "), "{}", refused.0);
}

#[tokio::test]
async fn policies_do_not_lead_around_the_certificate() {
    let site = EdgeFixture::start().await;
    let inside = edge(&site, "shop.internal", "tls_termination", &json!({})).await;
    let outside = site.edge("open.test").await;
    let action = json!({"type": "forward-internal", "config": {"url": "https://shop.internal"}});
    let policy = json!({"inbound": [{"actions": [action]}]});
    site.route(&outside, "/", json!({"policy": policy})).await;
    assert!(site.get("open.test", "/").await.0.starts_with("HTTP/1.1 202 "));

    let module = Signer::new("known").known_to(&site).await;
    site.service.put(&format!("/edges/https/{inside}/mutual_tls"), module).await;

    assert!(site.get("open.test", "/").await.0.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn requests_that_share_a_connection_do_not_share_its_welcome() {
    let site = EdgeFixture::start().await;
    let known = Signer::new("known");
    edge(&site, "shop.test", "mutual_tls", &known.known_to(&site).await).await;
    edge(&site, "open.test", "tls_termination", &json!({})).await;
    let visit = Visit { alpn: "h2", ..Visit::to("open.test", None) };
    let stream = TokioIo::new(visit.connect(&site).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async |host: &str| {
        let request = http::Request::get(format!("https://{host}/")).body(Empty::<Bytes>::new());
        soon(sender.send_request(request.unwrap())).await.unwrap().status().as_u16()
    };

    assert_eq!(ask("open.test").await, 202);
    assert_eq!(ask("shop.test").await, 421);
    assert_eq!(ask("open.test").await, 202);
}

#[tokio::test]
async fn a_module_that_is_switched_off_asks_nobody() {
    let site = EdgeFixture::start().await;
    let mut module = Signer::new("known").known_to(&site).await;
    module["enabled"] = false.into();

    edge(&site, "shop.test", "mutual_tls", &module).await;

    assert_eq!(Visit::to("shop.test", None).ask(&site, "shop.test").await.unwrap(), "202");
}

#[tokio::test]
async fn an_edge_may_ask_for_tls_1_3() {
    let site = EdgeFixture::start().await;
    let edge = edge(&site, "shop.test", "tls_termination", &json!({"min_version": "1.3"})).await;
    let old = Visit { version: &TLS12, ..Visit::to("shop.test", None) };

    assert_eq!(Visit::to("shop.test", None).ask(&site, "shop.test").await.unwrap(), "202");
    assert_eq!(old.alert(&site).await, AlertDescription::ProtocolVersion);
    let around = Visit { name: Some("open.test"), ..old };
    assert_eq!(around.ask(&site, "shop.test").await.unwrap(), "421");

    let module = format!("/edges/https/{edge}/tls_termination");
    let replaced = site.service.put(&module, json!({"min_version": "1.2"})).await;
    let expected = json!({"enabled": true, "terminate_at": "edge", "min_version": "1.2"});
    assert_eq!(replaced.json, expected);
    assert_eq!(old.ask(&site, "shop.test").await.unwrap(), "202");
}

#[tokio::test]
async fn an_authority_is_kept_as_long_as_an_edge_uses_it() {
    let site = EdgeFixture::start().await;
    let service = &site.service;
    let known = Signer::new("known");
    let module = known.known_to(&site).await;
    let id = module["certificate_authority_ids"][0].as_str().unwrap();
    let path = format!("/certificate_authorities/{id}");
    let edge = format!("/edges/https/{}", edge(&site, "shop.test", "mutual_tls", &module).await);

    let shown = service.get(&path).await.json;
    assert_eq!(shown["subject_common_name"], "known");
    assert_eq!(
        (&shown["ca_pem"], &shown["key_usages"]),
        (&json!(known.pem), &json!(["keyCertSign"]))
    );
    let authority = json!({"id": id, "uri": format!("{}{path}", service.service.url())});
    let expected = json!({"enabled": true, "certificate_authorities": [authority]});
    assert_eq!(service.get(&edge).await.json["mutual_tls"], expected);
    assert_eq!(service.get(&format!("{edge}/mutual_tls")).await.json, expected);
    assert_eq!(service.delete(&path).await.status, 409);
    assert_eq!(service.delete(&format!("{edge}/mutual_tls")).await.status, 204);
    assert_eq!(service.get(&format!("{edge}/mutual_tls")).await.status, 404);
    assert_eq!(service.delete(&path).await.status, 204);
    assert_eq!(service.patch(&edge, json!({"mutual_tls": module})).await.code(), 7072);
}
