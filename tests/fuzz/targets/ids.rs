//! Identifiers and tokens.

use ginnel_api::id::{Ids, has_prefix, prefix, split_token};

/// The largest identifier, behind which there is none.
const LAST: &str = "aWgEPTl1tmebfsQzFP4bxwgy80V";

/// Identifiers grow, whatever they continue after, and tokens are put together as they were taken
/// apart.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert_grows(text);
    if let Some((owner, secret)) = split_token(text) {
        assert_eq!(format!("{owner}_{secret}"), text);
        assert!(secret.as_bytes()[0].is_ascii_digit());
    }
    for known in [prefix::API_KEY, prefix::HTTPS_EDGE, prefix::HTTPS_ROUTE] {
        let is_known =
            text.split_once('_').is_some_and(|(kind, rest)| kind == known && !rest.is_empty());
        assert_eq!(has_prefix(text, known), is_known);
    }
}

fn assert_grows(text: &str) {
    let ids = Ids::default();
    let before = ids.next(prefix::API_KEY).unwrap();
    ids.continue_after(text);
    let next = ids.next(prefix::API_KEY).unwrap();
    assert!(has_prefix(&next, prefix::API_KEY) && next.len() == before.len());
    let rest = text.rsplit('_').next().unwrap_or_default();
    let is_number = rest.len() == LAST.len()
        && rest < LAST
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    assert!(before < next || rest == LAST, "{next} does not follow {before}");
    assert!(!is_number || format!("ak_{rest}") < next, "{next} does not follow {text}");
    let token = ids.new_token(&next).unwrap();
    assert_eq!(split_token(&token).map(|(owner, _)| owner), next.strip_prefix("ak_"));
}
