//! Proto files: what describes the messages of gRPC calls.

use std::collections::BTreeMap;

use crate::Base64;
use crate::macros::{resource, wire};

wire! {
    /// A file that describes messages of gRPC calls.
    pub struct ProtoFile {
        /// Its name, as other files import it.
        pub name: String,
        /// The path of this resource.
        pub uri: String,
        /// The files that it imports.
        pub imports: Vec<String>,
        /// The messages that it defines, by their full names.
        pub messages: Vec<String>,
        /// The methods that it defines, by the paths of their calls: `/package.Service/Method`.
        pub methods: Vec<String>,
    }

    /// Files that were added.
    pub struct AddedProtoFiles {
        /// The files.
        pub proto_files: Vec<ProtoFile>,
    }
}

resource! {
    /// Proto files: what describes the messages of gRPC calls, until the agent ends.
    "proto_files" {
        /// List the proto files, by name.
        GET "/proto_files" List() -> [proto_files: ProtoFile];
        /// Add `.proto` files or a descriptor set, all of them or none.
        ///
        /// They stand in place of files of the same names, and messages of calls, also of earlier
        /// ones, are shown by them. Imports must be among them or be there; those of
        /// `google/protobuf` are.
        POST "/proto_files" Add([
            /// The texts of `.proto` files, by the names in their imports; at most 1 MiB together.
            files: BTreeMap<String, String>,
            /// What `protoc --include_imports --descriptor_set_out` writes, as bytes.
            descriptor_set: Base64,
        ]) -> AddedProtoFiles;
        /// Fetch one proto file.
        GET "/proto_files/{name}" Get(
            /// The name of the file.
            name: String
        ) -> ProtoFile;
        /// Remove a proto file that no other one imports.
        DELETE "/proto_files/{name}" Delete(
            /// The name of the file.
            name: String
        );
        /// Remove all proto files.
        DELETE "/proto_files" Clear();
    }
}
