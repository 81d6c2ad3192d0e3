//! Cloud endpoints: made, changed and deleted here; a traffic policy serves them.

use std::sync::Arc;

use ginnel_base::tasks::spawn_blocking;

use ginnel_api::remote::endpoints::{Create, Delete, Endpoint, Update};
use ginnel_gateway::Gateway;
use ginnel_gateway::modules::edge_module::{InvalidModule, ModuleChecker};
use ginnel_policy::problem::{Problem, code as problem_code};
use ginnel_policy::{self as policy, Phase, Policy};

use super::{binding_of, complete_all, endpoint_at, find_endpoint, reference_to};
use crate::cloud_endpoint::{CloudAddress, CloudEndpoint, CloudScheme};
use crate::cluster::EndpointKey;
use crate::context::{Context, OperationResult, ServiceState};
use crate::domains::{ADDRESS, DOMAIN, DomainClaim, DomainDenial, HOSTPORTS_OWNER, address_at};
use crate::handlers::prelude::*;
use crate::references::HOSTPORTS;
use crate::vaults;

/// The type of endpoints that can be made and changed.
const CLOUD: &str = "cloud";

pub(super) async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let address = read_url(&params.url)?;
    check_type(params.r#type.as_deref())?;
    check_terms(&address, params.bindings.as_deref(), params.pooling_enabled)?;
    let policy = CheckedPolicy::check_text(&service, &address, params.traffic_policy).await?;
    check_free(&service, &address, "")?;
    let owner = EndpointOwner::from_context(&service);
    let create = service.write(move |change| {
        let (id, now) = (change.new_id(prefix::ENDPOINT)?, change.now());
        policy.link_references(change, &id)?;
        owner.claim_address(change, &id, &address)?;
        let endpoint = CloudEndpoint {
            id,
            created_at: now.clone(),
            updated_at: now,
            owner_id: owner.owner_id,
            url: address.url(),
            description: params.description.unwrap_or_default(),
            metadata: params.metadata.unwrap_or_default(),
            traffic_policy: policy.text,
        };
        change.put_document(&endpoint)?;
        Ok(endpoint)
    });
    let endpoint = create.await?;
    show_endpoint(&service, endpoint).await
}

pub(super) async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let id = params.id.clone();
    let before = find_stored(&service, &id).await?;
    // Generated clients send empty texts and lists for what is left out.
    let url = params.url.filter(|url| !url.is_empty());
    let text = params.traffic_policy.filter(|text| !text.is_empty());
    let address = read_url(url.as_ref().unwrap_or(&before.url))?;
    check_type(params.r#type.as_deref())?;
    check_terms(&address, params.bindings.as_deref(), params.pooling_enabled)?;
    if url.is_some() {
        check_free(&service, &address, &id)?;
    }
    let policy = match (&url, text) {
        // It was checked, and other settings may forbid it now.
        (None, None) => None,
        // Another URL may need another kind of policy.
        (_, text) => {
            let text = text.unwrap_or_else(|| before.traffic_policy.clone());
            Some(CheckedPolicy::check_text(&service, &address, text).await?)
        }
    };
    let (has_url, owner) = (url.is_some(), EndpointOwner::from_context(&service));
    let update = service.write(move |change| {
        let mut endpoint: CloudEndpoint = find_or_refuse(change, &id)?;
        if let Some(policy) = policy {
            check_unchanged(&before, &endpoint)?;
            policy.link_references(change, &id)?;
            endpoint.traffic_policy = policy.text;
        }
        if has_url {
            owner.claim_address(change, &id, &address)?;
            (endpoint.url, endpoint.owner_id) = (address.url(), owner.owner_id);
        }
        endpoint.description = params.description.unwrap_or(endpoint.description);
        endpoint.metadata = params.metadata.unwrap_or(endpoint.metadata);
        endpoint.updated_at = change.now();
        change.put_document(&endpoint)?;
        Ok(endpoint)
    });
    let endpoint = update.await?;
    show_endpoint(&service, endpoint).await
}

/// Refuses a change whose policy was checked for what the endpoint was before another call.
fn check_unchanged(before: &CloudEndpoint, now: &CloudEndpoint) -> Result<()> {
    if (&before.url, &before.traffic_policy) == (&now.url, &now.traffic_policy) {
        return Ok(());
    }
    let message = "another call has changed the endpoint meanwhile: look at it, and try again";
    Err(Refusal::new(code::ENDPOINT_CHANGED, message))
}

pub(super) async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    find_stored(&service, &params.id).await?;
    let delete = service.write(move |change| remove_or_refuse::<CloudEndpoint>(change, &params.id));
    delete.await
}

