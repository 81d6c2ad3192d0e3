//! The files of `google/protobuf` that others import, as far as messages can be read by them.

use std::sync::LazyLock;

use super::definitions::FileDefinition;
use super::parser::parse_file;

/// The names of the files behind `google/protobuf/`, and what they define in that package.
const SOURCES: [(&str, &str); 10] = [
    ("any", "message Any { string type_url = 1; bytes value = 2; }"),
    ("api", ""),
    ("descriptor", DESCRIPTOR),
    ("duration", "message Duration { int64 seconds = 1; int32 nanos = 2; }"),
    ("empty", "message Empty {}"),
    ("field_mask", "message FieldMask { repeated string paths = 1; }"),
    ("source_context", "message SourceContext { string file_name = 1; }"),
    ("struct", STRUCT),
    ("timestamp", "message Timestamp { int64 seconds = 1; int32 nanos = 2; }"),
    ("wrappers", WRAPPERS),
];
const STRUCT: &str = "
    message Struct { map<string, Value> fields = 1; }
    message Value {
        oneof kind {
            NullValue null_value = 1;
            double number_value = 2;
            string string_value = 3;
            bool bool_value = 4;
            Struct struct_value = 5;
            ListValue list_value = 6;
        }
    }
    enum NullValue { NULL_VALUE = 0; }
    message ListValue { repeated Value values = 1; }";
const WRAPPERS: &str = "
    message DoubleValue { double value = 1; }
    message FloatValue { float value = 1; }
    message Int64Value { int64 value = 1; }
    message UInt64Value { uint64 value = 1; }
    message Int32Value { int32 value = 1; }
    message UInt32Value { uint32 value = 1; }
    message BoolValue { bool value = 1; }
    message StringValue { string value = 1; }
    message BytesValue { bytes value = 1; }";
/// What options of one's own extend; nothing of them goes over the wire.
const DESCRIPTOR: &str = "
    message FileOptions {} message MessageOptions {} message FieldOptions {} message OneofOptions {}
    message EnumOptions {} message EnumValueOptions {} message ServiceOptions {} message MethodOptions {}
    message ExtensionRangeOptions {}";

static FILES: LazyLock<Vec<FileDefinition>> = LazyLock::new(|| {
    let parsed = SOURCES.iter().map(|(name, definitions)| {
        let source = format!("package google.protobuf; {definitions}");
        parse_file(&format!("google/protobuf/{name}.proto"), &source)
    });
    parsed.filter_map(Result::ok).collect()
});

/// All of them.
pub(super) fn all_files() -> &'static [FileDefinition] {
    &FILES
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protobuf::schema::Schema;

    #[test]
    fn all_of_them_can_be_read() {
        assert_eq!(all_files().len(), SOURCES.len());
        Schema::link_files([].iter()).unwrap();
    }
}
