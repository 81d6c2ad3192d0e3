//! Reads what `protoc --descriptor_set_out` writes: the messages of `google/protobuf/descriptor.proto`.

use super::definitions::{
    EnumDefinition, ExtensionDefinition, FieldDefinition, FileDefinition, Import, KindDefinition,
    MessageDefinition, MethodDefinition, ProtoError, Scalar,
};
use super::parser::qualified_name;
use super::wire::{WireFields, WireValue};

/// How deep messages may stand in each other.
const MAX_DEPTH: usize = 64;
const NAME: &str = "descriptor_set";

/// Reads the files of a set.
pub(super) fn parse_descriptor_set(data: &[u8]) -> Result<Vec<FileDefinition>, ProtoError> {
    let files = read_files(data).filter(|files| !files.is_empty());
    files.ok_or_else(|| {
        let problem = "is no set of file descriptors, as protoc --include_imports --descriptor_set_out writes one";
        ProtoError::new(NAME, 0, problem)
    })
}

fn read_files(data: &[u8]) -> Option<Vec<FileDefinition>> {
    let mut files = Vec::new();
    for (number, value) in WireRecord::from_bytes(data)?.0 {
        let (1, WireValue::Bytes(file)) = (number, value) else { return None };
        files.push(read_file(&WireRecord::from_bytes(file)?)?);
    }
    Some(files)
}

/// A message by the numbers of its fields.
struct WireRecord<'a>(Vec<(u32, WireValue<'a>)>);

impl<'a> WireRecord<'a> {
    fn from_bytes(data: &'a [u8]) -> Option<Self> {
        WireFields::from_bytes(data).collect::<Option<_>>().map(Self)
    }

    fn bytes_fields(&self, number: u32) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |(found, value)| match value {
            WireValue::Bytes(bytes) if *found == number => Some(*bytes),
            _ => None,
        })
    }

    fn record_fields(&self, number: u32) -> impl Iterator<Item = Option<WireRecord<'a>>> {
        self.bytes_fields(number).map(WireRecord::from_bytes)
    }

    /// A text; empty if there is none, and none if it is no text.
    fn text_field(&self, number: u32) -> Option<String> {
        let bytes = self.bytes_fields(number).last().unwrap_or_default();
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    fn number_field(&self, number: u32) -> u64 {
        let mut values = self.0.iter().filter_map(|(found, value)| match value {
            WireValue::Varint(value) if *found == number => Some(*value),
            _ => None,
        });
        values.next_back().unwrap_or_default()
    }
}

fn read_file(file: &WireRecord<'_>) -> Option<FileDefinition> {
    let mut read = FileDefinition { name: file.text_field(1)?, ..FileDefinition::default() };
    let package = file.text_field(2)?;
    for path in file.bytes_fields(3) {
        let path = std::str::from_utf8(path).ok()?.to_owned();
        read.imports.push(Import { path, line: 0 });
    }
    for message in file.record_fields(4) {
        read_message(&message?, &package, &mut read, 0)?;
    }
    for enumeration in file.record_fields(5) {
        read.enums.push(read_enum(&enumeration?, &package)?);
    }
    for service in file.record_fields(6) {
        let service = service?;
        let name = qualified_name(&package, &service.text_field(1)?);
        for method in service.record_fields(2) {
            let method = method?;
            let path = format!("/{name}/{}", method.text_field(1)?);
            let (input, output) = (method.text_field(2)?, method.text_field(3)?);
            read.methods.push(MethodDefinition {
                path,
                scope: package.clone(),
                input,
                output,
                line: 0,
            });
        }
    }
    for extension in file.record_fields(7) {
        read.extensions.push(read_extension(&extension?, &package)?);
    }
    Some(read)
}

fn read_message(
    message: &WireRecord<'_>,
    scope: &str,
    file: &mut FileDefinition,
    depth: usize,
) -> Option<()> {
    let name = qualified_name(scope, &message.text_field(1)?);
    let fields = message.record_fields(2).map(|field| read_field(&field?, &name));
    let fields = fields.collect::<Option<_>>()?;
    for inner in message.record_fields(3) {
        (depth < MAX_DEPTH).then(|| read_message(&inner?, &name, file, depth + 1))??;
    }
    for enumeration in message.record_fields(4) {
        file.enums.push(read_enum(&enumeration?, &name)?);
    }
    for extension in message.record_fields(6) {
        file.extensions.push(read_extension(&extension?, &name)?);
    }
    let is_map_entry = match message.record_fields(7).last() {
        Some(options) => options?.number_field(7) == 1,
        None => false,
    };
    file.messages.push(MessageDefinition { name, line: 0, fields, is_map_entry });
    Some(())
}

fn read_field(field: &WireRecord<'_>, scope: &str) -> Option<FieldDefinition> {
    let name = || Some(field.text_field(6)?.trim_start_matches('.').to_owned());
    let kind = match field.number_field(5) {
        10 => KindDefinition::Group(name()?),
        11 | 14 => KindDefinition::Named { name: field.text_field(6)?, scope: scope.to_owned() },
        number => KindDefinition::Scalar(Scalar::from_number(number)?),
    };
    Some(FieldDefinition {
        name: field.text_field(1)?,
        number: u32::try_from(field.number_field(3)).ok().filter(|number| *number > 0)?,
        is_repeated: field.number_field(4) == 3,
        kind,
        line: 0,
    })
}

fn read_extension(extension: &WireRecord<'_>, scope: &str) -> Option<ExtensionDefinition> {
    let mut field = read_field(extension, scope)?;
    field.name = format!("[{}]", qualified_name(scope, &field.name));
    Some(ExtensionDefinition { extendee: extension.text_field(2)?, scope: scope.to_owned(), field })
}

fn read_enum(enumeration: &WireRecord<'_>, scope: &str) -> Option<EnumDefinition> {
    let values = enumeration.record_fields(2).map(|value| {
        let value = value?;
        // Negative numbers have ten bytes.
        let number = i32::try_from(value.number_field(2).cast_signed()).ok()?;
        Some((number, value.text_field(1)?))
    });
    let values = values.collect::<Option<_>>()?;
    Some(EnumDefinition {
        name: qualified_name(scope, &enumeration.text_field(1)?),
        line: 0,
        values,
    })
}
