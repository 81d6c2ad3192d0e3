//! What one agent and the service say to each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tracing::Instrument;

use ginnel_api::Timestamp;
use ginnel_api::id::prefix;
use ginnel_api::remote::REGION;
use ginnel_base::logging::or_debug;
use ginnel_gateway::{BindError, EndpointSpec, PublicEndpoint, UpstreamProtocol, already_online};
use ginnel_mux::heartbeat::{self, Heartbeat};
use ginnel_mux::protocol::message::{
    AuthAnswer, Bind, BindAnswer, BindAnswerExtra, BindLabeled, BindLabeledAnswer, CommandResponse,
    Hidden, SrvInfoAnswer, Unbind,
};
use ginnel_mux::protocol::rpc::{self, IncomingCall};
use ginnel_mux::protocol::{read_kind, stream_kind};
use ginnel_mux::{Incoming, MuxSession, Stream};
use ginnel_net::Permit;
use ginnel_store::StoreError;

use crate::agents::access::AccessList;
use crate::agents::listener::run_unless_evicted;
use crate::agents::login::{EndpointRegistration, LoggedInAgent, PendingLogin};
use crate::agents::online_agent::OnlineAgent;
use crate::agents::registry::{EndedBind, Reclaimed};
use crate::agents::reservation::{FoundReservation, Reservation};
use crate::agents::rows;
use crate::agents::socket::Prompt;
use crate::agents::state::{AgentRefusal, AgentsState, BindOrigin, FAULT_CODE};
use crate::agents::takeover::{self, TakenAddress};
use crate::agents::tunnel::{Life, OnlineTunnel, TunnelKind};
use crate::agents::{bind_request, limits, revocation};
use crate::cluster::EndpointKey;

/// How many addresses are tried for an agent that takes any: those of other nodes are not known to be
/// theirs before.
const MAX_ADDRESSES: usize = 8;
/// How long other nodes need at most to read what is written, with some room.
const NEWS_INTERVAL: Duration = Duration::from_millis(400);

/// One agent that has authenticated.
struct AgentSession {
    state: Arc<AgentsState>,
    online: Arc<OnlineAgent>,
}

/// Talks to an agent until it is gone. Until it has logged in, its connection may have to make room for others, which
/// `permit` knows.
pub async fn serve_session(
    state: Arc<AgentsState>,
    session: MuxSession,
    mut incoming: Incoming,
    peer: SocketAddr,
    prompt: Prompt,
    permit: Option<Permit>,
) {
    let login = log_in(&state, &session, &mut incoming, peer, prompt);
    // Boxed, as all that is over soon: a session lives for days.
    let login = match &permit {
        Some(permit) => Box::pin(run_unless_evicted(permit, peer, login)).await,
        None => Box::pin(login).await,
    };
    let is_counted = || permit.as_ref().is_none_or(Permit::mark_authenticated);
    let Some((registration, beating)) = login.filter(|_| is_counted()) else {
        return session.close();
    };
    let online = registration.online.clone();
    online.latency.get_or_init(|| beating.watch_latency());
    let span = tracing::debug_span!("session", session = %online.id);
    tracing::info!(parent: &span, session = %online.id, peer = %peer, "an agent has logged in");
    let ended = session.clone();
    let session = Arc::new(AgentSession { state: state.clone(), online });
    while let Some(stream) = incoming.next().await {
        tokio::spawn(session.clone().answer_stream(stream).instrument(span.clone()));
    }
    let err = ended.wait_until_ended().await;
    tracing::info!(parent: &span, session = %session.online.id, %err, "an agent's session has ended");
}

/// Lets an agent in, who is on the list from then on and hears heartbeats; none when it is gone or was
/// refused.
async fn log_in(
    state: &Arc<AgentsState>,
    session: &MuxSession,
    incoming: &mut Incoming,
    peer: SocketAddr,
    prompt: Prompt,
) -> Option<(EndpointRegistration, Heartbeat)> {
    let login = PendingLogin { state: state.clone(), session: session.clone(), peer, prompt };
    let settings = state.settings.load_full();
    let admitted =
        tokio::time::timeout(settings.login_timeout, login.wait_for_auth(incoming)).await;
    let LoggedInAgent { registration, heartbeat, answer: (call, answer) } = admitted.ok()??;
    session.mark_authenticated();
    let (interval, tolerance) = (settings.heartbeat_interval, settings.heartbeat_tolerance);
    let beating = heartbeat::start_when_silent(session, interval, tolerance);
    if let Some(stream) = heartbeat {
        tokio::spawn(heartbeat::echo_beats(stream));
    }
    // An agent that is gone already is noticed by the session.
    or_debug!(call.send_response(&answer).await, "an agent has gone before it was let in");
    Some((registration, beating))
}

