//! What HTTPS edges and TCP edges have in common.

/// Declares the type and the resource of edges of one kind with a table of modules.
macro_rules! edge_resource {
    (
        [
            $Edge:ident: $edge_doc:literal;
            $resource:literal, $path:literal, [$items:ident]: $resource_doc:literal;
            prefix: $prefix:literal, hostports: $hostports_doc:literal;
            $create:literal, $list:literal, $get:literal, $update:literal, $delete:literal;
            $($fields:tt)*
        ]
        $({
            $(#[doc = $module_doc:literal])+ $name:ident : $Module:ident from $Change:ident;
            $($words:literal),+;
            $required:tt $optional:tt
        })+
    ) => {
        $crate::macros::wire! {
            #[doc = $edge_doc]
            pub struct $Edge {
                item {
                    prefix: $prefix, noun: "edge", created: "When the edge was created.",
                    description: "Human-readable description of the edge"
                }
                #[doc = $hostports_doc]
                #[public(text)]
                pub hostports: Option<Vec<String>>,
                $( $(#[doc = $module_doc])+ pub $name: Option<$Module>, )+
                $($fields)*
            }
        }

        $crate::macros::resource! {
            #[doc = $resource_doc]
            $resource {
                #[doc = $create]
                POST $path Create([
                    description: Description,
                    metadata: Metadata,
                    hostports: Vec<String>,
                    $( $name: $Change, )+
                ]) -> $Edge;
                #[doc = $list]
                GET $path List([before_id: String, limit: i64]) -> [$items: $Edge];
                #[doc = $get]
                GET (concat!($path, "/{id}")) Get(id: String) -> $Edge;
                #[doc = $update]
                PATCH (concat!($path, "/{id}")) Update(id: String, [
                    description: Description,
                    metadata: Metadata,
                    hostports: Vec<String>,
                    $( $name: $Change, )+
                ]) -> $Edge;
                #[doc = $delete]
                DELETE (concat!($path, "/{id}")) Delete(id: String);
            }
        }
    };
}

pub(crate) use edge_resource;
