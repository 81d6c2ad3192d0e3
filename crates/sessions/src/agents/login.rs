//! How an agent logs in, which is all that it may do at first.
//!
//! Until it has, nothing of it is kept beside its connection: one stream is read after the other, by
//! the task of the connection itself, and the session takes no more than its login limits.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ginnel_api::id::prefix;
use ginnel_api::remote::REGION;
use ginnel_base::logging::{ignore, or_debug};
use ginnel_gateway::Ingress;
use ginnel_mux::protocol::message::{
    Auth, AuthAnswer, AuthAnswerExtra, AuthExtra, SAME_NODE_CODE, SrvInfoAnswer,
};
use ginnel_mux::protocol::rpc::IncomingCall;
use ginnel_mux::protocol::{read_kind, rules_header, stream_kind};
use ginnel_mux::{Incoming, MuxSession, Stream};

use crate::accounts::{self, AuthenticatedAgent, TokenFault};
use crate::agents::online_agent::{AgentStreamLimits, OnlineAgent};
use crate::agents::registry::Registry;
use crate::agents::socket::Prompt;
use crate::agents::state::{AgentRefusal, AgentsState};
use crate::agents::stream_shares::StreamShares;
use crate::agents::{bind_request, limits, revocation};
use crate::code;

/// How long a refused agent may take to read why.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The version of the protocol.
const VERSION: &str = "3";

/// An agent that has not authenticated.
pub struct PendingLogin {
    pub state: Arc<AgentsState>,
    pub session: MuxSession,
    pub peer: SocketAddr,
    pub prompt: Prompt,
}

/// An agent that has authenticated.
pub struct LoggedInAgent {
    pub registration: EndpointRegistration,
    /// Where it beats, if it began to.
    pub heartbeat: Option<Stream>,
    /// What it is told, and where.
    pub answer: (IncomingCall, AuthAnswer),
}

/// A session on the list of those that are online; dropping it takes it off.
pub struct EndpointRegistration {
    registry: Arc<Registry>,
    pub online: Arc<OnlineAgent>,
}

impl EndpointRegistration {
    fn new(registry: &Arc<Registry>, online: OnlineAgent) -> Self {
        let online = Arc::new(online);
        registry.add_session(&online);
        Self { registry: registry.clone(), online }
    }
}

impl Drop for EndpointRegistration {
    fn drop(&mut self) {
        self.registry.remove_session(&self.online);
    }
}

impl PendingLogin {
    /// Talks to an agent until it has authenticated; none when it is gone or was refused.
    pub async fn wait_for_auth(&self, incoming: &mut Incoming) -> Option<LoggedInAgent> {
        let mut heartbeat = None;
        while let Some(mut stream) = incoming.next().await {
            // What is said on one stream harms no other: a broken one is dropped.
            let kind = read_kind(&mut stream).await;
            let Some(kind) = or_debug!(kind, "a stream ended before it said its kind") else {
                continue;
            };
            if kind == stream_kind::HEARTBEAT {
                heartbeat = Some(stream);
                continue;
            }
            let call = or_debug!(
                IncomingCall::read_message(kind, stream).await,
                "cannot read an agent's call"
            );
            let Some(call) = call else { continue };
            let answered = match kind {
                stream_kind::AUTH => return self.answer_auth(call, heartbeat).await,
                stream_kind::SRV_INFO => {
                    call.send_response(&SrvInfoAnswer { region: REGION.to_owned() }).await
                }
                _ => {
                    let refused =
                        AgentRefusal("the agent is not authenticated yet".to_owned(), 102);
                    call.send_error(self.state.refusal_text(refused)).await
                }
            };
            or_debug!(answered, "a response does not reach the agent");
        }
        None
    }

    async fn answer_auth(
        &self,
        call: IncomingCall,
        heartbeat: Option<Stream>,
    ) -> Option<LoggedInAgent> {
        let admitted = match call.decode_message::<Auth>() {
            Ok(auth) => self.admit_with_retries(&auth).await,
            Err(error) => Err(AgentRefusal(error.to_string(), 102)),
        };
        match admitted {
            Ok((registration, answer)) => {
                Some(LoggedInAgent { registration, heartbeat, answer: (call, answer) })
            }
            Err(refused) => {
                // One behind a balancer comes again until it is at another node.
                if refused.1 == SAME_NODE_CODE {
                    tracing::debug!(peer = %self.peer, "an agent has a session here already");
                } else {
                    tracing::info!(peer = %self.peer, err = %refused.0, "an agent was refused");
                }
                let is_only_node = refused.1 == SAME_NODE_CODE && self.state.is_only_node();
                let extra = AuthAnswerExtra { is_only_node, ..AuthAnswerExtra::default() };
                let error = Some(self.state.refusal_text(refused));
                // An agent that is gone already needs no reason.
                let answer = AuthAnswer { error, extra, ..AuthAnswer::default() };
                or_debug!(
                    call.send_response(&answer).await,
                    "an agent has gone before it was refused"
                );
                let ended =
                    tokio::time::timeout(CLOSE_TIMEOUT, self.session.wait_until_ended()).await;
                ignore(ended, "the response needs time to arrive");
                None
            }
        }
    }

