//! Making agents' own endpoints public.

use std::io::ErrorKind;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::net::TcpListener;

use ginnel_api::endpoint_options::{TunnelCertificate, VisitorAuthorities};
use ginnel_api::{Base64, Origin};
use ginnel_base::address::reachable_address;
use ginnel_net::tls::only_signed_by;
use ginnel_net::{Listener, OutOfReach};
use ginnel_policy::actions::terminate_tls::TerminateTls;
use ginnel_policy::problem::code;
use ginnel_policy::{Problem, Scope};

use crate::GatewayError;
use crate::modules::module::Modules;
use crate::modules::traffic_policy::Rules;
use crate::routing::backend::Backend;
use crate::routing::endpoint::{
    BindError, EndpointRoutes, PoolKey, PoolPlace, PoolSeat, PublicEndpoint, agent_backend,
};
use crate::routing::endpoint_modules;
use crate::routing::endpoint_spec::{EndpointSpec, Proto};
use crate::routing::hosts::{HostSelection, Hosts};
use crate::routing::internal::{self, is_internal};
use crate::routing::route::Route;
use crate::routing::virtual_host::VirtualHost;
use crate::server::gateway::{Gateway, GatewayState};
use crate::tls::certificate_error::CertificateError;
use crate::tls::policy::{TlsParams, TlsPolicy};
use crate::upstream::target::Target;

/// What the names of endpoints are made of: no letter looks like another.
const RANDOM_NAME_LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// How long such a name is.
const RANDOM_NAME_LENGTH: usize = 10;

/// Where an endpoint is.
struct EndpointAddress {
    url: String,
    host: Option<String>,
    name: Option<(String, u16)>,
    listener: Option<Listener>,
}

impl EndpointAddress {
    /// A name on shared ports.
    fn at_name(url: String, host: String, port: u16) -> Self {
        let name = Some((host.clone(), port));
        Self { url, name, host: Some(host), listener: None }
    }

    /// A port of its own.
    fn at_port(url: String, host: Option<String>, listener: Listener) -> Self {
        Self { url, host, name: None, listener: Some(listener) }
    }
}

impl Gateway {
    /// Makes a target public.
    ///
    /// # Errors
    /// When the address is taken, or what is wanted cannot be had.
    pub async fn bind_endpoint(
        &self,
        spec: EndpointSpec,
        target: Arc<dyn Target>,
    ) -> Result<PublicEndpoint, BindError> {
        self.bind_for(spec, Some(target)).await
    }

    /// Takes an address for a target that is still to come.
    ///
    /// # Errors
    /// As for [`Gateway::bind_endpoint`].
    pub async fn bind_offline(&self, spec: EndpointSpec) -> Result<PublicEndpoint, BindError> {
        self.bind_for(spec, None).await
    }

    /// Checks a spec without a service.
    ///
    /// # Errors
    /// If every service refuses it, whatever its settings are.
    pub fn check_spec(mut spec: EndpointSpec) -> Result<(), BindError> {
        let modules = endpoint_modules::check_modules(&spec.options, scope_of(spec.proto))?;
        if modules.as_ref().is_some_and(Modules::have_local_issuers) {
            return Err(local_issuer());
        }
        let rules = modules.as_ref().and_then(Modules::rules);
        if let Some(tls) = rules.and_then(Rules::tls_termination) {
            end_tls(&mut spec, tls)?;
        }
        if let Some(authorities) = spec.visitor_authorities() {
            only_signed_by(authorities).map_err(invalid_authorities)?;
        }
        spec.host.as_deref().map_or(Ok(()), |host| checked_host(host).map(drop))
    }

    async fn bind_for(
        &self,
        mut spec: EndpointSpec,
        target: Option<Arc<dyn Target>>,
    ) -> Result<PublicEndpoint, BindError> {
        let gateway = &self.0;
        let backend =
            Arc::new(ArcSwap::from_pointee(agent_backend(&gateway.table.targets, target.clone())));
        let scope = scope_of(spec.proto);
        let mut virtual_host = compile_virtual_host(gateway, &spec, backend.clone(), scope).await?;
        if virtual_host.has_local_issuers() {
            return Err(local_issuer());
        }
        let reach = gateway.policy_resources.reach;
        let checked =
            virtual_host.issuer_addresses().try_for_each(|address| reach.check_address(address));
        checked.map_err(|problem| private_issuer(&problem))?;
        if let Some(tls) = virtual_host.tls_termination() {
            end_tls(&mut spec, tls)?;
        }
        let host = gateway.host_for(&spec)?;
        virtual_host.tls_policy = gateway.tls_policy_for(&spec, host.as_deref())?;
        let routes =
            EndpointRoutes { virtual_host: Arc::new(ArcSwap::from_pointee(virtual_host)), backend };
        if spec.pool_owner.is_some() {
            return gateway.bind_shared(spec, host, routes, target).await;
        }
        let place = gateway.place_endpoint(&spec, host, &routes).await?;
        Ok(PublicEndpoint {
            url: place.url,
            proto: spec.proto,
            host: place.host,
            address: place.listener.as_ref().map(Listener::address),
            options: spec.options,
            routes,
            name: place.name,
            table: gateway.table.clone(),
            listener: place.listener,
            seat: None,
        })
    }
}

