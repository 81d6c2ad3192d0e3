//! Paths as rules and routes look at them.

use percent_encoding::percent_decode_str;

use ginnel_policy::path::{Ambiguity, RequestPath, is_plain};

/// A path has one form, which means what the path means; what is resolved is ambiguous no more.
pub fn target(data: &[u8]) {
    let Ok(path) = std::str::from_utf8(data) else { return };
    let own = RequestPath::new(path);
    let (form, ambiguity) = (own.normal(), own.ambiguity());
    let again = RequestPath::new(form);
    assert_eq!(again.normal(), form, "the form has another form");
    assert_eq!(again.ambiguity(), ambiguity, "{form}");
    assert_eq!(without_repeated_slashes(form), without_repeated_slashes(path), "{form}");
    assert!(!is_plain(path) || form == path && ambiguity.is_none());
    assert!(!is_plain(path) || !path.starts_with('/') || own.other_readings().0.is_empty());
    for reading in own.readings() {
        assert!(reading.starts_with('/') || !path.starts_with('/'), "{reading}");
        assert_eq!(
            RequestPath::new(&reading).normal(),
            reading,
            "a reading is not in its one form"
        );
    }
    if let Some(rooted) = own.rooted() {
        assert_eq!(RequestPath::new(&rooted).normal(), form);
        assert!(!rooted.starts_with("//"));
    }
    assert_resolved(&own);
}

fn assert_resolved(path: &RequestPath<'_>) {
    match (path.resolve_path(), path.ambiguity()) {
        (Ok(resolved_path), _) => {
            assert!(is_plain(&resolved_path) || !resolved_path.contains("/./"), "{resolved_path}");
            let again = RequestPath::new(&resolved_path);
            assert_eq!(again.ambiguity(), None, "{resolved_path}");
            assert_eq!(again.resolve_path().as_deref(), Ok(resolved_path.as_str()));
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