impl AgentSession {
    async fn answer_stream(self: Arc<Self>, mut stream: Stream) {
        // What is said on one stream harms no other: a broken one is dropped.
        let kind =
            or_debug!(read_kind(&mut stream).await, "a stream ended before it said its kind");
        let Some(kind) = kind else { return };
        if kind == stream_kind::HEARTBEAT {
            // A task of its own: this one has room for calls, and heartbeats go on for days.
            tokio::spawn(heartbeat::echo_beats(stream));
            return;
        }
        let call = Box::pin(IncomingCall::read_message(kind, stream)).await;
        let Some(call) = or_debug!(call, "cannot read an agent's call") else { return };
        // An agent that is gone already needs no answer.
        or_debug!(Box::pin(self.perform_call(kind, call)).await, "an agent's call failed");
    }

    async fn perform_call(&self, kind: u32, call: IncomingCall) -> Result<(), rpc::RpcError> {
        match kind {
            stream_kind::AUTH => {
                let refused = AgentRefusal("the agent is already authenticated".to_owned(), 102);
                let error = Some(self.state.refusal_text(refused));
                call.send_response(&AuthAnswer { error, ..AuthAnswer::default() }).await
            }
            stream_kind::SRV_INFO => {
                call.send_response(&SrvInfoAnswer { region: REGION.to_owned() }).await
            }
            stream_kind::BIND => {
                let bind: Bind = call.decode_message()?;
                let answer = match self.bind_with_retries(&bind).await {
                    Ok(answer) => answer,
                    Err(refused) => BindAnswer {
                        error: Some(self.state.refusal_text(refused)),
                        ..BindAnswer::default()
                    },
                };
                self.answer_bind(call, &answer, &answer.id, &bind.id).await
            }
            stream_kind::BIND_LABELED => {
                let bind: BindLabeled = call.decode_message()?;
                let answer = match self.bind_labeled_with_retries(&bind).await {
                    Ok(id) => BindLabeledAnswer { id, error: None },
                    Err(refused) => BindLabeledAnswer {
                        error: Some(self.state.refusal_text(refused)),
                        ..BindLabeledAnswer::default()
                    },
                };
                self.answer_bind(call, &answer, &answer.id, "").await
            }
            stream_kind::UNBIND => self.perform_unbind(call).await,
            other => {
                let refused = AgentRefusal(format!("the command {other} is not known"), 102);
                call.send_error(self.state.refusal_text(refused)).await
            }
        }
    }

    async fn perform_unbind(&self, call: IncomingCall) -> Result<(), rpc::RpcError> {
        let unbind: Unbind = call.decode_message()?;
        let Some(ended) = self.state.registry.unbind(&self.online, &unbind.id) else {
            let refused = AgentRefusal(format!("no tunnel has the id {:?}", unbind.id), 3200);
            return call.send_error(self.state.refusal_text(refused)).await;
        };
        // The tunnel gets no new visitors before the response, and its address is free.
        self.settle_unbind(ended).await;
        let answered = call.send_response(&CommandResponse::default()).await;
        self.state.drop_reservations(vec![unbind.id]).await;
        answered
    }

    /// Answers a bind, which is undone where the agent does not learn of it: nobody else could end it.
    async fn answer_bind(
        &self,
        call: IncomingCall,
        answer: &impl Serialize,
        id: &str,
        known_id: &str,
    ) -> Result<(), rpc::RpcError> {
        let answered = call.send_response(answer).await;
        if answered.is_err() && id != known_id && self.unbind_tunnel(id) {
            self.state.drop_reservations(vec![id.to_owned()]).await;
        }
        answered
    }

    /// Ends a tunnel of the session; false where it has none of this name.
    fn unbind_tunnel(&self, id: &str) -> bool {
        let Some(ended) = self.state.registry.unbind(&self.online, id) else { return false };
        self.state.gateway.close_idle(&ended.tunnel.id);
        true
    }

