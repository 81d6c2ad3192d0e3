//! The functions that come with the engine, by name and number of arguments.

/// A name, and the fewest and the most arguments.
type Signature = (&'static str, usize, usize);

const GLOBALS: &[Signature] = &[
    ("bool", 1, 1),
    ("bytes", 1, 1),
    ("double", 1, 1),
    ("duration", 1, 1),
    ("dyn", 1, 1),
    ("int", 1, 1),
    ("size", 1, 1),
    ("string", 1, 1),
    ("strings.quote", 1, 1),
    ("timestamp", 1, 1),
    ("type", 1, 1),
    ("uint", 1, 1),
];

const METHODS: &[Signature] = &[
    ("charAt", 1, 1),
    ("contains", 1, 1),
    ("distinct", 0, 0),
    ("endsWith", 1, 1),
    ("flatten", 0, 1),
    ("format", 1, 1),
    ("getDate", 0, 1),
    ("getDayOfMonth", 0, 1),
    ("getDayOfWeek", 0, 1),
    ("getDayOfYear", 0, 1),
    ("getFullYear", 0, 1),
    ("getHours", 0, 1),
    ("getMilliseconds", 0, 1),
    ("getMinutes", 0, 1),
    ("getMonth", 0, 1),
    ("getSeconds", 0, 1),
    ("indexOf", 1, 2),
    ("lastIndexOf", 1, 2),
    ("lowerAscii", 0, 0),
    ("reverse", 0, 0),
    ("size", 0, 0),
    ("slice", 2, 2),
    ("sort", 0, 0),
    ("split", 0, 2),
    ("startsWith", 1, 1),
    ("substring", 1, 2),
    ("trim", 0, 0),
    ("upperAscii", 0, 0),
    // What `sortBy` becomes.
    ("@sortByAssociatedKeys", 1, 1),
];

pub(super) fn is_global(name: &str, arguments: usize) -> bool {
    has_signature(GLOBALS, name, arguments)
}

pub(super) fn is_member(name: &str, arguments: usize) -> bool {
    has_signature(METHODS, name, arguments)
}

fn has_signature(signatures: &[Signature], name: &str, arguments: usize) -> bool {
    signatures
        .iter()
        .any(|&(known, least, most)| known == name && (least..=most).contains(&arguments))
}

#[cfg(test)]
mod tests {
    use super::super::tests::result;
    use serde_json::json;

    #[test]
    fn texts_have_the_usual_methods() {
        assert_eq!(result("'ab,c'.split(',').map(x, x.upperAscii())"), json!(["AB", "C"]));
        assert_eq!(result("'ab c'.split()"), json!(["ab", "c"]));
        assert_eq!(result("'%s is %d'.format(['x', 3])"), json!("x is 3"));
        assert_eq!(result("'hello'.substring(1, 3).indexOf('l')"), json!(1));
        assert_eq!(result("strings.quote('a\"b')"), json!("\"a\\\"b\""));
    }

    #[test]
    fn lists_sort_by_a_key() {
        assert_eq!(result("['bb', 'a'].sortBy(x, size(x))"), json!(["a", "bb"]));
        assert_eq!(result("[3, 1, 3].distinct().sort()"), json!([1, 3]));
        assert_eq!(result("[[1], [2]].flatten().slice(0, 1)"), json!([1]));
    }

    #[test]
    fn times_have_parts_and_zones() {
        let source = "timestamp('2024-01-01T00:30:00Z').getHours('+02:00')";

        assert_eq!(result(source), json!(2));
        assert_eq!(result("string(duration('90s'))"), json!("90s"));
        assert_eq!(result("duration('1.234s').getMilliseconds()"), json!(234));
        assert_eq!(
            result("timestamp('2024-01-01T00:30:59.5Z').getMilliseconds('+02:00')"),
            json!(500)
        );
    }
}
