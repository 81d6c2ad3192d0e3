//! What goes over the wire: types, operations, errors, identifiers. No I/O.
//!
//! Each operation is written down once, with `resource!`, in the file of its resource. The line
//! becomes a request struct that implements [`Operation`], and an entry in the table that
//! [`remote::operations`] and [`local::operations`] walk. From the table come the Python methods, the routes of the service
//! and the tests that hold the three together.

#[cfg(feature = "service")]
pub mod decode;
pub mod documentation;
mod error;
#[cfg(feature = "service")]
mod handler;
pub mod id;
pub(crate) mod json;
#[cfg(feature = "service")]
mod json_tree;
pub(crate) mod kind;
pub mod local;
pub(crate) mod macros;
pub mod mask;
pub mod openapi;
pub(crate) mod operation;
mod origin;
#[cfg(feature = "service")]
pub mod policy_document;
pub mod remote;
pub mod secrets;
#[cfg(feature = "service")]
pub mod spelling;
#[cfg(feature = "service")]
pub mod yaml;
#[cfg(feature = "service")]
pub mod yaml_tree;

pub use error::ErrorBody;
#[cfg(feature = "service")]
pub use handler::{
    HandlerError, HandlerFuture, OperationHandler, PathOperations, error_response, json_response,
    on, success_response,
};
pub use kind::{
    Base64, Description, Field, Flag, Kind, Metadata, Note, Number, Secret, Shape, Text,
    TextOrNumber, Timestamp, Trailers, Typed,
};
#[cfg(feature = "python")]
pub(crate) use operation::append_query;
pub(crate) use operation::encode_component;
pub use operation::{
    Call, Info, Malformed, Operation, Output, Page, ParameterLocation, Resource, Verb, encode,
    encode_arguments,
};
pub use origin::Origin;