fn scope_of(proto: Proto) -> Scope {
    match proto {
        Proto::Http | Proto::Https => Scope::HttpTunnel,
        Proto::Tcp | Proto::Tls => Scope::TcpTunnel,
    }
}

fn invalid_authorities(problem: String) -> BindError {
    BindError::Invalid { field: "mutual_tls_cas", problem }
}

/// Refuses what would let an agent call what listens on this machine alone.
fn local_issuer() -> BindError {
    let (code, place) = (code::URL, "on_http_request".to_owned());
    let message = "the issuer of a login must be at an https url: agents have none on the machine of the service";
    BindError::Policy(vec![Problem { code, place, message: message.to_owned() }])
}

/// Refuses what no visit could lead to.
fn private_issuer(problem: &OutOfReach) -> BindError {
    let (code, place) = (code::URL, "on_http_request".to_owned());
    let message = format!(
        "the issuer of a login must be at a public address, and {problem}: this service has no private_issuers"
    );
    BindError::Policy(vec![Problem { code, place, message }])
}

/// Adds to what an agent asks for how TLS ends by its policy.
fn end_tls(spec: &mut EndpointSpec, tls: &TerminateTls) -> Result<(), BindError> {
    if matches!(spec.proto, Proto::Http | Proto::Tcp) {
        let (code, place) = (code::PROTOCOL, "on_tcp_connect".to_owned());
        let message = "terminate-tls needs an endpoint with TLS".to_owned();
        return Err(BindError::Policy(vec![Problem { code, place, message }]));
    }
    let own = spec.options.tls_termination.take().unwrap_or_default();
    let given = tls.certificate.as_ref().map(|(chain, key)| TunnelCertificate {
        cert: Base64(chain.clone().into()),
        key: Base64(key.0.clone().into()),
        ..TunnelCertificate::default()
    });
    spec.options.tls_termination = Some(given.unwrap_or(own));
    spec.tls_versions = tls.versions;
    if !tls.authorities.is_empty() {
        let mut authorities = spec.visitor_authorities().unwrap_or_default().to_vec();
        // What an agent gave need not end with its line.
        tls.authorities.iter().for_each(|pem| authorities.extend([b"\n", pem.as_bytes()].concat()));
        let mutual_tls_ca = Base64(authorities.into());
        spec.options.mutual_tls = Some(VisitorAuthorities { mutual_tls_ca });
    }
    Ok(())
}

/// Makes the virtual host of an endpoint, away from the threads that carry traffic: it may take a while.
async fn compile_virtual_host(
    gateway: &Arc<GatewayState>,
    spec: &EndpointSpec,
    backend: Arc<ArcSwap<Backend>>,
    scope: Scope,
) -> Result<VirtualHost, BindError> {
    let host_header = spec.host_header.as_deref().map(HeaderValue::from_str).transpose();
    let host_header = host_header.map_err(|problem| BindError::Invalid {
        field: "host_header",
        problem: problem.to_string(),
    })?;
    let (resources, options) = (gateway.policy_resources.clone(), spec.options.clone());
    let metrics = gateway.services.metrics.clone();
    let account = spec.owner.as_deref().map(Arc::from);
    let compiling = tokio::task::spawn_blocking(move || {
        let modules = endpoint_modules::build_modules((&options, account), scope, &resources)?;
        let (id, edge_id) = ("".into(), "".into());
        // Options that do not compile leave no series of metrics behind.
        let metrics = metrics.map(|metrics| metrics.edge_metrics(""));
        Ok(VirtualHost::from_route(Route { id, edge_id, modules, host_header, backend, metrics }))
    });
    compiling.await.map_err(|_| BindError::Unsupported("this policy"))?
}

