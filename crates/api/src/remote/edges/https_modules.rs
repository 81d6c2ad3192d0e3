//! The modules of an HTTPS edge: each can be replaced, read and deleted on its own.

use crate::remote::edges::modules::{https_modules, module_resource};

macro_rules! declare {
    ($({ $(#[doc = $doc:literal])+ $name:ident : $($rest:tt)+ })+) => {
        $(module_resource! {
            "edges.https", "/edges/https/{id}", (id), "an HTTPS edge";
            { $(#[doc = $doc])+ $name : $($rest)+ }
        })+

        /// Every module's resource.
        pub const MODULES: &[crate::Resource] = &[$($name::RESOURCE),+];
    };
}

https_modules!(declare);
