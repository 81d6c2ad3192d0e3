//! What one agent and the service say to each other.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::access::{may_bind, may_bind_labels};
use super::registry::{Online, Reclaimed, Registry};
use super::reservation::Reservation;
use super::socket::Prompt;
use super::tunnel::{Kind, Tunnel};
use super::{Settings, wanted};
use crate::api::Timestamp;
use crate::api::id::{Ids, prefix};
use crate::service::accounts::{self, TokenFault};
use crate::service::edge::{Edges, Endpoint, Reuse, Speaks, Target, Wanted};
use crate::service::store::{self, Store};
use crate::tunnel::message::{
    Answer, Auth, AuthAnswer, AuthAnswerExtra, AuthExtra, Bind, BindAnswer, BindAnswerExtra,
    BindLabeled, BindLabeledAnswer, Hidden, SrvInfoAnswer, Unbind, error_text,
};
use crate::tunnel::rpc::Call;
use crate::tunnel::{Incoming, Session, Stream, heartbeat, kind, read_kind};

/// How long an agent may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// How long a refused agent may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// The name of the only region there is.
const REGION: &str = "local";
/// The version of the protocol.
const VERSION: &str = "3";

/// What all conversations share.
pub(crate) struct House {
    pub settings: Settings,
    pub store: Arc<Store>,
    pub edges: Edges,
    pub registry: Arc<Registry>,
    pub ids: Ids,
}

/// Why something is refused: words and the number of a code.
struct Refused(String, u16);

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Self {
        Self(format!("the service failed: {error}"), 722)
    }
}

impl From<getrandom::Error> for Refused {
    fn from(error: getrandom::Error) -> Self {
        Self(format!("the service failed: {error}"), 722)
    }
}

/// One agent, before and after it said who it is.
struct Conversation {
    house: Arc<House>,
    session: Session,
    peer: SocketAddr,
    prompt: Prompt,
    online: OnceLock<Arc<Online>>,
}

/// Talks to an agent until it is gone.
pub(super) async fn hold(
    house: Arc<House>,
    session: Session,
    mut incoming: Incoming,
    peer: SocketAddr,
    prompt: Prompt,
) {
    let settings = &house.settings;
    let _beating =
        heartbeat::keep(&session, settings.heartbeat_interval, settings.heartbeat_tolerance);
    let online = OnceLock::new();
    let talk = Arc::new(Conversation { house: house.clone(), session, peer, prompt, online });
    let introduction = tokio::time::sleep(INTRODUCTION);
    tokio::pin!(introduction);
    loop {
        tokio::select! {
            stream = incoming.next() => {
                let Some(stream) = stream else { break };
                tokio::spawn(talk.clone().answer(stream));
            }
            () = &mut introduction, if talk.online.get().is_none() => {
                talk.session.close();
                break;
            }
        }
    }
    if let Some(online) = talk.online.get() {
        house.registry.remove(online);
    }
}

impl Conversation {
    async fn answer(self: Arc<Self>, mut stream: Stream) {
        // What is said on one stream harms no other: a broken one is dropped.
        let Ok(kind) = read_kind(&mut stream).await else { return };
        if kind == kind::HEARTBEAT {
            return heartbeat::answer(stream).await;
        }
        let Ok(call) = Call::read(kind, stream).await else { return };
        let _ = match kind {
            kind::AUTH => return self.authenticate(call).await,
            kind::SRV_INFO => call.answer(&SrvInfoAnswer { region: REGION.to_owned() }).await,
            _ => match self.online.get() {
                None => call.refuse(self.text(Refused("say who you are first".into(), 102))).await,
                Some(online) => self.perform(online, kind, call).await,
            },
        };
    }

