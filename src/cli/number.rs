//! Options that are whole numbers.

use std::ops::RangeInclusive;

/// Reads a whole number in a range; the error names the range.
pub(super) fn whole_number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            format!("'{text}' is not a whole number from {} to {}", range.start(), range.end())
        })
    }
}