impl GatewayState {
    /// Gives an endpoint the address that it asks for.
    async fn place_endpoint(
        self: &Arc<Self>,
        spec: &EndpointSpec,
        host: Option<String>,
        routes: &EndpointRoutes,
    ) -> Result<EndpointAddress, BindError> {
        match (spec.proto, host) {
            (Proto::Http | Proto::Https, Some(host)) => {
                self.place_by_name(spec.proto, host, routes)
            }
            (Proto::Http | Proto::Https, None) => self.place_at_port(spec, routes).await,
            (Proto::Tcp | Proto::Tls, host) => self.place_of_bytes(spec, host, routes).await,
        }
    }

    /// Gives an endpoint an address that others of its account may share, or a place at one that they have.
    async fn bind_shared(
        self: &Arc<Self>,
        spec: EndpointSpec,
        host: Option<String>,
        mut routes: EndpointRoutes,
        target: Option<Arc<dyn Target>>,
    ) -> Result<PublicEndpoint, BindError> {
        let seat = self.seat_endpoint(&spec, host, &routes).await?;
        let pool = seat.pool.clone();
        routes.virtual_host = pool.virtual_host.clone();
        let endpoint = PublicEndpoint {
            url: pool.url.clone(),
            proto: spec.proto,
            host: pool.host.clone(),
            address: pool.address,
            options: spec.options,
            routes,
            name: pool.name.clone(),
            table: self.table.clone(),
            listener: None,
            seat: Some(seat),
        };
        endpoint.retarget(target);
        Ok(endpoint)
    }

    /// A place at an address that may be shared.
    async fn seat_endpoint(
        self: &Arc<Self>,
        spec: &EndpointSpec,
        host: Option<String>,
        routes: &EndpointRoutes,
    ) -> Result<PoolSeat, BindError> {
        let pools = &self.endpoint_pools;
        let unsupported = BindError::Unsupported("pooling of this endpoint");
        let route = routes.virtual_host.load().route_for_path("").cloned().ok_or(unsupported)?;
        let key = PoolKey::from_spec(spec, host.as_deref());
        let _binding = pools.binding.lock().await;
        if let Some(key) = &key
            && let Some(seat) =
                pools.join_pool(&self.table, key, (spec, host.as_deref()), route.clone())?
        {
            return Ok(seat);
        }
        let placed = self.place_endpoint(spec, host.clone(), routes).await?;
        let EndpointAddress { url, host: shown_host, name, listener } = placed;
        let place = PoolPlace { url, host: shown_host, name, listener };
        let (terms, virtual_host) = ((spec, host.as_deref()), routes.virtual_host.clone());
        let seat = pools.open_pool(&self.table, terms, place, virtual_host, route);
        seat.ok_or(BindError::Unsupported("pooling of this endpoint"))
    }

    /// How TLS is spoken with the visitors of an endpoint; none where it is as usual.
    fn tls_policy_for(
        &self,
        spec: &EndpointSpec,
        host: Option<&str>,
    ) -> Result<Option<Arc<TlsPolicy>>, BindError> {
        let unusable = |problem| match problem {
            CertificateError::Unusable { field, problem } => BindError::Invalid { field, problem },
            problem => BindError::Listen(GatewayError::Certificate(problem)),
        };
        let termination = spec.tls_termination();
        let termination = termination.as_ref();
        let mut tls_params =
            TlsParams::from_versions(termination.map(|it| it.versions).unwrap_or_default());
        if let Some(authorities) = spec.visitor_authorities() {
            tls_params.require_certificates(authorities).map_err(invalid_authorities)?;
        } else if termination.is_none() {
            return Ok(None);
        }
        if let Some(termination) = termination.filter(|_| spec.proto == Proto::Tls) {
            let tls_policy = TlsPolicy::for_bytes(&self.authority, termination, tls_params);
            return tls_policy.map(Some).map_err(unusable);
        }
        // Whoever has a name is reached on the shared port, everybody else on a port of their own.
        let has_tls = match host {
            Some(host) => self.ports.https.get().is_some() && !is_internal(host),
            None => self.services.settings.tls_endpoints,
        };
        if spec.proto != Proto::Https || !has_tls {
            let problem = "needs TLS that ends at the service";
            return Err(invalid_authorities(problem.to_owned()));
        }
        let tls_policy = match termination {
            Some(termination) => TlsPolicy::for_http_with(&self.authority, termination, tls_params),
            None => TlsPolicy::for_http(&self.authority, tls_params),
        };
        tls_policy.map(Some).map_err(unusable)
    }

