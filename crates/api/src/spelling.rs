//! The name that was probably meant.

/// How alike two names must be, from 0 to 1, for one to be suggested in place of the other.
const MIN_SIMILARITY: f64 = 0.8;

/// How much of the longer of two names must be unchanged, from 0 to 1, for one to be the other misspelt.
const MIN_UNCHANGED: f64 = 0.6;

/// The known name that is most like this one, if one is like it at all.
pub fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|known| (strsim::jaro_winkler(name, known), known));
    let best = rated.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY).map(|(_, known)| known)
}

/// The known name that a few slips of the keyboard made this one of, if there is one; other than
/// [`nearest_name`], it takes no name for another that begins in the same way.
pub fn correct_misspelling<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let rated =
        known.into_iter().map(|known| (strsim::normalized_damerau_levenshtein(name, known), known));
    let best = rated.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(similarity, _)| *similarity >= MIN_UNCHANGED).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_finds_the_name_and_another_word_does_not() {
        let known = ["host", "http_port", "https_port", "rate_limit"];

        assert_eq!(nearest_name("htp_port", known), Some("http_port"));
        assert_eq!(nearest_name("rate-limit", known), Some("rate_limit"));
        assert_eq!(nearest_name("colour", known), None);
        assert_eq!(nearest_name("host", []), None);
        assert_eq!(correct_misspelling("ulr", ["upstream", "url"]), Some("url"));
        assert_eq!(correct_misspelling("upstream_verify", ["upstream", "url"]), None);
    }
}
