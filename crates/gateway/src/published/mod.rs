//! What issuers publish, and how often they are called: fetched once for all who need it, kept for a while,
//! and bounded for each of those who make the gateway fetch.

mod cache;
mod call_limits;
mod fair_cache;
mod fetch;
mod key_sets;

pub use self::cache::PublishedCache;
pub use self::call_limits::{CallLimit, CallLimits, TooManyCalls};
pub use self::fair_cache::FairCache;
pub use self::fetch::Fetcher;
pub use self::key_sets::{KeySetError, KeySets};
