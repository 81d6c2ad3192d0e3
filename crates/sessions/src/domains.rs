//! Whose host names and ports are: a reserved domain or address belongs to its owner's edges and agents.

use ginnel_api::remote::reserved_addrs::ReservedAddr;
use ginnel_api::remote::reserved_domains::ReservedDomain;

use ginnel_settings::settings;

use super::store::{StoreResult, View};

/// Where reserved domains are unique.
pub const DOMAINS: &str = "domain";
/// The role of a reserved domain for the edges that use it.
pub const DOMAIN: &str = "domain";
/// The role of a user or bot user for the edges whose host names it chose.
pub const HOSTPORTS_OWNER: &str = "hostports_owner";

/// Where the ports of reserved addresses are unique.
pub const PORTS: &str = "tcp_port";
/// The role of a reserved address for the edges that use it.
pub const ADDRESS: &str = "reserved_addr";

settings! {
    /// Rules for the host names of edges and tunnels.
    #[derive(Debug, Clone, Copy)]
    pub struct DomainSettings {
    }

    /// The settings of host names.
    rows {
        reserved_only: bool = false,
            "reserved_domains_only", "BOOL",
            "Let edges and tunnels use only domains that their owner has reserved",
            with_keyword();
    }
}

/// Why a host name may not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainDenial {
    /// It belongs to somebody else.
    Foreign,
    /// Nobody has reserved it, and only reserved domains may be used.
    Unreserved,
}

/// Whose names a host may have.
#[derive(Debug, Clone)]
pub struct DomainClaim<'a> {
    /// The user or bot user.
    pub owner_id: &'a str,
    /// True when only reserved domains may be used.
    pub only_reserved: bool,
}

impl DomainClaim<'_> {
    /// Whether a host name may be used; gives the domain that it belongs to, if there is one.
    pub fn check_host(
        &self,
        view: &View<'_>,
        host: &str,
    ) -> StoreResult<Result<Option<String>, DomainDenial>> {
        Ok(match reservation_of(view, host)? {
            Some(domain) if domain.owner_id.as_deref() == Some(self.owner_id) => {
                Ok(Some(domain.id))
            }
            Some(_) => Err(DomainDenial::Foreign),
            None if self.only_reserved => Err(DomainDenial::Unreserved),
            None => Ok(None),
        })
    }
}

/// The reserved domain that a host name belongs to: the name itself, else the longest wildcard.
pub fn reservation_of(view: &View<'_>, host: &str) -> StoreResult<Option<ReservedDomain>> {
    let host = host.to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let mut candidates = vec![host.clone()];
    let parents = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
    let name = (name.len() < host.len()).then_some(name);
    candidates.extend(name.into_iter().chain(parents).map(|parent| format!("*.{parent}")));
    for candidate in candidates {
        if let Some(id) = view.claimant(DOMAINS, &candidate)? {
            return view.find_document(&id);
        }
    }
    Ok(None)
}

/// The reserved address with a port, if there is one.
pub fn address_at(view: &View<'_>, port: u16) -> StoreResult<Option<ReservedAddr>> {
    match view.claimant(PORTS, &port.to_string())? {
        Some(id) => view.find_document(&id),
        None => Ok(None),
    }
}

/// Whether a port is reserved by somebody else.
pub fn is_foreign_port(view: &View<'_>, port: u16, owner_id: &str) -> StoreResult<bool> {
    let reserved = address_at(view, port)?;
    Ok(reserved.is_some_and(|address| address.owner_id.as_deref() != Some(owner_id)))
}
