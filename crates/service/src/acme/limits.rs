//! How many orders are made at most, so that a mistake here does not use up what an authority allows.

use std::time::Duration;

use ginnel_base::SlidingWindow;

use crate::certificates::ManagedName;

/// How many orders are under way at once.
pub(super) const MAX_ORDERS_AT_ONCE: usize = 4;
/// How many orders are made within [`ORDER_WINDOW`]; Let's Encrypt takes 300.
const MAX_ORDERS: usize = 250;
/// The window of orders, in seconds.
const ORDER_WINDOW: u64 = 3 * 60 * 60;
/// How many names below one domain get their first certificate within [`NAME_WINDOW`]; Let's Encrypt
/// takes 50.
const MAX_NAMES_OF_DOMAIN: usize = 40;
/// The window of first certificates, in seconds.
const NAME_WINDOW: u64 = 7 * 24 * 60 * 60;

/// The orders of late.
#[derive(Default)]
pub(super) struct OrderBudget(SlidingWindow<Duration>);

impl OrderBudget {
    /// Takes one order from the budget, which so many nodes share.
    ///
    /// # Errors
    /// When there is none left, with the moment at which there is.
    pub fn try_take(&mut self, now: u64, nodes: usize) -> Result<(), u64> {
        let (max, window) = ((MAX_ORDERS / nodes).max(1), Duration::from_secs(ORDER_WINDOW));
        let taken = self.0.take(Duration::from_secs(now), max, window);
        taken.map_err(|free| free.as_secs())
    }
}

/// Whether a name may get its first certificate now.
///
/// # Errors
/// When its domain has had too many, with the moment at which it may.
pub(super) fn check_domain(all: &[ManagedName], name: &str, now: u64) -> Result<(), u64> {
    let domain = domain_of(name);
    let issued = all.iter().filter(|other| domain_of(&other.name) == domain);
    let mut issued: Vec<u64> = issued
        .filter_map(|other| other.first_issued_at)
        .filter(|first| first + NAME_WINDOW > now)
        .collect();
    issued.sort_unstable();
    match issued.len().checked_sub(MAX_NAMES_OF_DOMAIN).and_then(|over| issued.get(over)) {
        Some(first) => Err(first + NAME_WINDOW),
        None => Ok(()),
    }
}

/// The last two labels of a name: what people register, where the list of public suffixes is not asked.
fn domain_of(name: &str) -> &str {
    let start = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_back_after_the_window() {
        let mut budget = OrderBudget::default();
        for second in 0..MAX_ORDERS as u64 {
            assert_eq!(budget.try_take(second, 1), Ok(()));
        }

        assert_eq!(budget.try_take(1000, 1), Err(ORDER_WINDOW));
        assert_eq!(budget.try_take(ORDER_WINDOW, 1), Ok(()));
        assert_eq!(budget.try_take(ORDER_WINDOW, 1), Err(ORDER_WINDOW + 1));
    }

    #[test]
    fn nodes_share_the_orders() {
        let mut budget = OrderBudget::default();
        for second in 0..MAX_ORDERS as u64 / 5 {
            assert_eq!(budget.try_take(second, 5), Ok(()));
        }

        assert_eq!(budget.try_take(1000, 5), Err(ORDER_WINDOW));
        assert_eq!(budget.try_take(1000, 4), Ok(()));
    }

    #[test]
    fn a_domain_gets_so_many_names_a_week() {
        let issued = |number: usize| ManagedName {
            name: format!("n{number}.a.test"),
            first_issued_at: Some(1000 + number as u64),
            ..ManagedName::default()
        };
        let all: Vec<_> = (0..MAX_NAMES_OF_DOMAIN).map(issued).collect();

        assert_eq!(check_domain(&all, "x.a.test", 2000), Err(1000 + NAME_WINDOW));
        assert_eq!(check_domain(&all[1..], "x.a.test", 2000), Ok(()));
        assert_eq!(check_domain(&all, "x.b.test", 2000), Ok(()));
        assert_eq!(check_domain(&all, "x.a.test", 1000 + NAME_WINDOW), Ok(()));
    }

    #[test]
    fn a_domain_is_the_last_two_labels() {
        for (name, domain) in [("a.b.c.test", "c.test"), ("c.test", "c.test"), ("test", "test")] {
            assert_eq!(domain_of(name), domain);
        }
    }
}
