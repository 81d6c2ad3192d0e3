//! The modules of a TLS edge: each can be replaced, read and deleted on its own.

use crate::remote::edges::modules::{module_resource, tls_modules};

macro_rules! declare {
    ($({ $(#[doc = $doc:literal])+ $name:ident : $($rest:tt)+ })+) => {
        $(module_resource! {
            "edges.tls", "/edges/tls/{id}", (id), "a TLS edge";
            { $(#[doc = $doc])+ $name : $($rest)+ }
        })+

        /// Every module's resource.
        pub const MODULES: &[crate::Resource] = &[$($name::RESOURCE),+];
    };
}

tls_modules!(declare);
