//! A service and agents in one process, whose calls are made one by one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use ginnel_api::Origin;
use ginnel_api::id::Ids;
use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_gateway::{Gateway, GatewaySettings};
use ginnel_mux::heartbeat::{self, HEARTBEAT};
use ginnel_mux::protocol::message::{Auth, AuthExtra, Bind, BindAnswer, BindExtra, BindOpts};
use ginnel_mux::protocol::read_kind;
use ginnel_mux::protocol::rpc;
use ginnel_mux::{Incoming, MuxSession, Side};
use ginnel_settings::ByteSize;
use ginnel_store::{Changes, Store, StoreError, Transaction};

use super::rows::client_digest;
use super::{AgentSettings, AgentsState, Registry, revocation, session};
use crate::accounts;
use crate::cluster::TunnelDocument;
use crate::domains::DomainSettings;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A service without listeners for agents.
struct Service {
    state: Arc<AgentsState>,
    authtoken: String,
    folder: PathBuf,
}

impl Drop for Service {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn settings() -> AgentSettings {
    AgentSettings {
        connections: Some(9),
        first_byte_timeout: TIMEOUT,
        handshake_timeout: TIMEOUT,
        heartbeat_interval: TIMEOUT,
        heartbeat_tolerance: TIMEOUT,
        login_timeout: TIMEOUT,
        streams: 9,
        queue_timeout: Duration::ZERO,
        unread: ByteSize(1 << 20),
        reserve: TIMEOUT,
        ..AgentSettings::default()
    }
}

/// A new folder.
fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("ginnel-agents-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// An agent that has logged in. It does not answer heartbeats until the test starts that.
struct Agent {
    session: MuxSession,
    incoming: Mutex<Option<Incoming>>,
}

impl Service {
    async fn start() -> Self {
        let gateway =
            GatewaySettings { base_domain: Some("test".to_owned()), ..GatewaySettings::default() };
        let authority = LocalAuthority::open(None).unwrap();
        let gateway = Gateway::start(gateway, authority).await.unwrap();
        // A file, because reads of a database in memory wait for its writes.
        let folder = new_folder();
        let store = Arc::new(Store::open(Some(&folder.join("service.db"))).unwrap());
        let token = store.write(|change| {
            accounts::bootstrap_admin(change, None)?;
            accounts::bootstrap_agent(change, None)
        });
        let authtoken = token.await.unwrap().unwrap().0;
        let state = Arc::new(AgentsState {
            settings: Arc::new(ArcSwap::from_pointee(settings())),
            domains: DomainSettings::default(),
            store,
            gateway,
            registry: Arc::new(Registry::new(None)),
            ids: Ids::from_origin(Origin::default()),
            cluster: None,
            node: OnceLock::new(),
        });
        revocation::follow_accounts(&state);
        Self { state, authtoken, folder }
    }

    async fn agent(&self) -> Agent {
        let (near, far) = tokio::io::duplex(1 << 16);
        let login = self.state.settings.load().login_limits();
        let (session, incoming) = MuxSession::start_unauthenticated(far, Side::Service, login);
        let peer = "127.0.0.1:1".parse().unwrap();
        tokio::spawn(session::serve_session(
            self.state.clone(),
            session,
            incoming,
            peer,
            Arc::default(),
            None,
        ));
        let (session, incoming) = MuxSession::start(near, Side::Agent);
        let extra =
            AuthExtra { auth_token: self.authtoken.as_str().into(), ..AuthExtra::default() };
        let auth = Auth { extra, ..Auth::default() };
        let answer = rpc::call(&session, &auth, TIMEOUT).await.unwrap();
        assert_eq!(answer.error, None);
        Agent { session, incoming: Mutex::new(Some(incoming)) }
    }

    /// Keeps all writes back until the sender is dropped.
    async fn hold_writes(&self) -> std::sync::mpsc::Sender<()> {
        let (sender, held) = std::sync::mpsc::channel();
        let held = Arc::new(Mutex::new(held));
        let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
        let store = self.state.store.clone();
        let holding = move |_: &Transaction<'_>| {
            begun.send(()).unwrap();
            held.lock().unwrap().recv().unwrap_or_default();
            Ok::<_, StoreError>(())
        };
        tokio::spawn(async move { store.write(holding).await });
        beginning.recv().await.unwrap();
        sender
    }

    /// The addresses that visitors can reach.
    fn online(&self) -> Vec<String> {
        let tunnels = self.state.registry.tunnels().into_iter();
        tunnels.map(|tunnel| tunnel.host().unwrap_or_default().to_owned()).collect()
    }
}

impl Agent {
    /// Answers heartbeats from now on.
    fn answer_heartbeats(self) -> Self {
        let mut incoming = self.incoming.lock().unwrap().take().unwrap();
        tokio::spawn(async move {
            while let Some(mut stream) = incoming.next().await {
                if matches!(read_kind(&mut stream).await, Ok(HEARTBEAT)) {
                    tokio::spawn(heartbeat::echo_beats(stream));
                }
            }
        });
        self
    }

