//! Chance, for those who must not all do something at once.

/// A number from 0 to 1.
pub fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        // Without a random number it is the middle.
        Err(_) => 0.5,
    }
}
