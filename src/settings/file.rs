//! The configuration file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::setting::{Setting, SettingSection};
use super::value::ValueKind;
use crate::api::mask;
use crate::api::spelling::nearest;
use crate::api::yaml_tree::{TextPlace, YamlKey, YamlNode, YamlValue, read_tree};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A configuration file that was read, key by key; whether its values are right is for the settings to
/// say.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    values: Vec<FileValue>,
    /// What is wrong with the file.
    pub(super) problems: Vec<String>,
}

/// What a file says of one setting.
#[derive(Debug)]
struct FileValue {
    key: &'static str,
    texts: Vec<String>,
    place: TextPlace,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read, with its name.
    pub fn read<C>(path: &Path, sections: &'static [SettingSection<C>]) -> Result<Self, String> {
        let text = read_text(path);
        let text = text.map_err(|error| format!("cannot read {}: {error}", mask::path(path)))?;
        let mut file = Self { path: path.to_owned(), values: Vec::new(), problems: Vec::new() };
        match read_tree(&text) {
            Ok(root) => file
                .take_root(root, &sections.iter().flat_map(|it| it.settings).collect::<Vec<_>>()),
            Err(error) => file.note(error.place, &error.problem),
        }
        Ok(file)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it sets nothing.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// What the file says of a setting, and where; none where it says nothing.
    pub(super) fn values(&self, key: &str) -> Option<(&[String], TextPlace)> {
        let value = self.values.iter().find(|value| value.key == key)?;
        Some((&value.texts, value.place))
    }

    /// A problem with its place in the file.
    pub(super) fn problem_at(&self, place: TextPlace, problem: &str) -> String {
        let TextPlace { line, column } = place;
        format!("{}:{line}:{column}: {problem}", mask::path(&self.path))
    }

    fn note(&mut self, place: Option<TextPlace>, problem: &str) {
        let problem = match place {
            Some(place) => self.problem_at(place, problem),
            None => format!("{}: {problem}", mask::path(&self.path)),
        };
        self.problems.push(problem);
    }

    fn take_root<C>(&mut self, root: YamlNode, settings: &[&'static Setting<C>]) {
        match root.value {
            YamlValue::Null => {}
            YamlValue::Map(entries) => self.take_entries(entries, "", settings),
            _ => self.note(Some(root.place), "the file must hold keys with their values"),
        }
    }

    fn take_entries<C>(
        &mut self,
        entries: Vec<(YamlKey, YamlNode)>,
        prefix: &str,
        settings: &[&'static Setting<C>],
    ) {
        for (key, node) in entries {
            let name = format!("{prefix}{}", key.name);
            let inside = format!("{name}.");
            let setting = settings.iter().find(|setting| setting.key == name);
            match (setting, node.value) {
                (Some(setting), value) => self.take_value(setting, value, node.place),
                (None, YamlValue::Map(entries)) if has_prefix(settings, &inside) => {
                    self.take_entries(entries, &inside, settings);
                }
                (None, _) if has_prefix(settings, &inside) => {
                    self.note(
                        Some(node.place),
                        &format!("{name}: must hold keys with their values"),
                    );
                }
                (None, _) => self.note(Some(key.place), &unknown(&name, settings)),
            }
        }
    }

    fn take_value<C>(&mut self, setting: &'static Setting<C>, value: YamlValue, place: TextPlace) {
        let is_list = setting.field.kind == ValueKind::List;
        let texts = match value {
            YamlValue::Text(text) if is_list => {
                text.split(',').map(|item| item.trim().to_owned()).collect()
            }
            YamlValue::Text(text) => vec![text],
            YamlValue::List(items) if is_list => match items.into_iter().map(text_of).collect() {
                Ok(texts) => texts,
                Err((place, problem)) => {
                    return self.note(Some(place), &format!("{}: {problem}", setting.key));
                }
            },
            other => {
                return self.note(Some(place), &format!("{}: {}", setting.key, unusable(&other)));
            }
        };
        self.values.push(FileValue { key: setting.key, texts, place });
    }
}

fn text_of(node: YamlNode) -> Result<String, (TextPlace, &'static str)> {
    match node.value {
        YamlValue::Text(text) => Ok(text),
        other => Err((node.place, unusable(&other))),
    }
}

/// Why a value of this form is no setting's.
fn unusable(value: &YamlValue) -> &'static str {
    match value {
        YamlValue::Null => "has no value; leave the key out for the default",
        YamlValue::Fraction => "is a number that is not whole; put text into quotes",
        YamlValue::List(_) => "takes one value, not a list",
        YamlValue::Map(_) => "takes a value, not keys with values",
        YamlValue::Text(_) => "is unusable",
    }
}

fn has_prefix<C>(settings: &[&'static Setting<C>], prefix: &str) -> bool {
    settings.iter().any(|setting| setting.key.starts_with(prefix))
}

fn unknown<C>(name: &str, settings: &[&'static Setting<C>]) -> String {
    let known = settings.iter().map(|setting| setting.key);
    match nearest(&name.replace('-', "_"), known) {
        Some(near) => format!("unknown key {name:?}; did you mean {near:?}?"),
        None => format!("unknown key {name:?}"),
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(invalid(format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    String::from_utf8(text).map_err(|error| {
        invalid(format!("it is not UTF-8 (byte {})", error.utf8_error().valid_up_to() + 1))
    })
}