    /// Waits until no new visitors reach a tunnel that has ended. One that shares its address takes those who
    /// are led here by nodes that do not know yet: others could have served them.
    async fn settle_unbind(&self, ended: EndedBind) {
        let EndedBind { tunnel, endpoint } = ended;
        let shared = endpoint.filter(|it| it.pool().is_some() && self.state.cluster.is_some());
        if shared.is_none() {
            self.state.gateway.close_idle(&tunnel.id);
        }
        self.state.wait_until_announced().await;
        if shared.is_some() {
            tokio::time::sleep(NEWS_INTERVAL).await;
            drop(shared);
            self.state.gateway.close_idle(&tunnel.id);
        }
    }

    async fn bind_with_retries(&self, bind: &Bind) -> Result<BindAnswer, AgentRefusal> {
        let deadline = self.state.retry_deadline();
        loop {
            match self.bind_endpoint(bind).await {
                Err(refusal) if self.is_online() && deadline.allows_retry(&refusal).await => {}
                ended => return ended,
            }
        }
    }

    async fn bind_labeled_with_retries(&self, bind: &BindLabeled) -> Result<String, AgentRefusal> {
        let deadline = self.state.retry_deadline();
        loop {
            match self.bind_labeled(bind).await {
                Err(refusal) if self.is_online() && deadline.allows_retry(&refusal).await => {}
                ended => return ended,
            }
        }
    }

    fn is_online(&self) -> bool {
        self.state.registry.find_session(&self.online.id).is_some()
    }

    async fn bind_endpoint(&self, bind: &Bind) -> Result<BindAnswer, AgentRefusal> {
        limits::check_bind(bind).map_err(|problem| AgentRefusal(problem, 215))?;
        let asked = bind_request::decode_bind(bind)?;
        let now = self.state.ids.now();
        let (online, access) = (&self.online, self.state.access_list(&self.online).await?);
        let (proxy_proto, speaks) = (asked.proxy_proto, asked.speaks);
        let plan = BindPlan { online, access, bind, proxy_proto, speaks, now };
        if !bind.id.is_empty()
            && let Some(answer) = self.reclaim_bind(&plan).await?
        {
            return Ok(answer);
        }
        let mut spec = asked.spec;
        let owner_id = &self.online.agent.owner_id;
        spec.pool_owner = bind.extra.pooling_enabled.then(|| owner_id.clone());
        spec.owner = Some(owner_id.clone());
        let mut new = self.identify_bind(bind, &mut spec).await?;
        let (endpoint, tunnel) = self.open_or_take_over(&plan, &mut new, spec).await?;
        let NewBind { id: bind_id, token, origin } = new;
        let mut answer = bind_answer(bind, &bind_id, endpoint.url(), &token, &tunnel);
        answer.extra.took_over = origin.replaced.is_some();
        let knows = origin.knows;
        if !self.state.registry.register_tunnel(token, Some(endpoint), tunnel.clone()) {
            if !knows {
                self.withdraw_tunnel(&tunnel).await;
            }
            return Err(AgentRefusal("the session is over".to_owned(), FAULT_CODE));
        }
        self.confirm_tunnel(&tunnel, knows).await?;
        self.state.wait_until_announced().await;
        Ok(answer)
    }

    /// Finds out which bind an agent asks for.
    async fn identify_bind(
        &self,
        bind: &Bind,
        spec: &mut EndpointSpec,
    ) -> Result<NewBind, AgentRefusal> {
        let token = match bind.extra.token.is_empty() {
            true => bind_request::random_secret()?.into(),
            false => bind.extra.token.clone(),
        };
        let (id, knows) = match self.find_reservation(bind).await? {
            // After a restart of the service, the agent has the same address unless another agent took it.
            FoundReservation::Own(kept) => {
                kept.apply_to_spec(spec);
                (bind.id.clone(), true)
            }
            FoundReservation::TakenOver(kept) => {
                return Err(taken_refusal(kept.address_text(), false));
            }
            FoundReservation::Unknown => (bind_request::random_secret()?, false),
        };
        Ok(NewBind { id, token, origin: BindOrigin { knows, replaced: None } })
    }

