//! The mark that stands where something was masked.

/// What stands instead of a secret; as long for every secret.
pub const MASK: &str = "••••••";
