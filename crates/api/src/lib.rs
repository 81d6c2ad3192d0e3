//! Wire types, operations, errors and identifiers of the management API and of the agent API.
//!
//! Each operation is declared once, with `resource!`, in the file of its resource. The declaration becomes a request
//! struct that implements [`Operation`], and an entry in the table that [`remote::operations`] and
//! [`local::operations`] return. The Python methods, the routes of the service, the CLI commands, the OpenAPI
//! description and the tests are made from the table.
//!
//! # One request
//!
//! `remote.ip_policies.get(id)` in Python names an operation of `remote/ip_policies.rs`. [`encode_arguments`] makes a
//! [`Call`] of its arguments, which a client sends. The service reads the request with [`decode`] into the struct of the
//! same operation.
//!
//! # Invariants
//!
//! - This crate does no I/O.

pub mod decode;
pub mod documentation;
pub mod endpoint_options;
mod error;
mod handler;
pub mod id;
mod item;
pub mod json;
mod json_tree;
pub mod kind;
pub mod lenient_json;
pub mod local;
pub mod macros;
pub mod mask;
pub mod openapi;
pub mod operation;
mod origin;
pub mod policy_document;
pub mod record;
pub mod remote;
pub mod secrets;
pub mod spelling;
pub mod yaml;
pub mod yaml_tree;

pub use endpoint_options::EndpointOptions;
pub use error::ErrorBody;
pub use handler::{
    HandlerError, HandlerFuture, OperationHandler, PathOperations, error_response, json_response,
    on, success_response,
};
pub use item::{DeleteItem, GetItem, ListItems};
pub use kind::{
    Base64, Description, Field, Flag, HeaderList, Kind, Metadata, Note, Number, Secret, Shape,
    Text, TextOrNumber, Timestamp, Trailers, Typed,
};
pub use operation::append_query;
pub use operation::encode_component;
pub use operation::{
    Call, CallArguments, Info, Malformed, Operation, Output, Page, ParameterLocation, Resource,
    Verb, encode_arguments, encode_operation,
};
pub use origin::Origin;