    async fn perform(
        &self,
        online: &Arc<Online>,
        kind: u32,
        call: Call,
    ) -> Result<(), crate::tunnel::rpc::Error> {
        match kind {
            kind::BIND => {
                let bind: Bind = call.decode()?;
                let answer = match self.bind(online, &bind).await {
                    Ok(answer) => answer,
                    Err(refused) => {
                        BindAnswer { error: Some(self.text(refused)), ..BindAnswer::default() }
                    }
                };
                call.answer(&answer).await
            }
            kind::BIND_LABELED => {
                let bind: BindLabeled = call.decode()?;
                let answer = match self.bind_labeled(online, bind) {
                    Ok(id) => BindLabeledAnswer { id, error: None },
                    Err(refused) => BindLabeledAnswer {
                        error: Some(self.text(refused)),
                        ..BindLabeledAnswer::default()
                    },
                };
                call.answer(&answer).await
            }
            kind::UNBIND => {
                let unbind: Unbind = call.decode()?;
                if !self.house.registry.unbind(online, &unbind.id) {
                    let refused = Refused(format!("no tunnel has the id {:?}", unbind.id), 3200);
                    return call.refuse(self.text(refused)).await;
                }
                // Without the note the address is only kept for longer.
                let _ = Reservation::drop(&self.house.store, vec![unbind.id]).await;
                call.answer(&Answer::default()).await
            }
            other => {
                let refused = Refused(format!("the command {other} is not known"), 102);
                call.refuse(self.text(refused)).await
            }
        }
    }

    async fn authenticate(&self, call: Call) {
        let admitted = match call.decode::<Auth>() {
            Ok(auth) => self.admit(auth),
            Err(error) => Err(Refused(error.to_string(), 102)),
        };
        let refused = match admitted {
            Ok(answer) => {
                // An agent that is gone already is noticed by the session.
                let _ = call.answer(&answer).await;
                return;
            }
            Err(refused) => refused,
        };
        let error = Some(self.text(refused));
        let _ = call.answer(&AuthAnswer { error, ..AuthAnswer::default() }).await;
        // The answer needs time to arrive.
        let _ = tokio::time::timeout(FAREWELL, self.session.ended()).await;
        self.session.close();
    }

    fn admit(&self, auth: Auth) -> Result<AuthAnswer, Refused> {
        if !auth.version.is_empty() && !auth.version.iter().any(|version| version == VERSION) {
            let known = auth.version.join(", ");
            return Err(Refused(format!("no common version of the protocol: {known}"), 102));
        }
        let AuthExtra { auth_token, cookie, .. } = &auth.extra;
        let found = self.house.store.read(|view| accounts::agent(view, auth_token.reveal()))?;
        let agent = found.map_err(token_refused)?;
        let returns =
            !auth.client_id.is_empty() && self.house.registry.returning(&auth.client_id, cookie);
        // An id without its cookie may be of a session before a restart of the service: then nobody
        // else has it, and the agent may keep it.
        let taken = self.house.registry.sessions().iter().any(|o| o.client_id == auth.client_id);
        let client_id = match auth.client_id.as_str() {
            id if !id.is_empty() && (returns || !taken) => id.to_owned(),
            _ => wanted::secret()?,
        };
        // Our own agent does not hold small frames back.
        self.prompt.store(auth.extra.client_type != "ginnel", Ordering::Relaxed);
        let online = Arc::new(self.introduce(auth.extra, agent, client_id)?);
        self.house.registry.add(&online);
        let again = self.online.set(online.clone()).is_err();
        // When the session ended meanwhile, nobody else would take it off the list.
        if again || self.session.is_ended() {
            self.house.registry.remove(&online);
        }
        if again {
            return Err(Refused("the agent said who it is before".to_owned(), 102));
        }
        Ok(AuthAnswer {
            version: VERSION.to_owned(),
            client_id: online.client_id.clone(),
            error: None,
            extra: AuthAnswerExtra {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                region: REGION.to_owned(),
                cookie: online.cookie.clone(),
                ..AuthAnswerExtra::default()
            },
        })
    }

    fn introduce(
        &self,
        said: AuthExtra,
        agent: accounts::Agent,
        client_id: String,
    ) -> Result<Online, Refused> {
        let unsupported = |error: Option<String>| match error {
            None => Some("the agent is too old for this".to_owned()),
            Some(reason) => Some(reason).filter(|reason| !reason.is_empty()),
        };
        Ok(Online {
            id: self.house.ids.next(prefix::TUNNEL_SESSION)?,
            client_id,
            cookie: wanted::secret()?.into(),
            session: self.session.clone(),
            agent,
            ip: self.peer.ip().to_canonical(),
            os: said.os,
            agent_version: said.version,
            metadata: said.metadata,
            started_at: self.house.ids.now(),
            unsupported: [
                unsupported(said.stop_unsupported_error),
                unsupported(said.restart_unsupported_error),
                unsupported(said.update_unsupported_error),
            ],
        })
    }

