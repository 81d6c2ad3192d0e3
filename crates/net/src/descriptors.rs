//! How many file descriptors the process may have, and what they are for.

/// What is taken where the system names no limit, and the most that is planned with.
use ginnel_base::logging::ignore;

const MAX_DESCRIPTORS: usize = 1 << 20;
/// What some systems allow at most, although they say that there is no limit.
#[cfg(unix)]
const OPEN_MAX: libc::rlim_t = 10_240;

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
    pub fn now() -> Self {
        #[cfg(unix)]
        let soft = limits().map_or(libc::RLIM_INFINITY, |limits| limits.rlim_cur);
        #[cfg(not(unix))]
        let soft = u64::MAX;
        Self(usize::try_from(soft).unwrap_or(usize::MAX).min(MAX_DESCRIPTORS))
    }

    /// Raises the limit of this process as far as the system allows; only for programs of our own,
    /// since children inherit it.
    pub fn raise() -> Self {
        #[cfg(unix)]
        if let Some(limits) = limits() {
            let more = [limits.rlim_max, limits.rlim_max.min(OPEN_MAX)];
            let raised = more.into_iter().filter(|it| *it > limits.rlim_cur).any(set_soft);
            ignore(raised, "where it cannot be raised, it stays as it is, and is planned with");
        }
        Self::now()
    }

    /// How many connections the management API takes by default.
    pub fn management(self) -> usize {
        (self.0 / 8).clamp(8, MAX_CLIENTS)
    }

    /// How many agents are taken by default.
    pub fn agents(self) -> usize {
        (self.0 / 8).clamp(8, MAX_CLIENTS)
    }

    /// How many connections the local API of an agent takes by default.
    pub fn local_api(self) -> usize {
        (self.0 / 8).clamp(8, MAX_CLIENTS)
    }

    /// How many connections of visitors are taken by default: what is left.
    pub fn visitors(self) -> usize {
        let own = MIN_OWN_DESCRIPTORS + self.0 / 32;
        let others = own + self.management() + self.agents();
        self.0.saturating_sub(others).clamp(8, MAX_VISITORS)
    }
}

/// How many of a total one address may hold by default: others find a quarter.
pub fn share_of_one_address(total: usize) -> usize {
    (total - total / 4).max(1)
}

/// How many connections of visitors one address may hold by default.
pub fn visitors_per_address(total: usize) -> usize {
    let (least, most) = VISITORS_PER_ADDRESS.into_inner();
    (total / 4).clamp(least, most).min(share_of_one_address(total))
}

#[cfg(unix)]
fn limits() -> Option<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to the struct that it is given, and to nothing else.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    (done == 0).then_some(limits)
}

#[cfg(unix)]
fn set_soft(soft: libc::rlim_t) -> bool {
    let Some(limits) = limits() else { return false };
    let limits = libc::rlimit { rlim_cur: soft, ..limits };
    // SAFETY: setrlimit reads the struct that it is given, and nothing else.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_room_and_all_fit() {
        for descriptors in [256, 1024, 4096, 20_000, 1 << 20] {
            let limit = DescriptorLimit(descriptors);
            let all = limit.visitors() + limit.management() + limit.agents();

            assert!(all + MIN_OWN_DESCRIPTORS <= descriptors, "{descriptors}: {all}");
        }
    }

    #[test]
    fn an_address_may_hold_five_hundred_visitors_and_leaves_a_quarter() {
        for (descriptors, expected) in [(1024, 500), (4096, 728), (20_000, 1024)] {
            let visitors = DescriptorLimit(descriptors).visitors();
            let held = visitors_per_address(visitors);

            assert_eq!(held, expected, "{descriptors}");
            assert!(held <= visitors - visitors / 4);
        }
    }
}