    /// Opens an endpoint. An address of the account whose agent is gone is taken over.
    async fn open_or_take_over(
        &self,
        plan: &BindPlan<'_>,
        new: &mut NewBind,
        spec: EndpointSpec,
    ) -> Result<(PublicEndpoint, Arc<OnlineTunnel>), AgentRefusal> {
        let is_pooled = spec.pool_owner.is_some();
        let opened = self.open_and_store(plan, new, spec.clone()).await;
        let opened = match opened {
            Err(OpenFailure::Taken(taken)) if takeover::names_address(&spec) => {
                let ended =
                    self.state.end_abandoned_holder(&self.online, &plan.access, &taken).await?;
                let Some(ended) = ended else { return Err(taken_refusal(&taken.url, false)) };
                new.id = ended.bind_id;
                // The former agent may know its token, so that a new one is needed.
                new.token = bind_request::random_secret()?.into();
                new.origin = BindOrigin { knows: false, replaced: Some(ended.token) };
                self.open_and_store(plan, new, spec).await
            }
            opened => opened,
        };
        opened.map_err(|failure| match failure {
            OpenFailure::Taken(taken) => taken_refusal(&taken.url, is_pooled),
            OpenFailure::Refused(refusal) => refusal,
        })
    }

    /// Opens an endpoint, and writes down whose it is, which no other node may do then.
    async fn open_and_store(
        &self,
        plan: &BindPlan<'_>,
        new: &NewBind,
        spec: EndpointSpec,
    ) -> Result<(PublicEndpoint, Arc<OnlineTunnel>), OpenFailure> {
        let agent = &self.online.agent;
        let bind_id = &new.id;
        if let Some(url) = self.state.taken_elsewhere(&spec, bind_id).await? {
            return Err(OpenFailure::taken(url, rows::requested_key(&spec)));
        }
        let is_open = spec.host.is_none() && spec.subdomain.is_none() && spec.addr.is_none();
        let attempts = if is_open { MAX_ADDRESSES } else { 1 };
        let mut last = TakenAddress { url: String::new(), key: None };
        for _ in 0..attempts {
            let (endpoint, tunnel) = self.open_endpoint(plan, bind_id, spec.clone()).await?;
            match self.state.check_port(&self.online, tunnel.own_port()).await {
                // Another port may be anybody's.
                Err(refusal) if is_open && !refusal.is_fault() => {
                    last = TakenAddress::from(&endpoint);
                    continue;
                }
                checked => checked?,
            }
            let kept =
                Reservation::for_endpoint(bind_id, new.token.reveal(), &agent.owner_id, &endpoint);
            let origin = new.origin.clone();
            if self.state.store_reservation(kept, &agent.credential_id, &endpoint, origin).await? {
                endpoint.retarget(Some(tunnel.clone()));
                return Ok((endpoint, tunnel));
            }
            last = TakenAddress::from(&endpoint);
        }
        Err(OpenFailure::Taken(last))
    }

    /// Takes a tunnel back that was noted when nothing allowed it any more, or when nobody knows: then the
    /// address of one that the agent `knows` waits for it.
    async fn confirm_tunnel(&self, tunnel: &OnlineTunnel, knows: bool) -> Result<(), AgentRefusal> {
        match self.review_tunnel(tunnel).await {
            Ok(()) if !tunnel.is_stopped() => Ok(()),
            Ok(()) => {
                self.withdraw_tunnel(tunnel).await;
                self.state.access_list(&self.online).await?;
                Err(forbidden_refusal(&tunnel.public_name()))
            }
            Err(refusal) => {
                match knows && refusal.is_fault() {
                    true => self.state.registry.suspend_tunnel(tunnel),
                    false => self.withdraw_tunnel(tunnel).await,
                }
                Err(refusal)
            }
        }
    }

    async fn review_tunnel(&self, tunnel: &OnlineTunnel) -> Result<(), AgentRefusal> {
        self.state.check_domain(&self.online, tunnel.host()).await?;
        self.state.check_port(&self.online, tunnel.own_port()).await?;
        Ok(revocation::review_agent(&self.state, &self.online.agent).await?)
    }

    async fn withdraw_tunnel(&self, tunnel: &OnlineTunnel) {
        if self.state.registry.drop_bind(&tunnel.bind_id).is_none() {
            tracing::debug!(bind = tunnel.bind_id, "the tunnel had ended already");
        }
        self.state.drop_reservations(vec![tunnel.bind_id.clone()]).await;
    }

