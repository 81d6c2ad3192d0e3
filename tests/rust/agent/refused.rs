//! What a service refuses: the credential itself for good, everything else for now.

use std::sync::Arc;
use std::time::Duration;

use ginnel_agent::definition::Definition;
use ginnel_agent::{Agent, AgentOptions, Error, SessionState, Trust, WebAddress};
use ginnel_api::Secret;
use ginnel_mux::Incoming;
use ginnel_mux::MuxSession;
use ginnel_mux::Side;
use ginnel_mux::protocol::message::Auth;
use ginnel_mux::protocol::message::AuthAnswer;
use ginnel_mux::protocol::message::BindAnswer;
use ginnel_mux::protocol::message::BindAnswerExtra;
use ginnel_mux::protocol::message::error_text;
use ginnel_mux::protocol::read_kind;
use ginnel_mux::protocol::rpc::IncomingCall;
use ginnel_mux::protocol::stream_kind;
use ginnel_service::{self as service, Service};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::support::{PATIENCE, online};

/// What the service of a test says to agents; empty for everything that it accepts.
#[derive(Debug, Clone, Default)]
struct Said {
    to_auth: String,
    to_bind: String,
}

/// A service that refuses as it is told to.
struct Refusing {
    said: watch::Sender<Said>,
    options: AgentOptions,
    /// How many agents have come, and how many binds.
    counts: watch::Receiver<(usize, usize)>,
    sessions: watch::Sender<Option<MuxSession>>,
}

impl Refusing {
    async fn start() -> Self {
        let own = Service::start(service::Options::default()).await.unwrap();
        let authority = own.gateway().authority().clone();
        let acceptor = TlsAcceptor::from(authority.server_config(&[]).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ginnel_base::address::HostPort::from(listener.local_addr().unwrap());
        let trust = Trust::Pem(authority.pem().as_bytes().to_vec());
        let mut options = AgentOptions::new(server, Secret("x".to_owned()), trust);
        options.web_addr = WebAddress::Off;
        let (said, heard) = watch::channel(Said::default());
        let (count, counts) = watch::channel((0, 0));
        let (sessions, count) = (watch::Sender::new(None), Arc::new(count));
        let last = sessions.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let (session, incoming) = MuxSession::start(stream, Side::Service);
                last.send_replace(Some(session));
                tokio::spawn(answer(incoming, heard.clone(), count.clone()));
            }
            drop(own);
        });
        Self { said, options, counts, sessions }
    }

    fn say(&self, to_auth: &str, to_bind: &str) {
        let said = Said { to_auth: to_auth.to_owned(), to_bind: to_bind.to_owned() };
        self.said.send_replace(said);
    }

    /// Ends the session that there is.
    fn cut(&self) {
        self.sessions.send_replace(None).expect("a session").close();
    }

    async fn until(&self, is_so: impl Fn(&(usize, usize)) -> bool) {
        let mut counts = self.counts.clone();
        let waiting = counts.wait_for(|counts| is_so(counts));
        drop(tokio::time::timeout(PATIENCE, waiting).await.expect("in time").unwrap());
    }
}

async fn answer(
    mut incoming: Incoming,
    said: watch::Receiver<Said>,
    count: Arc<watch::Sender<(usize, usize)>>,
) {
    while let Some(mut stream) = incoming.next().await {
        let Ok(kind) = read_kind(&mut stream).await else { continue };
        if kind == stream_kind::HEARTBEAT {
            tokio::spawn(ginnel_mux::heartbeat::echo_beats(stream));
            continue;
        }
        let Ok(call) = IncomingCall::read_message(kind, stream).await else { continue };
        let said = said.borrow().clone();
        let error = |text: String| Some(text).filter(|text| !text.is_empty());
        match kind {
            stream_kind::AUTH => {
                let auth: Auth = call.decode_message().unwrap();
                let answer = AuthAnswer {
                    version: "3".to_owned(),
                    client_id: auth.client_id,
                    error: error(said.to_auth),
                    ..AuthAnswer::default()
                };
                count.send_modify(|(agents, _)| *agents += 1);
                call.send_response(&answer).await.unwrap();
            }
            _ => {
                let answer = BindAnswer {
                    id: "bind".to_owned(),
                    url: "http://web.example.test".to_owned(),
                    proto: "http".to_owned(),
                    extra: BindAnswerExtra { token: "token".into(), ..BindAnswerExtra::default() },
                    error: error(said.to_bind),
                    ..BindAnswer::default()
                };
                count.send_modify(|(_, binds)| *binds += 1);
                // The agent may have gone meanwhile.
                let _ = call.send_response(&answer).await;
            }
        }
    }
}