/// A cloud endpoint as the API shows it.
pub(super) fn to_endpoint(gateway: &Gateway, endpoint: CloudEndpoint) -> Endpoint {
    let address = CloudAddress::parse_url(&endpoint.url).ok();
    let place = address.as_ref().map_or(("", 0), |it| (it.host.as_str(), it.port));
    let public_url = address.as_ref().and_then(|address| match address.scheme {
        _ if address.is_internal() => None,
        CloudScheme::Tcp => None,
        scheme => gateway.url_of(&address.host, scheme == CloudScheme::Https),
    });
    Endpoint {
        id: endpoint.id,
        created_at: Some(endpoint.created_at),
        updated_at: Some(endpoint.updated_at),
        r#type: Some(CLOUD.to_owned()),
        public_url: public_url.or_else(|| Some(endpoint.url.clone())),
        description: Some(endpoint.description.0),
        metadata: Some(endpoint.metadata),
        principal: reference_to(&endpoint.owner_id),
        traffic_policy: Some(endpoint.traffic_policy),
        ..endpoint_at(&endpoint.url, place)
    }
}

async fn show_endpoint(service: &Context, endpoint: CloudEndpoint) -> Result<Endpoint> {
    let endpoint = to_endpoint(&service.shared.gateway, endpoint);
    complete_all(service, vec![endpoint]).await?.pop().ok_or_else(Refusal::not_found)
}

/// The cloud endpoint with this identifier; one of an agent or an edge is refused in words.
async fn find_stored(service: &Context, id: &str) -> Result<CloudEndpoint> {
    let wanted = id.to_owned();
    let read = service.read(move |view| Ok(view.find_document::<CloudEndpoint>(&wanted)?));
    if let Some(endpoint) = read.await? {
        return Ok(endpoint);
    }
    match find_endpoint(service, id.to_owned()).await? {
        None => Err(Refusal::not_found()),
        Some(endpoint) => {
            let holder = if endpoint.edge.is_some() { "an edge" } else { "an agent" };
            let message =
                format!("id: {id} is the endpoint of {holder}, which changes and ends it");
            Err(Refusal::new(code::INVALID_VALUE, message))
        }
    }
}

fn read_url(url: &str) -> Result<CloudAddress> {
    let read = CloudAddress::parse_url(url);
    read.map_err(|problem| Refusal::new(code::INVALID_VALUE, format!("url: {problem}")))
}

fn check_type(kind: Option<&str>) -> Result<()> {
    match kind {
        None | Some("" | CLOUD) => Ok(()),
        Some(other) => {
            let message = format!("type: {other:?} is not {CLOUD:?}: agents make the others");
            Err(Refusal::new(code::INVALID_VALUE, message))
        }
    }
}

