//! The fields by which mocks and holds say which requests they are for: declared here alone.

/// Hands these fields to a macro, as types of the wire show them and as operations take them.
#[macro_export]
macro_rules! match_fields {
    ($then:ident) => {
        $then! {
            shown {
                /// Only requests of this tunnel; absent for any.
                pub tunnel_name: $crate::Note,
                /// Only requests with this method; absent for any.
                pub method: $crate::Note,
                /// Only requests for this host; absent for any.
                pub host: $crate::Note,
                /// Only requests for this path, or path and query; absent for any.
                pub path: $crate::Note,
                /// Only requests with these parameters: names with values, in which `*` matches anything.
                pub match_query: std::collections::BTreeMap<String, String>,
                /// Only requests with these headers: names with values, in which `*` stands for anything.
                pub match_headers: std::collections::BTreeMap<String, String>,
            }
            parameters {
                /// Only requests of this tunnel.
                tunnel_name: String,
                /// Only requests with this method, in any case.
                method: String,
                /// Only requests for this host, as visitors name it; `*` stands for anything.
                host: String,
                /// Only requests for this path, or path and query if there is a `?` in it; `*` stands for
                /// anything. Percent-encoded characters are decoded, and parameters may come in any order.
                path: String,
                /// Only requests with these parameters in the query, in any order: names with values, in which `*`
                /// matches anything. Other parameters do not matter.
                match_query: std::collections::BTreeMap<String, String>,
                /// Only requests with these headers: names with values, in which `*` stands for anything.
                match_headers: std::collections::BTreeMap<String, String>,
            }
        }
    };
}

pub use match_fields;

/// Declares the names of the fields, for whoever shows them.
#[cfg(test)]
macro_rules! declare_names {
    (shown { $($shown:tt)* } parameters { $( $(#[doc = $doc:literal])+ $name:ident : $type:ty, )* }) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

#[cfg(test)]
match_fields!(declare_names);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_page_and_the_guide_have_every_field() {
        let form = include_str!("../../../agent/src/page/assets/forms.js");
        let guide = include_str!("../../../../docs/guides/mocks.md");
        let (_, matching) = form.split_once("function matching(").unwrap();
        let (matching, _) = matching.split_once("\nasync function").unwrap();
        for name in NAMES {
            assert!(matching.contains(name), "forms.js: {name}");
            assert!(guide.contains(&format!("\n| `{name}` |")), "mocks.md: {name}");
        }
    }
}
