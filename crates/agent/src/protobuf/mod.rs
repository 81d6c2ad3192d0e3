//! Descriptions of gRPC messages: `.proto` files and descriptor sets that users add, and what messages
//! say by them.
//!
//! `tokens` and `parser` read the text of a file, `descriptor_set` what `protoc` makes of it; both give the
//! definitions of `definitions`. `schema` resolves the names in all files together, and `decode` reads
//! messages by it. Types of `google.protobuf` that many files import are in `well_known`. All of it is kept
//! until the agent ends.
//!
//! `protox` with `prost-reflect` could do the same. They are 15 more packages in the lock file. The code here also reads
//! files with `edition`, and it limits how large and how deep files and messages are.

mod decode;
mod definitions;
mod descriptor_set;
mod files;
mod parser;
mod schema;
mod tokens;
mod well_known;
mod wire;

pub(super) use decode::{BytesDisplay, DecodedMessage};
pub(super) use definitions::ProtoError;
pub(super) use files::ProtoFiles;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
