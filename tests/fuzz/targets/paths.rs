//! Paths as rules and routes look at them.

use percent_encoding::percent_decode_str;

use crate::policy::path::{
    Ambiguity, PathReadings, ambiguity, is_plain, normalized, readings, resolved, rooted,
};

/// A path has one form, which means what the path means; what is resolved is ambiguous no more.
pub fn target(data: &[u8]) {
    let Ok(path) = std::str::from_utf8(data) else { return };
    let form = normalized(path);
    assert_eq!(normalized(&form), form, "the form has another form");
    assert_eq!(ambiguity(&form), ambiguity(path), "{form}");
    assert_eq!(without_repeated_slashes(&form), without_repeated_slashes(path), "{form}");
    assert!(!is_plain(path) || form == path && ambiguity(path).is_none());
    assert!(!is_plain(path) || !path.starts_with('/') || PathReadings::of(path).0.is_empty());
    for reading in readings(path) {
        assert!(reading.starts_with('/') || !path.starts_with('/'), "{reading}");
        assert_eq!(normalized(&reading), reading, "a reading is not in its one form");
    }
    if let Some(rooted) = rooted(path) {
        assert_eq!(normalized(&rooted), form);
        assert!(!rooted.starts_with("//"));
    }
    assert_resolved(path);
}

fn assert_resolved(path: &str) {
    match (resolved(path), ambiguity(path)) {
        (Ok(resolved_path), _) => {
            assert!(is_plain(&resolved_path) || !resolved_path.contains("/./"), "{resolved_path}");
            assert_eq!(ambiguity(&resolved_path), None, "{resolved_path}");
            assert_eq!(resolved(&resolved_path).as_deref(), Ok(resolved_path.as_str()));
        }
        (Err(reason), known) => {
            let is_hidden = matches!(reason, Ambiguity::DotSegment | Ambiguity::EmptySegment);
            assert!(known == Some(reason) || is_hidden && known.is_some(), "{known:?}");
        }
    }
}

/// The octets of a path, in which escaped slashes stay apart from others.
fn without_repeated_slashes(path: &str) -> Vec<Vec<u8>> {
    let segments = path.split('/').map(|segment| percent_decode_str(segment).collect());
    let mut segments: Vec<Vec<u8>> = segments.collect();
    let last = segments.len() - 1;
    let mut at = 0;
    segments.retain(|segment| {
        at += 1;
        !segment.is_empty() || at == 1 || at == last + 1
    });
    segments
}
