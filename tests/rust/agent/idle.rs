//! Sessions in which nothing happens.

use std::sync::Arc;
use std::time::Duration;

use ginnel_mux::Code;
use ginnel_mux::Incoming;
use ginnel_mux::MuxSession;
use ginnel_mux::SessionEnd;
use ginnel_mux::Side;
use ginnel_mux::heartbeat;
use ginnel_mux::protocol::message::Auth;
use ginnel_mux::protocol::message::AuthExtra;
use ginnel_mux::protocol::message::Bind;
use ginnel_mux::protocol::rpc;
use ginnel_service::{AgentSettings, Options, Service};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::support::PATIENCE;
use crate::service::support::client;

const LOGIN: Duration = Duration::from_secs(2);

async fn hurried() -> Service {
    // Installs what TLS is made with.
    drop(client());
    let agents = AgentSettings { login_timeout: LOGIN, ..AgentSettings::default() };
    Service::start(Options { agents, ..Options::default() }).await.unwrap()
}

/// Connects as an agent that has not said anything.
async fn connect(service: &Service) -> (MuxSession, Incoming) {
    let mut roots = RootCertStore::empty();
    let pem = service.gateway().authority().pem();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tcp = TcpStream::connect(service.agent_address().unwrap()).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    MuxSession::start(tls, Side::Agent)
}

fn auth(service: &Service) -> Auth {
    let auth_token = service.authtoken().unwrap().0.as_str().into();
    Auth {
        version: vec!["3".to_owned()],
        extra: AuthExtra { auth_token, ..AuthExtra::default() },
        ..Auth::default()
    }
}

#[tokio::test]
async fn a_session_that_binds_nothing_stays() {
    let service = hurried().await;
    let (session, mut incoming) = connect(&service).await;
    // As official libraries do: the heartbeat begins first, and nothing follows the login.
    let _beat = heartbeat::start_steady(&session, Duration::from_secs(10), Duration::from_secs(15));
    sleep(LOGIN / 10).await;

    let answer = rpc::call(&session, &auth(&service), PATIENCE).await.unwrap();

    assert_eq!(answer.error, None);
    let ended = timeout(LOGIN * 2, session.wait_until_ended()).await;
    assert!(ended.is_err(), "{ended:?}");
    // The service beats as well.
    assert!(incoming.next().await.is_some());
}

#[tokio::test]
async fn who_does_not_log_in_is_not_waited_for() {
    let service = hurried().await;
    let (session, _incoming) = connect(&service).await;
    let _beat = heartbeat::start_steady(&session, Duration::from_secs(10), Duration::from_secs(15));

    let ended = timeout(PATIENCE, session.wait_until_ended()).await.unwrap();

    assert!(matches!(ended, SessionEnd::PeerClosed | SessionEnd::Broken(_)), "{ended}");
}

#[tokio::test]
async fn nothing_but_a_login_is_answered_before_it() {
    let service = hurried().await;
    let (session, _incoming) = connect(&service).await;

    let refused = rpc::call(&session, &Bind::default(), PATIENCE).await.unwrap();
    let answer = rpc::call(&session, &auth(&service), PATIENCE).await.unwrap();
    let again = rpc::call(&session, &auth(&service), PATIENCE).await.unwrap();

    assert!(refused.error.unwrap().starts_with("the agent is not authenticated yet"));
    assert_eq!(answer.error, None);
    assert!(again.error.unwrap().starts_with("the agent is already authenticated"));
}

#[tokio::test]
async fn who_asks_for_more_than_a_login_is_told_to_leave() {
    let service = hurried().await;
    let (session, _incoming) = connect(&service).await;

    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(session.open_stream(bytes::Bytes::from_static(b"\0\0\0\0")).await);
    }

    let ended = timeout(PATIENCE, session.wait_until_ended()).await.unwrap();
    let SessionEnd::GoneAway { code, text } = ended else { panic!("{ended}") };
    assert_eq!(code, Code::ENHANCE_YOUR_CALM);
    assert_eq!(text, "before authentication: more than 2 open streams");
}
