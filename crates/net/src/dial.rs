//! Outgoing connections: every connection of this process is opened here, or is permitted here first.
//!
//! [`DialRole`] is the table of purposes, with what each may reach. The drivers of the clients wait in their own
//! ways, and libraries such as reqwest and tokio-postgres connect by themselves; they ask [`permit_address`] about each
//! address after the name was resolved.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpStream;

use ginnel_base::address::HostPort;

use super::private;
use super::reach::{OutOfReach, Reach};
use super::resolve::resolve_host;

/// True while tests forbid connections to other machines.
static LOOPBACK_ONLY: AtomicBool = AtomicBool::new(false);

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DialRole {
    /// A call of a client to one of the APIs.
    ApiClient,
    /// A session of an agent with its service.
    AgentSession,
    /// A request of a visitor to the local service of a tunnel.
    LocalService,
    /// A request of a visitor to a static backend.
    StaticBackend,
    /// A request of a traffic policy, such as `http-request`, and the keys of an issuer.
    Policy,
    /// A request of a login to its issuer.
    Login,
    /// The delivery of an event to its destination.
    EventDelivery,
    /// A request to an ACME directory.
    Acme,
    /// A session with another node.
    Node,
    /// A connection to the database.
    Database,
    /// A file that a command was given as a URL.
    CommandFile,
}

/// The limits of the connections of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DialRule {
    /// If true, the connection may lead to the agent API and the management API of this process.
    may_reach_own_apis: bool,
}

impl DialRole {
    /// The table of roles. A role may reach the APIs of this process only if its target comes from the operator or from
    /// the code, and never from a caller, a visitor or a response.
    const fn rule(self) -> DialRule {
        let may_reach_own_apis = match self {
            Self::ApiClient | Self::AgentSession | Self::Node | Self::Database => true,
            Self::LocalService
            | Self::StaticBackend
            | Self::Policy
            | Self::Login
            | Self::EventDelivery
            | Self::Acme
            | Self::CommandFile => false,
        };
        DialRule { may_reach_own_apis }
    }
}

/// Reasons why an address may not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialRefusal {
    /// Only this machine is allowed.
    #[error("{0} is not this machine, and only this machine is allowed")]
    OtherMachine(IpAddr),
    /// The address is one of the APIs of this process.
    #[error("{0} is the agent's or the service's own API")]
    OwnApi(SocketAddr),
    /// The address is in a range that the settings exclude.
    #[error(transparent)]
    OutOfReach(#[from] OutOfReach),
}

impl From<DialRefusal> for io::Error {
    fn from(refusal: DialRefusal) -> Self {
        let kind = match refusal {
            DialRefusal::OtherMachine(_) => io::ErrorKind::NetworkUnreachable,
            DialRefusal::OwnApi(_) | DialRefusal::OutOfReach(_) => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, refusal)
    }
}

/// Forbids connections to other machines in this process, or allows them again. Returns the setting before.
pub fn loopback_only(forbid: bool) -> bool {
    LOOPBACK_ONLY.swap(forbid, Ordering::Relaxed)
}

/// Returns true while [`loopback_only`] forbids connections to other machines.
pub fn is_loopback_only() -> bool {
    LOOPBACK_ONLY.load(Ordering::Relaxed)
}

/// Permits an address that a connection of this role is about to be opened to.
///
/// # Errors
/// If the role may not reach the address.
pub fn permit_address(
    role: DialRole,
    reach: Reach,
    address: SocketAddr,
) -> Result<(), DialRefusal> {
    permit_while(is_loopback_only(), role, reach, address)
}

fn permit_while(
    is_loopback_only: bool,
    role: DialRole,
    reach: Reach,
    address: SocketAddr,
) -> Result<(), DialRefusal> {
    permit_ip_while(is_loopback_only, reach, address.ip())?;
    if !role.rule().may_reach_own_apis && private::is_private(address) {
        return Err(DialRefusal::OwnApi(address));
    }
    Ok(())
}

/// Permits an IP address if its port is not known yet, as within the resolver of a library.
///
/// # Errors
/// If no connection may lead to the address.
#[cfg(feature = "server")]
pub fn permit_ip(reach: Reach, address: IpAddr) -> Result<(), DialRefusal> {
    permit_ip_while(is_loopback_only(), reach, address)
}