    /// Binds a host, as what `before` was if there is one.
    async fn bind(&self, host: &str, before: Option<&BindAnswer>) -> BindAnswer {
        self.bind_within(TIMEOUT, host, before).await.unwrap()
    }

    /// Binds a host as soon as nobody has it any more.
    async fn bind_when_free(&self, host: &str, before: Option<&BindAnswer>) -> BindAnswer {
        let binding = async {
            loop {
                let answer = self.bind(host, before).await;
                if answer.error.is_none() {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, binding).await.unwrap()
    }

    async fn bind_within(
        &self,
        limit: Duration,
        host: &str,
        before: Option<&BindAnswer>,
    ) -> Result<BindAnswer, rpc::RpcError> {
        let extra = before.map(|it| it.extra.token.clone()).unwrap_or_default();
        let mut opts = BindOpts::default();
        opts.set("Hostname", host);
        let bind = Bind {
            id: before.map(|it| it.id.clone()).unwrap_or_default(),
            proto: "http".to_owned(),
            opts,
            extra: BindExtra { token: extra, ..BindExtra::default() },
            ..Bind::default()
        };
        rpc::call(&self.session, &bind, limit).await
    }
}

#[tokio::test]
async fn a_failed_look_at_an_account_ends_no_session() {
    let service = Service::start().await;
    let agent = service.agent().await;
    assert_eq!(agent.bind("app.test", None).await.error, None);
    let online = service.state.registry.sessions().remove(0);

    service.state.store.close();
    let reviewed = revocation::review_agent(&service.state, &online.agent).await;
    let changed = Changes::Of(vec![online.agent.credential_id.clone()]);
    revocation::Reviewer::from_state(&service.state).review_changes(changed);
    let refused = agent.bind("other.test", None).await;

    assert!(reviewed.is_err() && refused.error.unwrap().contains("try again"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!agent.session.is_ended());
    assert_eq!(service.online(), ["app.test"]);
}

#[tokio::test]
async fn a_session_that_ends_while_its_address_is_written_down_does_not_lose_it() {
    let service = Service::start().await;
    let agent = service.agent().await;
    let before = agent.bind("app.test", None).await;
    // As after a restart: only the store knows the address.
    agent.session.close();
    until(|| service.online().is_empty()).await;
    service.state.registry.expire_binds(Duration::ZERO);

    let lost = service.agent().await;
    let held = service.hold_writes().await;
    let binding = lost.bind_within(Duration::from_millis(200), "app.test", Some(&before));
    assert!(binding.await.is_err());
    lost.session.close();
    until(|| service.state.registry.sessions().is_empty()).await;
    drop(held);

    let again = service.agent().await;
    let answer = again.bind_when_free("app.test", Some(&before)).await;
    assert_eq!(answer.id, before.id);
}

#[tokio::test]
async fn a_bind_whose_answer_nobody_waits_for_is_undone() {
    let service = Service::start().await;
    let agent = service.agent().await;
    let held = service.hold_writes().await;
    let late = agent.bind_within(Duration::from_millis(200), "app.test", None).await;
    assert!(late.is_err());
    drop(held);

    agent.bind_when_free("app.test", None).await;
    assert_eq!(service.online(), ["app.test"]);
}

#[tokio::test]
async fn an_address_whose_connection_is_closed_is_taken_over_at_once() {
    let service = Service::start().await;
    let former = service.agent().await;
    let before = former.bind("app.test", None).await;
    former.session.close();
    until(|| service.online().is_empty()).await;

    let next = service.agent().await.answer_heartbeats();
    let after = next.bind_within(Duration::from_secs(2), "app.test", None).await.unwrap();

    assert_eq!((after.error.as_deref(), after.extra.took_over), (None, true));
    // The former agent comes back with its identifier and token.
    let back = service.agent().await;
    for known in [Some(&before), None] {
        let error = back.bind("app.test", known).await.error.unwrap();
        assert!(error.contains("already online") && error.contains("334"), "{error}");
    }
    assert_eq!(service.online(), ["app.test"]);
    // The new one may come back.
    next.session.close();
    until(|| service.online().is_empty()).await;
    let again = service.agent().await.bind("app.test", Some(&after)).await;
    assert_eq!((again.error, again.extra.took_over), (None, false));
}

#[tokio::test]
async fn a_silent_session_loses_its_address_after_five_seconds() {
    let service = Service::start().await;
    let silent = service.agent().await;
    silent.bind("app.test", None).await;
    let next = service.agent().await.answer_heartbeats();

    let began = Instant::now();
    let answer = next.bind("app.test", None).await;

    assert_eq!((answer.error, answer.extra.took_over), (None, true));
    assert!((5.0..8.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    // It learns of that, so that it asks again, and is refused.
    until(|| silent.session.is_ended()).await;
}

#[tokio::test]
async fn an_address_of_a_live_agent_never_moves() {
    let service = Service::start().await;
    let first = service.agent().await.answer_heartbeats();
    assert_eq!(first.bind("app.test", None).await.error, None);
    let second = service.agent().await.answer_heartbeats();

    let began = Instant::now();
    let mut refused = 0;
    while began.elapsed() < Duration::from_secs(6) {
        let error = second.bind("app.test", None).await.error.unwrap();
        assert!(error.contains("334"), "{error}");
        refused += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    assert!(refused > 50, "a live agent is refused at once: {refused}");
    assert!(!first.session.is_ended());
    // The agent itself does not take its own address for another tunnel.
    assert!(first.bind("app.test", None).await.error.unwrap().contains("334"));
}

async fn until(is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, looking).await.unwrap();
}

#[tokio::test]
async fn a_session_that_was_left_for_another_node_ends() {
    let service = Service::start().await;
    let agent = service.agent().await;
    let registry = &service.state.registry;
    let online = registry.sessions().remove(0);
    let row = |client: &str, session_id: &str| TunnelDocument {
        client: client_digest(client),
        session_id: session_id.to_owned(),
        account_id: online.agent.owner_id.to_string(),
        ..TunnelDocument::default()
    };
    let stranger =
        TunnelDocument { account_id: "usr_1".to_owned(), ..row(&online.client_id, "ts_zzz") };

    for stays in [row("another", "ts_zzz"), row(&online.client_id, "ts_000"), stranger] {
        registry.end_stale_sessions(&stays);
        assert!(!online.session.is_ended(), "{stays:?}");
    }
    registry.end_stale_sessions(&row(&online.client_id, "ts_zzz"));

    until(|| registry.sessions().is_empty()).await;
    until(|| agent.session.is_ended()).await;
}
