//! The files that users have added, and what they describe together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use percent_encoding::utf8_percent_encode;

use ginnel_api::local::proto_files::ProtoFile;

use super::definitions::{FileDefinition, ProtoError};
use super::schema::Schema;
use super::{BytesDisplay, DecodedMessage, decode, descriptor_set, parser};
use crate::capture::StreamSide;
use crate::tunnels::PATH_SEGMENT_CHARS;

/// How many files there may be.
const MAX_FILES: usize = 500;
/// How many definitions they may have together: messages, fields, values of enums, methods.
const MAX_DEFINITIONS: usize = 100_000;
/// How long the name of a file may be.
const MAX_NAME_BYTES: usize = 255;

/// The files that users have added, and what they describe together.
#[derive(Debug, Default)]
pub(crate) struct ProtoFiles {
    current: ArcSwap<Linked>,
    /// Held while the files change.
    change: Mutex<()>,
}

#[derive(Debug, Default)]
struct Linked {
    files: BTreeMap<String, Arc<FileDefinition>>,
    schema: Schema,
}

impl ProtoFiles {
    /// Adds texts of files by their names, and the files of a descriptor set, in place of those of the same
    /// name; all of them, or none.
    ///
    /// # Errors
    /// If one of them is no such file, or what there is then does not fit together.
    pub fn add(
        &self,
        sources: &BTreeMap<String, String>,
        descriptor_set: Option<&[u8]>,
    ) -> Result<Vec<ProtoFile>, ProtoError> {
        let mut added = Vec::new();
        for (name, source) in sources {
            check_name(name)?;
            added.push(parser::parse_file(name, source)?);
        }
        added.extend(descriptor_set.map_or(Ok(Vec::new()), descriptor_set::parse_descriptor_set)?);
        let names: Vec<_> = added.iter().map(|file| file.name.clone()).collect();
        self.change_files(|files| {
            files.extend(added.into_iter().map(|file| (file.name.clone(), Arc::new(file))));
            Ok(())
        })?;
        let current = self.current.load();
        Ok(names
            .iter()
            .filter_map(|name| current.files.get(name))
            .map(|file| to_proto_file(file))
            .collect())
    }

    /// Removes a file; false if there is none of this name.
    ///
    /// # Errors
    /// If another one imports it.
    pub fn remove(&self, name: &str) -> Result<bool, ProtoError> {
        let mut was_there = false;
        self.change_files(|files| {
            was_there = files.remove(name).is_some();
            Ok(())
        })?;
        Ok(was_there)
    }

    pub fn clear(&self) {
        let _guard = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        self.current.store(Arc::default());
    }

    pub fn find(&self, name: &str) -> Option<ProtoFile> {
        self.current.load().files.get(name).map(|file| to_proto_file(file))
    }

    pub fn all(&self) -> Vec<ProtoFile> {
        self.current.load().files.values().map(|file| to_proto_file(file)).collect()
    }

    /// Reads a message of a call of gRPC; none if nothing describes it, or not so.
    pub fn decode_message(
        &self,
        target: &str,
        side: StreamSide,
        data: &[u8],
        bytes: BytesDisplay,
    ) -> Option<DecodedMessage> {
        let current = self.current.load();
        let path = target.split('?').next().unwrap_or_default();
        let (input, output) = current.schema.find_method(path)?;
        let name = if side == StreamSide::Client { input } else { output };
        let value = decode::decode_message(&current.schema, name, data, bytes)?;
        Some(DecodedMessage { type_name: name.clone(), value })
    }

    fn change_files(
        &self,
        work: impl FnOnce(&mut BTreeMap<String, Arc<FileDefinition>>) -> Result<(), ProtoError>,
    ) -> Result<(), ProtoError> {
        let _guard = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = self.current.load().files.clone();
        work(&mut files)?;
        if files.len() > MAX_FILES {
            let problem = format!("there would be {} files, at most {MAX_FILES}", files.len());
            return Err(ProtoError::new("files", 0, problem));
        }
        let count = files.values().map(|file| definitions_in(file)).sum::<usize>();
        if count > MAX_DEFINITIONS {
            let problem = format!("there would be {count} definitions, at most {MAX_DEFINITIONS}");
            return Err(ProtoError::new("files", 0, problem));
        }
        let schema = Schema::link_files(files.values().map(AsRef::as_ref))?;
        self.current.store(Arc::new(Linked { files, schema }));
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), ProtoError> {
    let is_good = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.chars().any(char::is_control)
        && name.ends_with(".proto");
    if is_good {
        return Ok(());
    }
    let problem = format!("a name has at most {MAX_NAME_BYTES} bytes and ends in .proto");
    Err(ProtoError::new(&format!("files: {name:?}"), 0, problem))
}

fn definitions_in(file: &FileDefinition) -> usize {
    let fields = file.messages.iter().map(|message| 1 + message.fields.len());
    let values = file.enums.iter().map(|it| 1 + it.values.len());
    fields.chain(values).sum::<usize>() + file.methods.len() + file.extensions.len()
}

fn to_proto_file(file: &FileDefinition) -> ProtoFile {
    let messages = file.messages.iter().filter(|message| !message.is_map_entry);
    let mut messages: Vec<_> = messages.map(|message| message.name.clone()).collect();
    messages.sort();
    ProtoFile {
        uri: format!("/api/proto_files/{}", utf8_percent_encode(&file.name, PATH_SEGMENT_CHARS)),
        name: file.name.clone(),
        imports: file.imports.iter().map(|import| import.path.clone()).collect(),
        messages,
        methods: file.methods.iter().map(|method| method.path.clone()).collect(),
    }
}
