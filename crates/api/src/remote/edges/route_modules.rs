//! The modules of a route: each can be replaced, read and deleted on its own.

use crate::remote::edges::modules::{module_resource, route_modules};

macro_rules! declare {
    ($({ $(#[doc = $doc:literal])+ $name:ident : $($rest:tt)+ })+) => {
        $(module_resource! {
            "edges.https.routes", "/edges/https/{edge_id}/routes/{id}", (edge_id, id), "a route";
            { $(#[doc = $doc])+ $name : $($rest)+ }
        })+

        /// Every module's resource.
        pub const MODULES: &[crate::Resource] = &[$($name::RESOURCE),+];
    };
}

route_modules!(declare);