    /// The host name of an endpoint; none where it gets a port instead.
    fn host_for(&self, spec: &EndpointSpec) -> Result<Option<String>, BindError> {
        if spec.proto == Proto::Tcp {
            return Ok(None);
        }
        if let Some(host) = spec.host.as_deref().filter(|host| !host.is_empty()) {
            return checked_host(host).map(Some);
        }
        let subdomain = spec.subdomain.as_deref().filter(|label| !label.is_empty());
        let invalid =
            |problem: &str| BindError::Invalid { field: "subdomain", problem: problem.to_owned() };
        let Some(base) = &self.services.settings.base_domain else {
            return match subdomain {
                Some(_) => Err(invalid("the service has no base domain")),
                None => Ok(None),
            };
        };
        let label = match subdomain {
            Some(label) if !is_label(label) => {
                return Err(invalid(&format!("{label:?} is not a label of a host name")));
            }
            Some(label) => label.to_owned(),
            None => random_name(&self.services.settings.origin)?,
        };
        checked_host(&format!("{label}.{base}")).map(Some)
    }

    /// Gives a host on the shared ports.
    fn place_by_name(
        &self,
        proto: Proto,
        host: String,
        routes: &EndpointRoutes,
    ) -> Result<EndpointAddress, BindError> {
        let url = match is_internal(&host) {
            true => {
                Some(format!("{}://{host}", if proto == Proto::Https { "https" } else { "http" }))
            }
            false => self.url_of(&host, proto == Proto::Https),
        };
        let url = url.ok_or(BindError::Unsupported("a host name without a shared port"))?;
        let port = if proto == Proto::Https { 443 } else { 80 };
        claim_name(&self.table.hosts, EndpointAddress::at_name(url, host, port), routes)
    }

    /// Gives a port for HTTP.
    async fn place_at_port(
        self: &Arc<Self>,
        spec: &EndpointSpec,
        routes: &EndpointRoutes,
    ) -> Result<EndpointAddress, BindError> {
        let listener = self.listen_for(spec).await?;
        let host_selection = HostSelection::Single(routes.virtual_host.clone());
        let is_secure = spec.proto == Proto::Https && self.services.settings.tls_endpoints;
        let (scheme, listener) = if is_secure {
            ("https", self.listen_https(listener, host_selection)?)
        } else {
            ("http", self.listen_http(listener, host_selection)?)
        };
        let url = format!("{scheme}://{}", reachable_address(listener.address()));
        Ok(EndpointAddress::at_port(url, None, listener))
    }

    /// Gives a name for bytes that only policies lead to.
    fn place_inside(
        &self,
        spec: &EndpointSpec,
        (name, port): (String, u16),
        routes: &EndpointRoutes,
    ) -> Result<EndpointAddress, BindError> {
        if spec.options.tls_termination.is_some() {
            return Err(BindError::Unsupported("TLS that ends at an internal endpoint"));
        }
        let host = checked_host(&name)?;
        let url = match spec.proto {
            Proto::Tls => format!("tls://{host}"),
            _ => format!("tcp://{host}:{port}"),
        };
        claim_name(&self.table.streams, EndpointAddress::at_name(url, host, port), routes)
    }

    /// Gives a port for bytes.
    async fn place_of_bytes(
        self: &Arc<Self>,
        spec: &EndpointSpec,
        host: Option<String>,
        routes: &EndpointRoutes,
    ) -> Result<EndpointAddress, BindError> {
        if let Some(name) = internal::name_of(spec) {
            return self.place_inside(spec, name, routes);
        }
        let listener = self.listen_for(spec).await?;
        let scheme = if spec.proto == Proto::Tls { "tls" } else { "tcp" };
        let virtual_host = routes.virtual_host.clone();
        let listener = match virtual_host.load_full().tls_policy.clone() {
            Some(tls_policy) => {
                self.listen_tls(listener, virtual_host, tls_policy.config.clone())?
            }
            None => self.listen_tcp(listener, virtual_host, scheme)?,
        };
        let address = listener.address();
        let url = match &host {
            Some(host) => format!("{scheme}://{host}:{}", address.port()),
            None => format!("{scheme}://{}", reachable_address(address)),
        };
        Ok(EndpointAddress::at_port(url, host, listener))
    }