    async fn bind(&self, online: &Arc<Online>, bind: &Bind) -> Result<BindAnswer, Refused> {
        let asked = wanted::read(bind).map_err(|problem| Refused(problem, 215))?;
        let now = self.house.ids.now();
        let (proxy_proto, speaks) = (asked.proxy_proto, asked.speaks);
        let plan = Plan { online, bind, proxy_proto, speaks, now };
        if !bind.id.is_empty()
            && let Some(answer) = self.reclaim(&plan)?
        {
            return Ok(answer);
        }
        let mut wanted = asked.wanted;
        let kept = self.kept(online, bind)?;
        let bind_id = match kept {
            // After a restart of the service: the same address, if nobody else took it.
            Some(kept) => {
                kept.fill(&mut wanted);
                bind.id.clone()
            }
            None => wanted::secret()?,
        };
        let (endpoint, tunnel) = self.open(&plan, &bind_id, wanted).await?;
        let token = match bind.extra.token.is_empty() {
            true => wanted::secret()?.into(),
            false => bind.extra.token.clone(),
        };
        let owner_id = &online.agent.owner_id;
        let kept = Reservation::of(&bind_id, token.reveal(), owner_id, &endpoint);
        kept.keep(&self.house.store).await?;
        let answer = answer(bind, &bind_id, endpoint.url(), &token, &tunnel);
        self.house.registry.bind(token, Some(endpoint), tunnel);
        Ok(answer)
    }

    /// The bind that the agent had, taken from whoever has it now.
    fn reclaim(&self, plan: &Plan<'_>) -> Result<Option<BindAnswer>, Refused> {
        let (online, bind) = (plan.online, plan.bind);
        let (id, endpoint_id) = self.tunnel_ids()?;
        let mut made = None;
        let make = |endpoint: &Endpoint| {
            let tunnel = plan.tunnel(&bind.id, endpoint.url(), id, endpoint_id);
            made = Some(tunnel.clone());
            tunnel
        };
        let owner_id = &online.agent.owner_id;
        match self.house.registry.reclaim(&bind.id, &bind.extra.token, owner_id, make) {
            Reclaimed::Done { url } => {
                Ok(made.map(|tunnel| answer(bind, &bind.id, &url, &bind.extra.token, &tunnel)))
            }
            Reclaimed::Unknown => Ok(None),
        }
    }

    fn kept(&self, online: &Online, bind: &Bind) -> Result<Option<Reservation>, Refused> {
        if bind.id.is_empty() {
            return Ok(None);
        }
        let (token, owner_id) = (bind.extra.token.reveal(), &online.agent.owner_id);
        Ok(Reservation::find(&self.house.store, &bind.id, token, owner_id)?)
    }

    async fn open(
        &self,
        plan: &Plan<'_>,
        bind_id: &str,
        wanted: Wanted,
    ) -> Result<(Endpoint, Arc<Tunnel>), Refused> {
        let (id, endpoint_id) = self.tunnel_ids()?;
        // The address is not known before it is bound, and the tunnel shows it.
        let waiting = Arc::new(NotYet);
        let bound = self.house.edges.bind(wanted, waiting).await;
        let endpoint = bound.map_err(|error| Refused(error.to_string(), error.code()))?;
        let agent = &plan.online.agent;
        let place = endpoint.host().map(str::to_owned);
        let place = place.or_else(|| endpoint.address().map(|address| address.to_string()));
        if !may_bind(agent, place.as_deref().unwrap_or_default()) {
            let problem =
                format!("the access list of the authtoken does not allow {:?}", endpoint.url());
            return Err(Refused(problem, 600));
        }
        let tunnel = plan.tunnel(bind_id, endpoint.url(), id, endpoint_id);
        endpoint.retarget(Some(tunnel.clone()));
        Ok((endpoint, tunnel))
    }

