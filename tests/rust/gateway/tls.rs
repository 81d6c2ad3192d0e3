//! TLS, the local authority, and HTTP/2.

use std::sync::Arc;

use ginnel_api::Secret;
use ginnel_api::endpoint_options::TunnelCertificate;
use ginnel_api::{Base64, EndpointOptions};
use ginnel_gateway::tls::{AuthorityKey, LocalAuthority};
use ginnel_gateway::{EndpointSpec, GatewaySettings, Proto};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::support::{Direct, bound, edges_with, mirror, soon, upstream};
use crate::service::support::Folder;

pub fn trusting(authority: &LocalAuthority, alpn: &[&str]) -> TlsConnector {
    trusting_pem(authority.pem(), alpn)
}

pub fn trusting_pem(pem: &str, alpn: &[&str]) -> TlsConnector {
    let mut config = trusting_config(pem);
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

fn trusting_config(pem: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

pub async fn connect(
    connector: &TlsConnector,
    port: u16,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    soon(connector.connect(name, tcp)).await
}

#[tokio::test]
async fn every_name_has_a_certificate_of_the_local_authority() {
    let settings =
        GatewaySettings { base_domain: Some("tunnels.test".into()), ..GatewaySettings::default() };
    let edges = edges_with(settings).await;
    let port = edges.https_address().unwrap().port();
    let connector = trusting(edges.authority(), &[]);

    for name in ["localhost", "127.0.0.1", "app.example.test", "a.b.tunnels.test"] {
        assert!(connect(&connector, port, name).await.is_ok(), "{name}");
    }

    let stranger = LocalAuthority::open(None).unwrap();
    assert!(connect(&trusting(&stranger, &[]), port, "localhost").await.is_err());
}

#[tokio::test]
async fn http_2_and_http_1_are_spoken_over_tls() {
    let settings = GatewaySettings { tls_endpoints: true, ..GatewaySettings::default() };
    let edges = edges_with(settings).await;
    let target = Direct::to(mirror().await);
    let endpoint =
        edges.bind_endpoint(EndpointSpec::any(Proto::Https), target.clone()).await.unwrap();
    let port = endpoint.address().unwrap().port();
    assert_eq!(endpoint.url(), format!("https://127.0.0.1:{port}"));
    let both = trusting(edges.authority(), &["h2", "http/1.1"]);

    let stream = connect(&both, port, "127.0.0.1").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("https://127.0.0.1:{port}/h2?x"))
        .body(Full::new(Bytes::from_static(b"over two")))
        .unwrap();
    let answer = soon(sender.send_request(request)).await.unwrap();
    let status = answer.status();
    let seen = soon(answer.into_body().collect()).await.unwrap().to_bytes();
    let seen = String::from_utf8_lossy(&seen);

    assert_eq!(status, 200);
    assert!(seen.starts_with("POST /h2?x HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{seen}");
    assert!(seen.contains("x-forwarded-proto: https\r\n"), "{seen}");
    assert!(seen.ends_with("\r\n\r\nover two"), "{seen}");
    let old = trusting(edges.authority(), &["http/1.1"]);
    let stream = connect(&old, port, "localhost").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn no_tls_before_1_2_is_spoken() {
    let edges = edges_with(GatewaySettings::default()).await;
    let port = edges.https_address().unwrap().port();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(edges.authority().pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let second = connect(&TlsConnector::from(Arc::new(config)), port, "localhost").await.unwrap();
    let version = second.get_ref().1.protocol_version().unwrap();
    assert_eq!(version, rustls::ProtocolVersion::TLSv1_2);

    // A greeting in TLS 1.1 with one of its cipher suites.
    let mut hello = vec![1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0, 47, 1, 0]);
    let mut first = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let record = [&[22, 3, 1, 0, u8::try_from(hello.len()).unwrap()][..], &hello].concat();
    tokio::io::AsyncWriteExt::write_all(&mut first, &record).await.unwrap();
    let mut alert = Vec::new();
    soon(tokio::io::AsyncReadExt::read_to_end(&mut first, &mut alert)).await.unwrap();
    assert_eq!((alert[0], alert[5]), (21, 2), "a fatal alert");
}

#[tokio::test]
async fn an_endpoint_speaks_plain_http_unless_it_shall_not() {
    let edges = edges_with(GatewaySettings::default()).await;

    let endpoint = edges
        .bind_endpoint(EndpointSpec::any(Proto::Https), Direct::to(mirror().await))
        .await
        .unwrap();

    assert!(endpoint.url().starts_with("http://127.0.0.1:"), "{}", endpoint.url());
}

#[test]
fn an_authority_lives_beside_its_database() {
    let folder = Folder::new();
    let database = folder.file("db");

    let made = LocalAuthority::open(Some(&database)).unwrap();
    let again = LocalAuthority::open(Some(&database)).unwrap();
    let other = LocalAuthority::open(None).unwrap();

    assert_eq!(made.pem(), again.pem());
    assert_ne!(made.pem(), other.pem());
    assert_eq!(made.path(), Some(folder.file("db-ca.pem").as_path()));
    assert_eq!(std::fs::read_to_string(folder.file("db-ca.pem")).unwrap(), made.pem());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let key = std::fs::metadata(folder.file("db-ca.key")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
    }
    std::fs::write(folder.file("db-ca.key"), "nonsense").unwrap();
    assert!(LocalAuthority::open(Some(&database)).is_err());
}

/// Whether one node lets the other in, and the other believes it to be who it asked for.
async fn nodes_agree(client: Arc<ClientConfig>, server: Arc<ServerConfig>, name: &str) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(server).accept(tcp).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    });
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut received = Vec::new();
    if let Ok(mut stream) = soon(TlsConnector::from(client).connect(name, tcp)).await {
        let _ = soon(stream.read_to_end(&mut received)).await;
    }
    accepted.await.unwrap().is_ok() && received == b"hello"
}

