//! The two macros that write declarations. Logic stays in functions.

/// Declares types of the wire: the struct with its JSON form, and its [`Shape`](super::Shape).
///
/// A field that the specification lets a server leave out is an `Option`. Texts of a field are shown to others
/// than who may fetch the resource, as in events, where it says `#[public(text)]`, and nowhere else.
///
/// Fields that most resources have come from `item { … }` at the beginning of a type: identifier, address, time,
/// description and metadata.
macro_rules! wire {
    (
        $(#[doc = $doc:literal])+
        pub struct $Name:ident {
            item {
                prefix: $prefix:literal, noun: $noun:literal, created: $created:literal,
                description: $description:literal
            }
            $($fields:tt)*
        }
        $($others:tt)*
    ) => {
        $crate::macros::wire! {
            $(#[doc = $doc])+
            pub struct $Name {
                #[doc = concat!(" Unique identifier, `", $prefix, "_` and 27 characters.")]
                #[public(text)]
                pub id: String,
                #[doc = concat!(" The address of this ", $noun, ".")]
                #[public(text)]
                pub uri: String,
                #[doc = concat!(" ", $created)]
                pub created_at: Option<$crate::Timestamp>,
                #[doc = concat!(" ", $description, "; at most 255 bytes.")]
                #[public(text)]
                pub description: Option<$crate::Description>,
                /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
                #[public(text)]
                pub metadata: Option<$crate::Metadata>,
                $($fields)*
            }
            $($others)*
        }
    };
    ($(
        $(#[doc = $doc:expr])+
        pub struct $Name:ident {
            $(
                $(#[doc = $field_doc:expr])+
                $(#[public($public:ident)])?
                pub $field:ident : $type:ty,
            )*
        }
    )+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, ::serde::Serialize)]
        #[allow(non_snake_case)]
        pub struct $Name {
            $(
                $(#[doc = $field_doc])+
                #[serde(skip_serializing_if = "crate::Typed::is_left_out")]
                pub $field: $type,
            )*
        }

        impl $crate::record::WireObject for $Name {
            const NAME: &'static str = stringify!($Name);
            const FIELDS: &'static [&'static str] =
                &[$($crate::kind::wire_name(stringify!($field))),*];

            fn read_field<'de, A: ::serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                members: &mut A,
            ) -> Result<(), A::Error> {
                $(
                    if name == const { $crate::kind::wire_name(stringify!($field)) } {
                        self.$field = $crate::record::read_value(members)?;
                        return Ok(());
                    }
                )*
                members.next_value::<::serde::de::IgnoredAny>().map(drop)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $Name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::record::read_record(deserializer)
            }
        }

        impl $Name {
            /// The type as data.
            pub const SHAPE: $crate::Shape = $crate::Shape {
                name: stringify!($Name),
                file: file!(),
                doc: concat!($($doc, "\n"),+),
                fields: &[$($crate::Field {
                    name: $crate::kind::wire_name(stringify!($field)),
                    doc: concat!($($field_doc, "\n"),+),
                    kind: <$type as $crate::Typed>::KIND,
                    required: <$type as $crate::Typed>::REQUIRED,
                    is_public: $crate::macros::is_public!($($public)?),
                }),*],
            };
        }

        impl $crate::Typed for $Name {
            const KIND: $crate::Kind = $crate::Kind::Record(&Self::SHAPE);
        }
    )+};
}

/// Declares a resource, one line per operation: method, path, name, parameters, result.
///
/// The response of an operation that says `#[issues(secret)]` is the only place where a secret is shown.
/// Parameters in brackets may be left out. `-> [keys: ApiKey]` is a page of a list whose items are
/// in the field `keys`; no arrow means a response without a body. A name that is put together is
/// written as `in (concat!(…))`, and a path in parentheses as well.
macro_rules! resource {
    (
        $(#[doc = $doc:literal])+
        $resource:literal { $($operations:tt)+ }
    ) => {
        $crate::macros::resource! { $(#[doc = $doc])+ in $resource { $($operations)+ } }
    };
    (
        $(#[doc = $doc:expr])+
        in $resource:tt {$(
            $(#[doc = $op_doc:expr])+
            $(#[issues($issued:ident)])?
            $verb:ident $path:tt $Name:ident (
                $( $(#[doc = $req_doc:literal])* $req:ident : $req_type:ty ),* $(,)?
                $([ $( $(#[doc = $opt_doc:literal])* $opt:ident : $opt_type:ty ),* $(,)? ])?
            ) $(-> $output:tt)? ;
        )+}
    ) => {
        $(
            $(#[doc = $op_doc])+
            #[derive(Debug, Clone, Default, PartialEq, ::serde::Serialize)]
            #[allow(missing_docs)]
            pub struct $Name {
                $( $(#[doc = $req_doc])* pub $req: $req_type, )*
                $($(
                    $(#[doc = $opt_doc])*
                    #[serde(skip_serializing_if = "Option::is_none")]
                    pub $opt: Option<$opt_type>,
                )*)?
            }

            impl $crate::Operation for $Name {
                const INFO: $crate::Info = $crate::Info {
                    resource: $resource,
                    name: {
                        use $crate::operation::{snake_case, snake_case_length, text};
                        const NAME: [u8; snake_case_length(stringify!($Name))] =
                            snake_case(stringify!($Name));
                        text(&NAME)
                    },
                    doc: concat!($($op_doc, "\n"),+),
                    method: $crate::Verb::$verb,
                    path: $path,
                    parameters: &[
                        $( $crate::Field {
                            name: $crate::kind::wire_name(stringify!($req)),
                            doc: concat!($($req_doc, "\n",)*),
                            kind: <$req_type as $crate::Typed>::KIND,
                            required: true,
                            is_public: false,
                        }, )*
                        $($( $crate::Field {
                            name: $crate::kind::wire_name(stringify!($opt)),
                            doc: concat!($($opt_doc, "\n",)*),
                            kind: <$opt_type as $crate::Typed>::KIND,
                            required: false,
                            is_public: false,
                        }, )*)?
                    ],
                    output: $crate::macros::resource!(@output $($output)?),
                    issues_secret: $crate::macros::issues_secret!($($issued)?),
                };

                #[allow(unused_variables)]
                fn from_arguments(arguments: &mut $crate::CallArguments) -> ::serde_json::Result<Self> {
                    Ok(Self {
                        $( $req: arguments.take_parameter(stringify!($req))?, )*
                        $($( $opt: arguments.take_parameter(stringify!($opt))?, )*)?
                    })
                }

                type Output = $crate::macros::resource!(@type $($output)?);
            }

            $crate::macros::item_operation! { $Name($($req)*) [$($($opt)*)?] $($output)? }
        )+

        /// The resource as data.
        pub const RESOURCE: $crate::Resource = $crate::Resource {
            name: $resource,
            file: file!(),
            doc: concat!($($doc, "\n"),+),
            operations: &[$(&<$Name as $crate::Operation>::INFO),+],
        };
    };
    (@output) => { $crate::Output::Nothing };
    (@output [$field:ident : $item:ident]) => {
        $crate::Output::Page { field: stringify!($field), item: &$item::SHAPE }
    };
    (@output $output:ident) => { $crate::Output::One(&$output::SHAPE) };
    (@type) => { () };
    (@type [$field:ident : $item:ident]) => { $crate::Page<$item> };
    (@type $output:ident) => { $output };
}

/// Implements the traits of operations that are alike for every kind of item, for those whose parameters are alike.
macro_rules! item_operation {
    (List() [before_id limit] [$field:ident : $Item:ident]) => {
        impl $crate::ListItems for List {
            type Item = $Item;

            fn into_window(self) -> (Option<String>, Option<i64>) {
                (self.before_id, self.limit)
            }
        }
    };
    (Get(id) [] $Item:ident) => {
        impl $crate::GetItem for Get {
            fn into_id(self) -> String {
                self.id
            }
        }
    };
    (Delete(id) []) => {
        impl $crate::DeleteItem for Delete {
            type Item = <Get as $crate::Operation>::Output;

            fn into_id(self) -> String {
                self.id
            }
        }
    };
    ($($other:tt)*) => {};
}

/// What `#[public(…)]` says of a field.
macro_rules! is_public {
    () => {
        false
    };
    (text) => {
        true
    };
}

/// The value of `#[issues(…)]` before an operation.
macro_rules! issues_secret {
    () => {
        false
    };
    (secret) => {
        true
    };
}

pub(crate) use {is_public, issues_secret, item_operation, resource, wire};