fn permit_ip_while(
    is_loopback_only: bool,
    reach: Reach,
    address: IpAddr,
) -> Result<(), DialRefusal> {
    if is_loopback_only && !address.to_canonical().is_loopback() {
        return Err(DialRefusal::OtherMachine(address));
    }
    Ok(reach.check_address(address)?)
}

/// Connects to the first address of a host that accepts.
///
/// # Errors
/// If none accepts, or the role may not reach one of them.
pub async fn dial_host(role: DialRole, place: &HostPort) -> io::Result<TcpStream> {
    dial_any(role, &resolve_host(place).await?).await
}

/// Connects to the first of these addresses that accepts.
///
/// # Errors
/// If none accepts, or the role may not reach one of them.
pub async fn dial_any(role: DialRole, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        permit_address(role, Reach::Any, *address)?;
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) if is_reset_at_once(&error) => return Err(error),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Returns true if a target accepted a connection and reset it before it was known to be open. The target has answered
/// with that, so no other address is tried.
pub fn is_reset_at_once(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

/// Connects to an address.
///
/// # Errors
/// If the role may not reach the address, or it does not accept.
pub async fn dial_address(role: DialRole, address: SocketAddr) -> io::Result<TcpStream> {
    dial_any(role, &[address]).await
}

/// Permits the addresses of a host that a library is about to connect to by itself.
///
/// # Errors
/// If the host cannot be resolved, or the role may not reach one of its addresses.
pub async fn permit_host(role: DialRole, place: &HostPort) -> io::Result<()> {
    for address in resolve_host(place).await? {
        permit_address(role, Reach::Any, address)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::PrivateListener;

    const ROLES: [DialRole; 11] = [
        DialRole::ApiClient,
        DialRole::AgentSession,
        DialRole::LocalService,
        DialRole::StaticBackend,
        DialRole::Policy,
        DialRole::Login,
        DialRole::EventDelivery,
        DialRole::Acme,
        DialRole::Node,
        DialRole::Database,
        DialRole::CommandFile,
    ];

    /// Fails to compile if a role is missing, which then belongs into `ROLES` and `test_loopback_only.py`.
    const fn place(role: DialRole) -> usize {
        match role {
            DialRole::ApiClient => 0,
            DialRole::AgentSession => 1,
            DialRole::LocalService => 2,
            DialRole::StaticBackend => 3,
            DialRole::Policy => 4,
            DialRole::Login => 5,
            DialRole::EventDelivery => 6,
            DialRole::Acme => 7,
            DialRole::Node => 8,
            DialRole::Database => 9,
            DialRole::CommandFile => 10,
        }
    }

    #[test]
    fn every_role_is_tested() {
        assert!(ROLES.into_iter().map(place).eq(0..ROLES.len()));
    }

    #[test]
    fn no_role_reaches_another_machine_while_only_this_one_is_allowed() {
        let here: SocketAddr = "[::ffff:127.0.0.1]:80".parse().unwrap();
        for role in ROLES {
            for address in ["192.0.2.9:80", "[2001:db8::9]:80", "[::ffff:192.0.2.9]:80"] {
                let address: SocketAddr = address.parse().unwrap();
                let refused = permit_while(true, role, Reach::Any, address).unwrap_err();

                assert_eq!(refused, DialRefusal::OtherMachine(address.ip()), "{role:?}");
                permit_while(false, role, Reach::Any, address).unwrap();
            }
            permit_while(true, role, Reach::Any, here).unwrap();
        }
    }

    #[test]
    fn roles_whose_target_others_choose_do_not_reach_own_apis() {
        // No other test has a listener at an address that is kept for documentation.
        let address: SocketAddr = "192.0.2.7:4040".parse().unwrap();
        let _private = PrivateListener::new(address);

        let allowed =
            ROLES.into_iter().filter(|role| permit_address(*role, Reach::Any, address).is_ok());

        let expected =
            [DialRole::ApiClient, DialRole::AgentSession, DialRole::Node, DialRole::Database];
        assert_eq!(allowed.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_role_reaches_private_ranges_that_are_excluded() {
        let address: SocketAddr = "10.0.0.1:80".parse().unwrap();
        for role in ROLES {
            let refused = permit_address(role, Reach::Public, address).unwrap_err();

            assert_eq!(refused, DialRefusal::OutOfReach(OutOfReach(address.ip())));
            permit_address(role, Reach::Any, address).unwrap();
        }
    }
}
