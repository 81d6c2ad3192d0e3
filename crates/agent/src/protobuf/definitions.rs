//! What a file defines, before the names in it are resolved.

use std::fmt;

/// A file, with everything in it by its full name.
#[derive(Debug, Clone, Default)]
pub(super) struct FileDefinition {
    /// As other files import it.
    pub name: String,
    pub imports: Vec<Import>,
    pub messages: Vec<MessageDefinition>,
    pub enums: Vec<EnumDefinition>,
    pub methods: Vec<MethodDefinition>,
    pub extensions: Vec<ExtensionDefinition>,
}

#[derive(Debug, Clone)]
pub(super) struct Import {
    pub path: String,
    pub line: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct MessageDefinition {
    pub name: String,
    pub line: usize,
    pub fields: Vec<FieldDefinition>,
    /// Whether it is one entry of a map: its key is field 1, its value field 2.
    pub is_map_entry: bool,
}

#[derive(Debug, Clone)]
pub(super) struct FieldDefinition {
    pub name: String,
    pub number: u32,
    pub is_repeated: bool,
    pub kind: KindDefinition,
    pub line: usize,
}

#[derive(Debug, Clone)]
pub(super) enum KindDefinition {
    Scalar(Scalar),
    /// A message or an enum, as the file names it in this scope.
    Named {
        name: String,
        scope: String,
    },
    /// A message between two marks, by its full name.
    Group(String),
}

/// Fields that one message gets in the file of another.
#[derive(Debug, Clone)]
pub(super) struct ExtensionDefinition {
    /// The message, as the file names it in this scope.
    pub extendee: String,
    pub scope: String,
    pub field: FieldDefinition,
}

#[derive(Debug, Clone)]
pub(super) struct EnumDefinition {
    pub name: String,
    pub line: usize,
    /// Numbers and their names; of several names the first one counts.
    pub values: Vec<(i32, String)>,
}

#[derive(Debug, Clone)]
pub(super) struct MethodDefinition {
    /// The path of its calls: `/package.Service/Method`.
    pub path: String,
    pub scope: String,
    pub input: String,
    pub output: String,
    pub line: usize,
}

/// A type of values that is neither a message nor an enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
}

impl Scalar {
    /// Names, and the numbers that descriptor sets have for them.
    const ALL: [(&'static str, u64, Self); 15] = [
        ("double", 1, Self::Double),
        ("float", 2, Self::Float),
        ("int64", 3, Self::Int64),
        ("uint64", 4, Self::Uint64),
        ("int32", 5, Self::Int32),
        ("fixed64", 6, Self::Fixed64),
        ("fixed32", 7, Self::Fixed32),
        ("bool", 8, Self::Bool),
        ("string", 9, Self::String),
        ("bytes", 12, Self::Bytes),
        ("uint32", 13, Self::Uint32),
        ("sfixed32", 15, Self::Sfixed32),
        ("sfixed64", 16, Self::Sfixed64),
        ("sint32", 17, Self::Sint32),
        ("sint64", 18, Self::Sint64),
    ];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, ..)| *known == name).map(|(.., scalar)| *scalar)
    }

    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == number).map(|(.., scalar)| *scalar)
    }
}

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtoError {
    pub file: String,
    /// From 1; none where the file has no lines.
    pub line: Option<usize>,
    pub problem: String,
}

impl ProtoError {
    pub fn new(file: &str, line: usize, problem: impl Into<String>) -> Self {
        let line = (line > 0).then_some(line);
        Self { file: file.to_owned(), line, problem: problem.into() }
    }
}

impl fmt::Display for ProtoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.problem),
            None => write!(f, "{}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for ProtoError {}