    async fn listen_for(&self, spec: &EndpointSpec) -> Result<TcpListener, BindError> {
        let addr = spec.addr.as_deref().unwrap_or_default();
        let place = spec.listen_address().map_err(|problem| BindError::Invalid {
            field: "addr",
            problem: format!("{addr:?} is not host:port: it {problem}"),
        })?;
        let Some(place) = place else { return Ok(self.listen_on_port(0).await?) };
        self.release_port(place.port);
        match self.listen_on_port(place.port).await {
            Err(GatewayError::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                Err(BindError::Taken(addr.to_owned()))
            }
            listening => Ok(listening?),
        }
    }
}

impl Gateway {
    /// Returns the public address that an endpoint asks for, in words that are equal for equal addresses.
    /// Gives `None` if the service chooses the address.
    pub fn requested_address(spec: &EndpointSpec) -> Option<String> {
        if let Some((name, port)) = internal::name_of(spec) {
            return Some(format!("{name}:{port}"));
        }
        let scheme = match spec.proto {
            Proto::Http => Some("http"),
            Proto::Https => Some("https"),
            Proto::Tcp | Proto::Tls => None,
        };
        let host = spec.host.as_deref().filter(|host| !host.is_empty());
        let subdomain = spec.subdomain.as_deref().filter(|label| !label.is_empty());
        match (scheme, host, subdomain) {
            (Some(scheme), Some(host), _) => {
                Some(format!("{scheme}://{}", checked_host(host).ok()?))
            }
            (Some(scheme), None, Some(label)) => Some(format!(
                "the {scheme} address of the subdomain {:?}",
                label.to_ascii_lowercase()
            )),
            // Endpoints with a name and without a shared port get a free port each.
            _ => spec.own_port().filter(|port| *port != 0).map(|port| format!("port {port}")),
        }
    }
}

/// Takes the name of an address, if it is free.
fn claim_name(
    names: &Hosts,
    address: EndpointAddress,
    routes: &EndpointRoutes,
) -> Result<EndpointAddress, BindError> {
    let claims =
        |(host, port): &(String, u16)| names.add_claim(host, *port, &routes.virtual_host, true);
    match address.name.as_ref().is_some_and(claims) {
        true => Ok(address),
        false => Err(BindError::Taken(address.url)),
    }
}

/// A host name in lower case; a leading `*.` is allowed, but not for names that only policies lead to, which
/// would be everybody's.
fn checked_host(host: &str) -> Result<String, BindError> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    if labels.len() < name.len() && is_internal(&name) {
        let problem = format!("{host:?}: internal endpoints have no wildcards");
        return Err(BindError::Invalid { field: "host", problem });
    }
    if name.len() <= 253 && labels.split('.').all(is_label) {
        return Ok(name);
    }
    match name.chars().find(|one| !one.is_ascii_alphanumeric() && !"-_.*".contains(*one)) {
        Some(character) => Err(BindError::HostCharacter { host: host.to_owned(), character }),
        None => Err(BindError::Invalid {
            field: "host",
            problem: format!("{host:?} is not a host name"),
        }),
    }
}

fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn random_name(origin: &Origin) -> Result<String, BindError> {
    let mut bytes = [0; RANDOM_NAME_LENGTH];
    origin
        .fill_random(&mut bytes)
        .map_err(|problem| BindError::Invalid { field: "host", problem: problem.to_string() })?;
    Ok(bytes.iter().map(|byte| char::from(RANDOM_NAME_LETTERS[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ginnel_api::EndpointOptions;
    use ginnel_api::remote::edges::modules::TrafficPolicyDocument;

    use super::*;
    use crate::GatewaySettings;
    use crate::metrics::ENDPOINT;
    use crate::tls::authority::LocalAuthority;

    #[tokio::test]
    async fn only_an_endpoint_that_compiles_has_a_series_of_metrics() {
        let settings = GatewaySettings { metrics: true, ..GatewaySettings::default() };
        let gateway = Gateway::start(settings, LocalAuthority::open(None).unwrap()).await.unwrap();
        let bind = async |action: &str| {
            let value =
                format!(r#"{{"on_http_request": [{{"actions": [{{"type": "{action}"}}]}}]}}"#);
            let traffic_policy = Some(TrafficPolicyDocument { enabled: None, value: Some(value) });
            let options = EndpointOptions { traffic_policy, ..EndpointOptions::default() };
            let bound =
                gateway.bind_offline(EndpointSpec { options, ..EndpointSpec::any(Proto::Http) });
            let is_bound = bound.await.is_ok();
            (is_bound, gateway.metrics().unwrap().has_edge(ENDPOINT))
        };

        assert_eq!(bind("nothing-of-the-kind").await, (false, false));
        assert_eq!(bind("deny").await, (true, true));
    }
}