fn refusal(code: &str) -> String {
    error_text("not now", Some(code))
}

async fn ended(agent: &Agent) {
    let mut state = agent.watch_state();
    let offline = state.wait_for(|state| matches!(state, SessionState::Offline));
    drop(tokio::time::timeout(PATIENCE, offline).await.expect("an end").unwrap());
}

#[tokio::test]
async fn only_a_refusal_of_the_credential_is_for_good() {
    for code in ["ERR_NGROK_105", "ERR_NGROK_106", "ERR_NGROK_107", "ERR_NGROK_4018", "SHOP_107"] {
        let service = Refusing::start().await;
        let agent = Agent::start(service.options.clone()).await.unwrap();
        online(&agent).await;
        assert!(agent.refusal().is_none());

        service.say(&refusal(code), "");
        service.cut();

        ended(&agent).await;
        let refused = agent.refusal();
        assert!(
            matches!(&refused, Some(Error::Refused(reason)) if reason.contains(code)),
            "{refused:?}"
        );
        agent.stop(PATIENCE).await;
    }
}

#[tokio::test]
async fn whatever_else_goes_wrong_is_tried_again() {
    let texts = ["ERR_NGROK_722", "ERR_NGROK_108", "ERR_NGROK_102", "ERR_NGROK_9999", "SHOP_722"];
    for text in texts.map(refusal).into_iter().chain(["the service failed".to_owned()]) {
        let service = Refusing::start().await;
        let agent = Agent::start(service.options.clone()).await.unwrap();
        online(&agent).await;
        service.say(&text, "");
        service.cut();
        service.until(|(agents, _)| *agents >= 3).await;
        assert!(matches!(agent.session_state(), SessionState::Reconnecting), "{text}");

        service.say("", "");

        online(&agent).await;
        assert!(agent.refusal().is_none(), "{text}");
        agent.stop(PATIENCE).await;
    }
}

#[tokio::test]
async fn a_tunnel_that_is_refused_keeps_its_address_and_is_tried_again() {
    for code in ["ERR_NGROK_722", "ERR_NGROK_334", "ERR_NGROK_9999"] {
        let service = Refusing::start().await;
        let agent = Agent::start(service.options.clone()).await.unwrap();
        online(&agent).await;
        let definition = serde_json::json!({"name": "web", "proto": "http", "addr": 9});
        let definition = Definition::from_document(definition.as_object().unwrap()).unwrap();
        agent.start_tunnel(definition).await.unwrap();
        service.say("", &refusal(code));
        service.cut();
        service.until(|(_, binds)| *binds >= 4).await;

        let [shown] = agent.list_tunnels().try_into().unwrap();
        assert_eq!(shown.public_url, "http://web.example.test");
        assert_eq!(shown.status, Some(format!("reconnecting: not now ({code})")));
        assert!(matches!(agent.session_state(), SessionState::Online(_)));

        service.say("", "");
        let back = async {
            while agent.list_tunnels()[0].status.as_deref() != Some("online") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, back).await.expect("the tunnel to be back");
        agent.stop(PATIENCE).await;
    }
}

#[tokio::test]
async fn what_a_person_must_change_is_shown_and_tried_at_every_session() {
    let service = Refusing::start().await;
    let agent = Agent::start(service.options.clone()).await.unwrap();
    online(&agent).await;
    let definition = serde_json::json!({"name": "web", "proto": "http", "addr": 9});
    let definition = Definition::from_document(definition.as_object().unwrap()).unwrap();
    agent.start_tunnel(definition).await.unwrap();
    service.say("", &refusal("ERR_NGROK_600"));
    service.cut();
    let refused = || agent.list_tunnels()[0].status.as_deref() != Some("online");
    while !refused() || !matches!(agent.session_state(), SessionState::Online(_)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        agent.list_tunnels()[0].status.as_deref(),
        Some("reconnecting: not now (ERR_NGROK_600)")
    );

    service.say("", "");
    service.cut();

    while refused() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    agent.stop(PATIENCE).await;
}
