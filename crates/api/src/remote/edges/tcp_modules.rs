//! The modules of a TCP edge: each can be replaced, read and deleted on its own.

use crate::remote::edges::modules::{module_resource, tcp_modules};

macro_rules! declare {
    ($({ $(#[doc = $doc:literal])+ $name:ident : $($rest:tt)+ })+) => {
        $(module_resource! {
            "edges.tcp", "/edges/tcp/{id}", (id), "a TCP edge";
            { $(#[doc = $doc])+ $name : $($rest)+ }
        })+

        /// Every module's resource.
        pub const MODULES: &[crate::Resource] = &[$($name::RESOURCE),+];
    };
}

tcp_modules!(declare);