    fn bind_labeled(&self, online: &Arc<Online>, bind: BindLabeled) -> Result<String, Refused> {
        if bind.labels.is_empty() {
            return Err(Refused("a labeled tunnel without labels".to_owned(), 215));
        }
        if !may_bind_labels(&online.agent, &bind.labels) {
            let problem = "the access list of the authtoken does not allow these labels";
            return Err(Refused(problem.to_owned(), 600));
        }
        let unknown = |problem: String| Refused(problem, 215);
        let speaks = wanted::speaks(&bind.forwards_proto).map_err(unknown)?;
        let bind_id = wanted::secret()?;
        let tunnel = Arc::new(Tunnel {
            id: self.house.ids.next(prefix::TUNNEL)?,
            bind_id: bind_id.clone(),
            session: online.clone(),
            started_at: self.house.ids.now(),
            metadata: bind.metadata,
            forwards_to: bind.forwards_to,
            speaks,
            kind: Kind::Labeled(bind.labels),
        });
        self.house.registry.bind(Hidden::default(), None, tunnel);
        Ok(bind_id)
    }

    fn tunnel_ids(&self) -> Result<(String, String), getrandom::Error> {
        Ok((self.house.ids.next(prefix::TUNNEL)?, self.house.ids.next(prefix::ENDPOINT)?))
    }

    fn text(&self, Refused(message, number): Refused) -> String {
        let code = format!("{}{number}", self.house.settings.code_prefix);
        error_text(&message, Some(&code))
    }
}

/// A bind in the making.
struct Plan<'a> {
    online: &'a Arc<Online>,
    bind: &'a Bind,
    proxy_proto: u8,
    speaks: Speaks,
    now: Timestamp,
}

impl Plan<'_> {
    fn tunnel(&self, bind_id: &str, url: &str, id: String, endpoint_id: String) -> Arc<Tunnel> {
        let proto = url.split(':').next().unwrap_or_default().to_owned();
        let proxy_proto = self.proxy_proto;
        Arc::new(Tunnel {
            id,
            bind_id: bind_id.to_owned(),
            session: self.online.clone(),
            started_at: self.now.clone(),
            metadata: self.bind.extra.metadata.clone(),
            forwards_to: self.bind.forwards_to.clone(),
            speaks: self.speaks,
            kind: Kind::Endpoint { endpoint_id, url: url.to_owned(), proto, proxy_proto },
        })
    }
}

fn answer(bind: &Bind, id: &str, url: &str, token: &Hidden, tunnel: &Tunnel) -> BindAnswer {
    let proto = url.split(':').next().unwrap_or_default();
    let place = url.split("://").nth(1).unwrap_or_default();
    let mut opts = bind.opts.clone();
    opts.complete(proto);
    match proto {
        "tcp" => opts.set("Addr", place),
        _ => opts.set("Hostname", place),
    }
    let tunnel_id = match &tunnel.kind {
        Kind::Endpoint { endpoint_id, .. } => Some(endpoint_id.clone()),
        Kind::Labeled(_) => None,
    };
    BindAnswer {
        id: id.to_owned(),
        url: url.to_owned(),
        proto: proto.to_owned(),
        opts,
        extra: BindAnswerExtra { token: token.clone(), tunnel_id },
        error: None,
    }
}

fn token_refused(fault: TokenFault) -> Refused {
    match fault {
        TokenFault::Missing => {
            Refused("authentication failed: the agent gave no authtoken".to_owned(), 4018)
        }
        TokenFault::Malformed => Refused(
            "authentication failed: the authtoken does not have the form of one".to_owned(),
            105,
        ),
        TokenFault::Unknown => Refused(
            "authentication failed: the authtoken belongs to no credential of this service"
                .to_owned(),
            107,
        ),
    }
}

/// Stands in for a tunnel until its address is known.
struct NotYet;

impl Target for NotYet {
    fn key(&self) -> &str {
        ""
    }

    fn reuse(&self) -> Reuse {
        Reuse::Nobody
    }

    fn dial<'a>(
        &'a self,
        _: &'a crate::service::edge::Visitor,
        _: &'a crate::service::edge::Through,
    ) -> crate::service::edge::BoxFuture<
        'a,
        Result<crate::service::edge::Io, crate::service::edge::Undialable>,
    > {
        Box::pin(async { Err(crate::service::edge::Undialable::Offline) })
    }
}