    async fn admit_with_retries(
        &self,
        auth: &Auth,
    ) -> Result<(EndpointRegistration, AuthAnswer), AgentRefusal> {
        let deadline = self.state.retry_deadline();
        loop {
            match self.admit_agent(auth).await {
                Err(refusal) if deadline.allows_retry(&refusal).await => {}
                ended => return ended,
            }
        }
    }

    async fn admit_agent(
        &self,
        auth: &Auth,
    ) -> Result<(EndpointRegistration, AuthAnswer), AgentRefusal> {
        if !auth.version.is_empty() && !auth.version.iter().any(|version| version == VERSION) {
            let known = auth.version.join(", ");
            return Err(AgentRefusal(format!("no common version of the protocol: {known}"), 102));
        }
        limits::check_login(auth).map_err(|problem| AgentRefusal(problem, 102))?;
        let address = self.peer.ip().to_canonical();
        if !self.state.gateway.restrictions().allows_address(Ingress::Agent, address) {
            let problem = format!("an IP restriction does not allow agents at {address}");
            return Err(AgentRefusal(problem, code::ADDRESS_RESTRICTED.number));
        }
        let AuthExtra { auth_token, cookie, .. } = &auth.extra;
        let shown = auth_token.reveal().to_owned();
        // Before anything is read: behind a balancer it comes again and again.
        if self.state.node.get().is_some_and(|node| *node == auth.extra.other_node) {
            let problem = "the other session of the agent leads to the same node".to_owned();
            return Err(AgentRefusal(problem, SAME_NODE_CODE));
        }
        let found =
            self.state.store.read(move |view| accounts::authenticate_agent(view, &shown)).await?;
        let agent = found.map_err(token_refused)?;
        let registry = &self.state.registry;
        let returns = !auth.client_id.is_empty() && registry.is_returning(&auth.client_id, cookie);
        // An id without its cookie may be of a session before a restart of the service: then nobody
        // else has it, and the agent may keep it.
        let taken = registry.has_client(&auth.client_id);
        let client_id = match auth.client_id.as_str() {
            id if !id.is_empty() && (returns || !taken) => id.to_owned(),
            _ => bind_request::random_secret()?,
        };
        // Our own agent does not hold small frames back.
        self.prompt.store(auth.extra.client_type != "ginnel", Ordering::Relaxed);
        let online = self.build_online_agent(&auth.extra, agent, client_id)?;
        let registration = EndpointRegistration::new(registry, online);
        // The credential may have been revoked after it was read, when the session was not noted yet.
        revocation::review_agent(&self.state, &registration.online.agent).await?;
        if registry.find_session(&registration.online.id).is_none() {
            return Err(token_refused(TokenFault::Unknown));
        }
        self.state.wait_until_announced().await;
        registry.counts().session_begun(!auth.client_id.is_empty());
        let answer = auth_answer(&registration.online, self.state.node.get());
        Ok((registration, answer))
    }

    fn build_online_agent(
        &self,
        said: &AuthExtra,
        agent: AuthenticatedAgent,
        client_id: String,
    ) -> Result<OnlineAgent, AgentRefusal> {
        let unsupported = |error: &Option<String>| match error {
            None => Some("the agent is too old for this".to_owned()),
            Some(reason) => Some(reason.clone()).filter(|reason| !reason.is_empty()),
        };
        let settings = self.state.settings.load_full();
        let rules_header = rules_header::parse_name(&said.rules_header);
        if rules_header.is_some() {
            self.state.gateway.enable_rule_notes();
        }
        Ok(OnlineAgent {
            id: self.state.ids.next(prefix::TUNNEL_SESSION)?,
            client_id,
            cookie: bind_request::random_secret()?.into(),
            session: self.session.clone(),
            latency: OnceLock::new(),
            streams: AgentStreamLimits {
                connections: settings.streams,
                queue_timeout: settings.queue_timeout,
            },
            budget: Arc::default(),
            shares: StreamShares::new(self.state.gateway.trusted_proxies(), settings.unread.0),
            counts: self.state.registry.counts().clone(),
            agent,
            ip: self.peer.ip().to_canonical(),
            os: said.os.clone(),
            agent_version: said.version.clone(),
            metadata: said.metadata.clone(),
            started_at: self.state.ids.now(),
            unsupported: [
                unsupported(&said.stop_unsupported_error),
                unsupported(&said.restart_unsupported_error),
                unsupported(&said.update_unsupported_error),
            ],
            rules_header,
        })
    }
}

fn auth_answer(online: &OnlineAgent, node: Option<&String>) -> AuthAnswer {
    AuthAnswer {
        version: VERSION.to_owned(),
        client_id: online.client_id.clone(),
        error: None,
        extra: AuthAnswerExtra {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            region: REGION.to_owned(),
            cookie: online.cookie.clone(),
            node: node.cloned().unwrap_or_default(),
            ..AuthAnswerExtra::default()
        },
    }
}

fn token_refused(fault: TokenFault) -> AgentRefusal {
    match fault {
        TokenFault::Missing => {
            AgentRefusal("authentication failed: the agent gave no authtoken".to_owned(), 4018)
        }
        TokenFault::Malformed => AgentRefusal(
            "authentication failed: the authtoken does not have the form of one".to_owned(),
            105,
        ),
        TokenFault::Unknown => AgentRefusal(
            "authentication failed: the authtoken belongs to no credential of this service"
                .to_owned(),
            107,
        ),
    }
}
