//! Holds: requests that wait until somebody lets them go, changes or refuses them.

use crate::local::match_fields::match_fields;
use crate::macros::{resource, wire};

macro_rules! declare {
    (shown { $($shown:tt)* } parameters { $($parameters:tt)* }) => {
        wire! {
            /// A rule that makes matching requests wait.
            pub struct Hold {
                /// What it is called.
                pub id: String,
                /// The path of this resource.
                pub uri: String,
                /// Whether it makes requests wait.
                pub enabled: bool,
                $($shown)*
                /// Milliseconds until a request that waits is let go.
                pub max_wait: i64,
                /// How many requests it has made wait.
                pub hits: i64,
            }
        }

        resource! {
            /// Holds: requests that wait until somebody lets them go, changes or refuses them.
            "holds" {
                /// List the holds.
                GET "/holds" List() -> [holds: Hold];
                /// Make matching requests of inspected tunnels wait, at most 100 at a time.
                POST "/holds" Add([
                    /// What to call it, 1 to 64 of `A-Za-z0-9_.-`; `hold-1` and so on by default.
                    id: String,
                    /// False to switch it off.
                    enabled: bool,
                    $($parameters)*
                    /// Milliseconds until a request that waits is let go, 1 to 600,000; 45,000 by default.
                    max_wait: i64,
                ]) -> Hold;
                /// Fetch one hold.
                GET "/holds/{id}" Get(
                    /// What the hold is called.
                    id: String
                ) -> Hold;
                /// Change a hold; what is left out keeps its value, and an empty text or object removes one.
                ///
                /// One that is switched off lets its requests go.
                PATCH "/holds/{id}" Update(
                    /// What the hold is called.
                    id: String,
                    [
                    /// False to switch it off.
                    enabled: bool,
                    $($parameters)*
                    /// Milliseconds until a request that waits is let go, 1 to 600,000; 45,000 by default.
                    max_wait: i64,
                ]) -> Hold;
                /// Remove a hold; its requests are let go.
                DELETE "/holds/{id}" Delete(
                    /// What the hold is called.
                    id: String
                );
                /// Remove all holds; all requests are let go.
                DELETE "/holds" Clear();
            }
        }
    };
}

match_fields!(declare);