#[tokio::test]
async fn nodes_trust_each_other_by_name_and_nobody_else() {
    let made = AuthorityKey::new().unwrap();
    let same = AuthorityKey::from_pem(made.pem(), &made.key_pem()).unwrap();
    let one = LocalAuthority::from_key(made).unwrap();
    let node = |authority: &LocalAuthority, name: &str| authority.node_tls(name, &["x"]).unwrap();
    let (first, second) =
        (node(&one, "node-1"), node(&LocalAuthority::from_key(same).unwrap(), "node-2"));
    let stranger = node(&LocalAuthority::open(None).unwrap(), "node-1");
    let visitor = Arc::new(trusting_config(one.pem()));

    assert!(nodes_agree(first.client.clone(), second.server.clone(), "node-2").await);
    assert!(nodes_agree(second.client, first.server.clone(), "node-1").await);
    assert!(!nodes_agree(first.client.clone(), second.server, "node-3").await);
    assert!(!nodes_agree(stranger.client, first.server.clone(), "node-1").await);
    assert!(!nodes_agree(first.client, stranger.server, "node-1").await);
    assert!(!nodes_agree(visitor, first.server, "node-1").await);
}

#[tokio::test]
async fn a_certificate_that_was_given_is_shown_for_its_names() {
    let folder = Folder::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["given.test".to_owned()]).unwrap();
    let given = params.self_signed(&key).unwrap();
    std::fs::write(folder.file("chain.pem"), given.pem()).unwrap();
    std::fs::write(folder.file("key.pem"), key.serialize_pem()).unwrap();
    let edges = edges_with(GatewaySettings::default()).await;
    let port = edges.https_address().unwrap().port();
    let connector = trusting(edges.authority(), &[]);
    let kept = connect(&connector, port, "given.test").await.unwrap();

    edges
        .authority()
        .provide_certificate(&folder.file("chain.pem"), &folder.file("key.pem"))
        .unwrap();

    assert!(connect(&connector, port, "given.test").await.is_err(), "by another authority");
    assert!(connect(&connector, port, "other.test").await.is_ok());
    assert!(
        edges
            .authority()
            .provide_certificate(&folder.file("key.pem"), &folder.file("key.pem"))
            .is_err()
    );
    drop(kept);
    let _ = bound(&edges, Direct::to(mirror().await)).await;
}

#[tokio::test]
async fn tls_may_end_at_the_service_for_bytes() {
    let edges = edges_with(GatewaySettings::default()).await;
    let address = upstream(|mut peer| async move {
        let heard = peer.exactly(5).await;
        peer.say(&heard.to_uppercase()).await;
    })
    .await;
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["given.test".to_owned()]).unwrap();
    let given = (params.self_signed(&key).unwrap().pem(), Secret(key.serialize_pem()));
    let pair = |cert: &str, key: &str| TunnelCertificate {
        cert: Base64(cert.to_owned().into()),
        key: Base64(key.to_owned().into()),
        ..TunnelCertificate::default()
    };
    let own = pair(&given.0, &given.1.0);

    for (termination, name) in [(TunnelCertificate::default(), "a.test"), (own, "given.test")] {
        let trusted = match name {
            "a.test" => edges.authority().pem(),
            _ => &given.0,
        };
        let options = EndpointOptions { tls_termination: Some(termination), ..Default::default() };
        let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Tls) };
        let endpoint = edges.bind_endpoint(wanted, Direct::to(address)).await.unwrap();
        let port = endpoint.address().unwrap().port();
        let mut stream = connect(&trusting_pem(trusted, &[]), port, name).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"hello").await.unwrap();
        let mut heard = [0; 5];
        soon(tokio::io::AsyncReadExt::read_exact(&mut stream, &mut heard)).await.unwrap();
        assert_eq!(&heard, b"HELLO", "{name}");
    }
    let nonsense = Some(pair("x", "y"));
    let options = EndpointOptions { tls_termination: nonsense, ..Default::default() };
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Tls) };
    assert!(edges.bind_endpoint(wanted, Direct::to(address)).await.is_err());
}
