//! All files together, with the names in them resolved.

use std::collections::{BTreeMap, HashMap};

use super::definitions::{FieldDefinition, FileDefinition, KindDefinition, ProtoError, Scalar};
use super::well_known;

/// Messages, enums and methods by their full names.
#[derive(Debug, Default)]
pub(super) struct Schema {
    messages: HashMap<String, MessageSchema>,
    enums: HashMap<String, HashMap<i32, String>>,
    /// What calls with a path send, and what they return.
    methods: HashMap<String, (String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct MessageSchema {
    pub fields: BTreeMap<u32, FieldSchema>,
    pub is_map_entry: bool,
}

#[derive(Debug)]
pub(super) struct FieldSchema {
    pub name: String,
    pub is_repeated: bool,
    pub kind: FieldKind,
}

#[derive(Debug, Clone)]
pub(super) enum FieldKind {
    Scalar(Scalar),
    Message(String),
    Enum(String),
}

impl Schema {
    /// Resolves the names in files.
    ///
    /// # Errors
    /// If a file imports one that is not there, names a type that there is not, or defines one again.
    pub fn link_files<'a>(
        files: impl Iterator<Item = &'a FileDefinition> + Clone,
    ) -> Result<Self, ProtoError> {
        let known = well_known::all_files();
        // A file that users add stands in place of the one of that name that is known here.
        let is_added = |name: &str| files.clone().any(|file| file.name == name);
        let known = known.iter().filter(|file| !is_added(&file.name));
        let all: Vec<_> = files.clone().chain(known).collect();
        check_imports(&all)?;
        let mut schema = Self::default();
        schema.define_types(&all)?;
        for file in &all {
            schema.fill_fields(file)?;
        }
        Ok(schema)
    }

    /// Enters the names of all messages and enums.
    fn define_types(&mut self, all: &[&FileDefinition]) -> Result<(), ProtoError> {
        let mut defined = HashMap::<&str, &str>::new();
        for file in all {
            let messages = file.messages.iter().map(|message| (&message.name, message.line));
            let enums = file.enums.iter().map(|it| (&it.name, it.line));
            for (name, line) in messages.chain(enums) {
                if let Some(other) = defined.insert(name, &file.name) {
                    let problem = format!("{name} is defined in {other} already");
                    return Err(ProtoError::new(&file.name, line, problem));
                }
            }
            for message in &file.messages {
                let is_map_entry = message.is_map_entry;
                let entered = MessageSchema { is_map_entry, ..MessageSchema::default() };
                self.messages.insert(message.name.clone(), entered);
            }
            for it in &file.enums {
                let names = it.values.iter().rev().map(|(number, name)| (*number, name.clone()));
                self.enums.insert(it.name.clone(), names.collect());
            }
        }
        Ok(())
    }

    fn fill_fields(&mut self, file: &FileDefinition) -> Result<(), ProtoError> {
        let wrong = |line, problem: String| ProtoError::new(&file.name, line, problem);
        for message in &file.messages {
            let mut fields = BTreeMap::new();
            for definition in &message.fields {
                let FieldDefinition { name, number, line, .. } = definition;
                let field =
                    self.resolve_field(definition).map_err(|problem| wrong(*line, problem))?;
                if let Some(FieldSchema { name: other, .. }) = fields.insert(*number, field) {
                    let problem = format!("{name} has the number {number}, which {other} has too");
                    return Err(wrong(*line, problem));
                }
            }
            if let Some(entered) = self.messages.get_mut(&message.name) {
                entered.fields.append(&mut fields);
            }
        }
        for extension in &file.extensions {
            let line = extension.field.line;
            let field =
                self.resolve_field(&extension.field).map_err(|problem| wrong(line, problem))?;
            let extended = self.resolve_type(&extension.extendee, &extension.scope);
            let extended = extended.and_then(|name| self.messages.get_mut(&name));
            let unknown = || wrong(line, format!("there is no message {}", extension.extendee));
            extended.ok_or_else(unknown)?.fields.insert(extension.field.number, field);
        }
        for method in &file.methods {
            let message = |name: &str| {
                let found = self.resolve_type(name, &method.scope);
                let found = found.filter(|name| self.messages.contains_key(name));
                found.ok_or_else(|| wrong(method.line, format!("there is no message {name}")))
            };
            let types = (message(&method.input)?, message(&method.output)?);
            if self.methods.insert(method.path.clone(), types).is_some() {
                let problem = format!("{} is defined already", method.path);
                return Err(wrong(method.line, problem));
            }
        }
        Ok(())
    }

    fn resolve_field(&self, definition: &FieldDefinition) -> Result<FieldSchema, String> {
        let kind = match &definition.kind {
            KindDefinition::Scalar(scalar) => FieldKind::Scalar(*scalar),
            KindDefinition::Group(name) => FieldKind::Message(name.clone()),
            KindDefinition::Named { name, scope } => {
                let found = self.resolve_type(name, scope).ok_or_else(|| {
                    let field = &definition.name;
                    format!("{field}: there is no message or enum {name}")
                })?;
                if self.enums.contains_key(&found) {
                    FieldKind::Enum(found)
                } else {
                    FieldKind::Message(found)
                }
            }
        };
        Ok(FieldSchema { name: definition.name.clone(), is_repeated: definition.is_repeated, kind })
    }

    /// The full name of what a file names in a scope: the innermost one counts.
    fn resolve_type(&self, name: &str, scope: &str) -> Option<String> {
        let is_known =
            |name: &String| self.messages.contains_key(name) || self.enums.contains_key(name);
        if let Some(name) = name.strip_prefix('.') {
            return Some(name.to_owned()).filter(is_known);
        }
        let mut scope = Some(scope);
        while let Some(inner) = scope {
            let full = super::parser::qualified_name(inner, name);
            if is_known(&full) {
                return Some(full);
            }
            scope = match inner.rsplit_once('.') {
                Some((outer, _)) => Some(outer),
                None => (!inner.is_empty()).then_some(""),
            };
        }
        None
    }

    pub fn find_message(&self, name: &str) -> Option<&MessageSchema> {
        self.messages.get(name)
    }

    /// The name of a value of an enum.
    pub fn enum_value_name(&self, name: &str, number: i32) -> Option<&str> {
        self.enums.get(name)?.get(&number).map(String::as_str)
    }

    /// What calls with this path send, and what they return.
    pub fn find_method(&self, path: &str) -> Option<&(String, String)> {
        self.methods.get(path)
    }
}

fn check_imports(all: &[&FileDefinition]) -> Result<(), ProtoError> {
    for file in all {
        for import in &file.imports {
            // Browsers name files without their folders.
            let is_it =
                |name: &str| import.path == name || import.path.ends_with(&format!("/{name}"));
            if !all.iter().any(|other| is_it(&other.name)) {
                let problem = format!("imports {}, which is not here: add it as well", import.path);
                return Err(ProtoError::new(&file.name, import.line, problem));
            }
        }
    }
    Ok(())
}
