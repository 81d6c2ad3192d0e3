//! How many file descriptors the process may have, and what they are for.

use ginnel_base::logging::ignore;
#[cfg(unix)]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors that is assumed if the system has no limit, and the largest number that is assumed at all.
const MAX_DESCRIPTORS: usize = 1 << 20;
/// What some systems allow at most, although they say that there is no limit.
#[cfg(unix)]
const OPEN_MAX: u64 = 10_240;

/// Descriptors of the service that are for no connection of its clients, at least.
const MIN_OWN_DESCRIPTORS: usize = 32;
/// The most connections that a part of the program takes by default.
const MAX_VISITORS: usize = 16_384;
const MAX_CLIENTS: usize = 4096;
/// How many connections of visitors an address may hold by default, where there is room.
const VISITORS_PER_ADDRESS: std::ops::RangeInclusive<usize> = 500..=1024;

/// How many file descriptors a process may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit(pub usize);

impl DescriptorLimit {
    /// The limit of this process as it is now.
    pub fn read_current() -> Self {
        #[cfg(unix)]
        let soft = getrlimit(Resource::Nofile).current;
        #[cfg(not(unix))]
        let soft: Option<u64> = None;
        let soft = soft.and_then(|soft| usize::try_from(soft).ok());
        Self(soft.map_or(MAX_DESCRIPTORS, |soft| soft.min(MAX_DESCRIPTORS)))
    }

    /// Raises the limit of this process as far as the system allows; only for programs of our own,
    /// since children inherit it.
    pub fn raise_to_maximum() -> Self {
        #[cfg(unix)]
        {
            let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
            let allowed = maximum.map_or(OPEN_MAX, |most| most.min(OPEN_MAX));
            // No limit is more than any.
            let is_more =
                |soft: &Option<u64>| soft.unwrap_or(u64::MAX) > current.unwrap_or(u64::MAX);
            let raised = [maximum, Some(allowed)]
                .into_iter()
                .filter(is_more)
                .any(|soft| setrlimit(Resource::Nofile, Rlimit { current: soft, maximum }).is_ok());
            ignore(raised, "where it cannot be raised, it stays as it is, and is planned with");
        }
        Self::read_current()
    }

    /// How many connections the management API takes by default.
    pub fn management_connections(self) -> usize {
        (self.0 / 8).clamp(8, MAX_CLIENTS)
    }

    /// How many agents are taken by default.
    pub fn agent_connections(self) -> usize {
        (self.0 / 8).clamp(8, MAX_CLIENTS)
    }

    /// How many connections the local API of an agent takes by default.
    pub fn agent_api_connections(self) -> usize {
        (self.0 / 8).clamp(8, MAX_CLIENTS)
    }

    /// How many connections of visitors are taken by default: what is left.
    pub fn visitor_connections(self) -> usize {
        let own = MIN_OWN_DESCRIPTORS + self.0 / 32;
        let others = own + self.management_connections() + self.agent_connections();
        self.0.saturating_sub(others).clamp(8, MAX_VISITORS)
    }
}

/// How many of a total one address may hold by default: others find a quarter.
pub fn share_per_address(total: usize) -> usize {
    (total - total / 4).max(1)
}

/// How many connections of visitors one address may hold by default.
pub fn visitors_per_address(total: usize) -> usize {
    let (least, most) = VISITORS_PER_ADDRESS.into_inner();
    (total / 4).clamp(least, most).min(share_per_address(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_room_and_all_fit() {
        for descriptors in [256, 1024, 4096, 20_000, 1 << 20] {
            let limit = DescriptorLimit(descriptors);
            let all = limit.visitor_connections()
                + limit.management_connections()
                + limit.agent_connections();

            assert!(all + MIN_OWN_DESCRIPTORS <= descriptors, "{descriptors}: {all}");
        }
    }

    #[test]
    fn an_address_may_hold_five_hundred_visitors_and_leaves_a_quarter() {
        for (descriptors, expected) in [(1024, 500), (4096, 728), (20_000, 1024)] {
            let visitors = DescriptorLimit(descriptors).visitor_connections();
            let held = visitors_per_address(visitors);

            assert_eq!(held, expected, "{descriptors}");
            assert!(held <= visitors - visitors / 4);
        }
    }
}