    /// The bind that the agent had, taken from whoever has it now.
    async fn reclaim_bind(&self, plan: &BindPlan<'_>) -> Result<Option<BindAnswer>, AgentRefusal> {
        let (bind, agent) = (plan.bind, &self.online.agent);
        let (id, endpoint_id) = self.tunnel_ids()?;
        let mut made = None;
        let make = |endpoint: &PublicEndpoint| {
            let tunnel = plan.new_tunnel(&bind.id, endpoint, (id, endpoint_id));
            made = Some(tunnel.clone());
            tunnel
        };
        let claim = (agent, &plan.access);
        let reclaimed = self.state.registry.reclaim_bind(&bind.id, &bind.extra.token, claim, make);
        let (url, moved) = match reclaimed {
            Reclaimed::Done { url, moved } => (url, moved),
            Reclaimed::Forbidden { url } => return Err(forbidden_refusal(&format!("{url:?}"))),
            Reclaimed::Unknown => return Ok(None),
        };
        let Some(tunnel) = made else { return Ok(None) };
        if let Some(before) = moved
            && let Err(error) =
                Reservation::assign_credential(&self.state.store, &bind.id, &agent.credential_id)
                    .await
        {
            self.state.registry.suspend_tunnel(&tunnel);
            self.state.registry.return_bind(&bind.id, before);
            return Err(error.into());
        }
        self.confirm_tunnel(&tunnel, true).await?;
        self.state.wait_until_announced().await;
        Ok(Some(bind_answer(bind, &bind.id, &url, &bind.extra.token, &tunnel)))
    }

    async fn find_reservation(&self, bind: &Bind) -> Result<FoundReservation, AgentRefusal> {
        if bind.id.is_empty() {
            return Ok(FoundReservation::Unknown);
        }
        let (token, owner_id) = (bind.extra.token.reveal(), &self.online.agent.owner_id);
        Ok(Reservation::find(&self.state.store, &bind.id, token, owner_id).await?)
    }

    async fn open_endpoint(
        &self,
        plan: &BindPlan<'_>,
        bind_id: &str,
        spec: EndpointSpec,
    ) -> Result<(PublicEndpoint, Arc<OnlineTunnel>), OpenFailure> {
        let (id, endpoint_id) = self.tunnel_ids()?;
        // The address is not known before it is bound, and the tunnel shows it. Visitors who come before the
        // tunnel are led to another node that serves it, as they are while an endpoint has no target.
        let key = rows::requested_key(&spec);
        let bound = self.state.gateway.bind_offline(spec).await;
        let endpoint = bound.map_err(|error| match error {
            BindError::Taken(url) => OpenFailure::taken(url, key),
            error => AgentRefusal(error.to_string(), error.code()).into(),
        })?;
        if !plan.access.allows_endpoint(&endpoint) {
            return Err(forbidden_refusal(&format!("{:?}", endpoint.url())).into());
        }
        let tunnel = plan.new_tunnel(bind_id, &endpoint, (id, endpoint_id));
        self.state.check_domain(&self.online, tunnel.host()).await?;
        Ok((endpoint, tunnel))
    }

    async fn bind_labeled(&self, bind: &BindLabeled) -> Result<String, AgentRefusal> {
        if bind.labels.is_empty() {
            return Err(AgentRefusal("a labeled tunnel without labels".to_owned(), 215));
        }
        let unknown = |problem: String| AgentRefusal(problem, 215);
        limits::check_labeled(bind).map_err(unknown)?;
        if !self.state.access_list(&self.online).await?.allows_labels(&bind.labels) {
            return Err(forbidden_refusal("these labels"));
        }
        let speaks = bind_request::parse_app_protocol(&bind.forwards_proto).map_err(unknown)?;
        let bind_id = bind_request::random_secret()?;
        let tunnel = Arc::new(OnlineTunnel {
            id: self.state.ids.next(prefix::TUNNEL)?,
            bind_id: bind_id.clone(),
            session: self.online.clone(),
            started_at: self.state.ids.now(),
            metadata: bind.metadata.clone(),
            description: String::new(),
            forwards_to: bind.forwards_to.clone(),
            speaks,
            kind: TunnelKind::Labeled(bind.labels.clone()),
            life: Life::new(&self.online),
        });
        if !self.state.registry.register_tunnel(Hidden::default(), None, tunnel.clone()) {
            return Err(AgentRefusal("the session is over".to_owned(), FAULT_CODE));
        }
        self.confirm_tunnel(&tunnel, false).await?;
        self.state.wait_until_announced().await;
        Ok(bind_id)
    }