fn check_terms(
    address: &CloudAddress,
    bindings: Option<&[String]>,
    pooling: Option<bool>,
) -> Result<()> {
    let own = binding_of(&address.host);
    if let Some(other) = bindings.unwrap_or_default().iter().find(|binding| **binding != own) {
        let message = format!("bindings: {other:?} is not {own:?}, as is the host of the URL");
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    if pooling == Some(true) {
        let message = "pooling_enabled: cloud endpoints share no URL, only those of agents do";
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    Ok(())
}

/// Refuses what an agent has now, and ports that others listen on.
fn check_free(service: &Context, address: &CloudAddress, id: &str) -> Result<()> {
    let shared = &service.shared;
    let hostport = address.hostport();
    let (is_online, key) = match address.scheme {
        CloudScheme::Tcp => {
            if shared.publisher.taken_port(id, &[hostport]).is_some() {
                let owner = "an endpoint, an edge or another program of this machine";
                let message = format!("url: port {} is in use by {owner}", address.port);
                return Err(Refusal::new(code::ENDPOINT_ONLINE, message));
            }
            (false, EndpointKey::port(address.port))
        }
        _ => (shared.gateway.is_online(&hostport), EndpointKey::http(&address.host, address.port)),
    };
    let elsewhere = || {
        let cluster = shared.cluster.as_ref();
        cluster.is_some_and(|cluster| !cluster.directory.claimed_at(&key).is_empty())
    };
    if is_online || elsewhere() {
        let message = format!("url: the endpoint {:?} is already online", address.url());
        return Err(Refusal::new(code::ENDPOINT_ONLINE, message));
    }
    if address.scheme != CloudScheme::Tcp && !has_port(shared, address) {
        let message = format!("url: the service has no port for {:?}", address.url());
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    Ok(())
}

fn has_port(shared: &ServiceState, address: &CloudAddress) -> bool {
    let is_secure = address.scheme == CloudScheme::Https;
    address.is_internal() || shared.gateway.url_of(&address.host, is_secure).is_some()
}

/// Whose names and ports an endpoint may have.
#[derive(Clone)]
struct EndpointOwner {
    owner_id: String,
    only_reserved: bool,
}

impl EndpointOwner {
    fn from_context(service: &Context) -> Self {
        let owner_id = service.caller.owner_id.clone();
        Self { owner_id, only_reserved: service.shared.reserved_domains_only }
    }

    /// Claims an address in place of the one that the endpoint had; notes what it belongs to.
    fn claim_address(
        &self,
        change: &Transaction<'_>,
        id: &str,
        address: &CloudAddress,
    ) -> Result<()> {
        let claimed = address.claimed_key();
        if let Some(other) = change.claimant(HOSTPORTS, &claimed)?.filter(|other| other != id) {
            let message = format!("url: {:?} belongs to {other}", address.url());
            return Err(Refusal::new(code::ENDPOINT_ONLINE, message));
        }
        change.release_claims(HOSTPORTS, id)?;
        change.claim_key(HOSTPORTS, &claimed, id)?;
        let reserved_address = self.find_address(change, address)?;
        change.replace_references(id, ADDRESS, reserved_address.as_deref())?;
        change.replace_references(id, DOMAIN, self.find_domain(change, address)?.as_deref())?;
        Ok(change.replace_references(id, HOSTPORTS_OWNER, [self.owner_id.as_str()])?)
    }

    /// The reserved domain of the host, where there is one.
    fn find_domain(
        &self,
        change: &Transaction<'_>,
        address: &CloudAddress,
    ) -> Result<Option<String>> {
        if address.scheme == CloudScheme::Tcp || address.is_internal() {
            return Ok(None);
        }
        let claim = DomainClaim { owner_id: &self.owner_id, only_reserved: self.only_reserved };
        claim.check_host(change, &address.host)?.map_err(|denial| {
            let (code, problem) = match denial {
                DomainDenial::Foreign => (code::HOSTPORT_OF_ANOTHER, "is reserved by another"),
                DomainDenial::Unreserved => (code::HOSTPORT_NOT_RESERVED, "is not reserved"),
            };
            Refusal::new(code, format!("url: the domain of {:?} {problem}", address.url()))
        })
    }

    /// The reserved address of the port, where there is one.
    fn find_address(
        &self,
        change: &Transaction<'_>,
        address: &CloudAddress,
    ) -> Result<Option<String>> {
        if address.scheme != CloudScheme::Tcp {
            return Ok(None);
        }
        match address_at(change, address.port)? {
            Some(reserved) if reserved.owner_id.as_ref() != Some(&self.owner_id) => {
                let message =
                    format!("url: the port of {:?} is reserved by another", address.url());
                Err(Refusal::new(code::HOSTPORT_OF_ANOTHER, message))
            }
            reserved => Ok(reserved.map(|reserved| reserved.id)),
        }
    }
}

/// A policy that was compiled.
#[derive(Clone)]
struct CheckedPolicy {
    text: String,
    /// Held until it is live, so that it is not compiled again.
    compiled: Arc<Policy>,
}

impl CheckedPolicy {
    /// Checks a policy away from the threads that answer requests: it may take a while.
    async fn check_text(service: &Context, address: &CloudAddress, text: String) -> Result<Self> {
        if text.trim().is_empty() {
            let message = "traffic_policy: is empty, and nothing else serves a cloud endpoint";
            return Err(Refusal::new(code::INVALID_VALUE, message));
        }
        let (policies, scope) = (service.policy_cache(), address.scheme.policy_scope());
        let (known_addresses, applications) =
            (service.known_addresses(), service.oauth_applications());
        let checker = ModuleChecker { policies, scope, known_addresses, applications };
        let checked = spawn_blocking(move || {
            let document = policy::read_document(&text);
            let document = document.map_err(|problem| InvalidModule::from_problems(&[problem]))?;
            let compiled = checker.compile_policy(&document)?;
            if compiled.tls_termination().is_some() {
                let message = "traffic_policy: terminate-tls is not supported at cloud endpoints";
                return Err(InvalidModule::from_message(message));
            }
            // Those who ask get an answer all the same; bytes get none.
            if !scope.is_http() && compiled.rules(Phase::Connect).is_empty() {
                let message = "has no rules, and nothing else serves a cloud endpoint".to_owned();
                let place = format!("traffic_policy.{}", Phase::Connect.name());
                let problem = Problem { code: problem_code::UNHANDLED, place, message };
                return Err(InvalidModule::from_problems(&[problem]));
            }
            Ok(Self { text, compiled })
        });
        match checked.await {
            Ok(checked) => Ok(checked?),
            Err(_) => Err(Refusal::new(code::UNEXPECTED, "unexpected failure")),
        }
    }

    /// Notes what it refers to, all of which must exist.
    fn link_references(&self, change: &Transaction<'_>, id: &str) -> Result<()> {
        vaults::link_secrets(change, id, "traffic_policy", &self.compiled.secrets)?;
        for id in self.compiled.ip_policy_ids() {
            if !change.exists(id)? {
                let message = format!("traffic_policy: there is no IP policy {id:?}");
                return Err(Refusal::new(code::POLICY_IP_POLICY, message));
            }
        }
        Ok(())
    }
}
