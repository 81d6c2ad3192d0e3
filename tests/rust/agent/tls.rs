//! TLS of visitors that ends at the agent, and certificates that visitors must show.

use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedKey, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::support::{PATIENCE, Whole, message};
use crate::service::support::Folder;

/// A certificate that vouches for itself, and its key, in files.
pub struct Identity {
    pub certificate: String,
    key: String,
    pub files: [String; 2],
}

impl Identity {
    pub fn new(folder: &Folder, name: &str, usage: ExtendedKeyUsagePurpose) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let signing_key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&signing_key).unwrap();
        let made = CertifiedKey { cert, signing_key };
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let files = ["crt", "key"].map(|end| folder.file(&format!("{name}.{end}")));
        std::fs::write(&files[0], &certificate).unwrap();
        std::fs::write(&files[1], &key).unwrap();
        Self { certificate, key, files: files.map(|file| file.display().to_string()) }
    }
}

/// Asks at a tunnel with TLS; the answer.
async fn ask(url: &str, trusted: &Identity, shown: Option<&Identity>) -> io::Result<String> {
    let place = url.strip_prefix("tls://").unwrap();
    visit(place, &trusted.certificate, shown, true).await
}

/// Asks over TLS for `shop.test`, which the handshake may name; the answer.
pub async fn visit(
    place: &str,
    trusted: &str,
    shown: Option<&Identity>,
    names: bool,
) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
    };
    config.enable_sni = names;
    let stream = TcpStream::connect(place).await?;
    // Who is not asked for by name shows the certificate of this machine.
    let name = if names { "shop.test" } else { "localhost" };
    let name = ServerName::try_from(name).unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /secret HTTP/1.1\r\nHost: shop.test\r\n\r\n").await?;
    let answer = message(&mut stream, &mut Vec::new()).await.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(String::from_utf8(answer).unwrap())
}

/// Starts a tunnel whose TLS ends at the agent; its address.
async fn start(whole: &Whole, identity: &Identity, more: Value) -> String {
    let [crt, key] = &identity.files;
    let mut definition = json!({
        "name": "tls", "proto": "tls", "terminate_at": "agent", "crt": crt, "key": key,
    });
    definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (status, tunnel) = whole.start_tunnel(definition).await;
    assert_eq!(status, 201, "{tunnel}");
    tunnel["public_url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_agent_shows_its_certificate_and_forwards_what_was_said() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let stranger = Identity::new(&folder, "other.test", ExtendedKeyUsagePurpose::ServerAuth);
    let url = start(&whole, &own, json!({})).await;

    let answer = timeout(PATIENCE, ask(&url, &own, None)).await.unwrap().unwrap();

    assert!(answer.contains("\r\n\r\nGET /secret HTTP/1.1\r\n"), "{answer}");
    assert!(timeout(PATIENCE, ask(&url, &stranger, None)).await.unwrap().is_err());
    let metrics = whole.get("/api/tunnels/tls").await["metrics"]["conns"]["count"].clone();
    assert_eq!(metrics, 2);
}

#[tokio::test]
async fn only_visitors_with_a_certificate_are_let_in_where_that_is_asked() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let known = Identity::new(&folder, "known.test", ExtendedKeyUsagePurpose::ClientAuth);
    let unknown = Identity::new(&folder, "unknown.test", ExtendedKeyUsagePurpose::ClientAuth);
    let url = start(&whole, &own, json!({"mutual_tls_cas": known.files[0]})).await;

    let answer = timeout(PATIENCE, ask(&url, &own, Some(&known))).await.unwrap().unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
    for shown in [None, Some(&unknown)] {
        assert!(timeout(PATIENCE, ask(&url, &own, shown)).await.unwrap().is_err());
    }
}

#[tokio::test]
async fn the_service_lets_in_only_visitors_with_a_certificate_where_tls_ends_there() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let known = Identity::new(&folder, "known.test", ExtendedKeyUsagePurpose::ClientAuth);
    let unknown = Identity::new(&folder, "unknown.test", ExtendedKeyUsagePurpose::ClientAuth);
    let more = json!({"terminate_at": "edge", "mutual_tls_cas": known.files[0]});
    let url = start(&whole, &own, more).await;

    let answer = timeout(PATIENCE, ask(&url, &own, Some(&known))).await.unwrap().unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
    for shown in [None, Some(&unknown)] {
        assert!(timeout(PATIENCE, ask(&url, &own, shown)).await.unwrap().is_err());
    }
}

#[tokio::test]
async fn an_https_tunnel_lets_in_only_visitors_with_a_certificate() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let known = Identity::new(&folder, "known.test", ExtendedKeyUsagePurpose::ClientAuth);
    let unknown = Identity::new(&folder, "unknown.test", ExtendedKeyUsagePurpose::ClientAuth);
    let definition = json!({
        "name": "web", "proto": "http", "domain": "shop.test", "mutual_tls_cas": known.files[0],
    });
    let (status, tunnel) = whole.start_tunnel(definition).await;
    assert_eq!(status, 201, "{tunnel}");
    let place = whole.service.gateway().https_address().unwrap().to_string();
    let trusted = whole.service.gateway().authority().pem().to_owned();
    let visit = |shown, names| timeout(PATIENCE, visit(&place, &trusted, shown, names));

    let answer = visit(Some(&known), true).await.unwrap().unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
    for shown in [None, Some(&unknown)] {
        assert!(visit(shown, true).await.unwrap().is_err());
    }
    let unnamed = visit(None, false).await.unwrap().unwrap();
    assert!(unnamed.starts_with("HTTP/1.1 421 "), "{unnamed}");
}

#[tokio::test]
async fn what_cannot_ask_for_certificates_is_refused() {
    let (folder, whole) = (Folder::new(), Whole::start().await);
    let known = Identity::new(&folder, "known.test", ExtendedKeyUsagePurpose::ClientAuth);
    let [certificate, key] = &known.files;
    let cases = [
        (json!({"domain": "shop.test", "mutual_tls_cas": key}), "holds no certificate"),
        (json!({"mutual_tls_cas": certificate}), "needs TLS that ends at the service"),
        (json!({"schemes": ["http"], "mutual_tls_cas": certificate}), "for https alone"),
    ];

    for (more, told) in cases {
        let mut definition = json!({"name": "web", "proto": "http"});
        definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = whole.start_tunnel(definition).await;

        assert!((400..600).contains(&status), "{answer}");
        assert!(answer.to_string().contains(told), "{answer}");
    }
}