    fn tunnel_ids(&self) -> Result<(String, String), getrandom::Error> {
        Ok((self.state.ids.next(prefix::TUNNEL)?, self.state.ids.next(prefix::ENDPOINT)?))
    }
}

/// The identity of a bind that is about to be opened.
struct NewBind {
    id: String,
    token: Hidden,
    origin: BindOrigin,
}

/// Why an endpoint was not opened.
enum OpenFailure {
    /// A bind has the address.
    Taken(TakenAddress),
    Refused(AgentRefusal),
}

impl OpenFailure {
    fn taken(url: String, key: Option<EndpointKey>) -> Self {
        Self::Taken(TakenAddress { url, key })
    }
}

impl From<AgentRefusal> for OpenFailure {
    fn from(refusal: AgentRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for OpenFailure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<getrandom::Error> for OpenFailure {
    fn from(error: getrandom::Error) -> Self {
        Self::Refused(error.into())
    }
}

/// A bind in the making.
struct BindPlan<'a> {
    online: &'a Arc<OnlineAgent>,
    /// What the agent may bind.
    access: AccessList,
    bind: &'a Bind,
    proxy_proto: u8,
    speaks: UpstreamProtocol,
    now: Timestamp,
}

impl BindPlan<'_> {
    fn new_tunnel(
        &self,
        bind_id: &str,
        endpoint: &PublicEndpoint,
        (id, endpoint_id): (String, String),
    ) -> Arc<OnlineTunnel> {
        let (url, pool) = (endpoint.url(), endpoint.pool().map(str::to_owned));
        let proto = url.split(':').next().unwrap_or_default().to_owned();
        let proxy_proto = self.proxy_proto;
        Arc::new(OnlineTunnel {
            id,
            bind_id: bind_id.to_owned(),
            session: self.online.clone(),
            started_at: self.now.clone(),
            metadata: self.bind.extra.metadata.clone(),
            description: self.bind.extra.description.clone(),
            forwards_to: self.bind.forwards_to.clone(),
            speaks: self.speaks,
            kind: TunnelKind::Endpoint {
                endpoint_id: endpoint_id.into(),
                url: url.to_owned(),
                proto,
                proxy_proto,
                pool,
            },
            life: Life::new(self.online),
        })
    }
}

fn bind_answer(
    bind: &Bind,
    id: &str,
    url: &str,
    token: &Hidden,
    tunnel: &OnlineTunnel,
) -> BindAnswer {
    let proto = url.split(':').next().unwrap_or_default();
    let place = url.split("://").nth(1).unwrap_or_default();
    let mut opts = bind.opts.clone();
    opts.fill_defaults(proto);
    match proto {
        "tcp" => opts.set("Addr", place),
        _ => opts.set("Hostname", place),
    }
    let tunnel_id = match &tunnel.kind {
        TunnelKind::Endpoint { endpoint_id, .. } => Some(endpoint_id.to_string()),
        TunnelKind::Labeled(_) => None,
    };
    BindAnswer {
        id: id.to_owned(),
        url: url.to_owned(),
        proto: proto.to_owned(),
        opts,
        extra: BindAnswerExtra { token: token.clone(), tunnel_id, took_over: false },
        error: None,
    }
}

/// Why an address cannot be had that somebody else has; for who asked for a pool, why there is none.
fn taken_refusal(url: &str, is_pooled: bool) -> AgentRefusal {
    let problem = match is_pooled {
        false => already_online(url),
        true => format!(
            "the endpoint '{url}' is already online, and cannot be shared: pooling_enabled is for \
             endpoints of agents of one account that all ask for it and end TLS in the same way"
        ),
    };
    AgentRefusal(problem, 334)
}

fn forbidden_refusal(what: &str) -> AgentRefusal {
    AgentRefusal(format!("the access list of the authtoken does not allow {what}"), 600)
}
