//! The configuration file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use ginnel_api::mask;
use ginnel_api::spelling::correct_misspelling;
use ginnel_api::yaml_tree::{TextPlace, YamlKey, YamlNode, YamlValue, read_tree};

use super::field_value::FieldProblem;
use super::setting::{Setting, SettingSection};
use super::value::ValueKind;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A key under which a file names things, each of which has fields: `tunnels: {web: {addr: 80}}`.
#[derive(Debug)]
pub struct FileTable {
    /// The key.
    pub key: &'static str,
    /// The field that names an entry, where these are a list: `endpoints: [{name: web}]`.
    pub named_by: Option<&'static str>,
    /// The names of the fields that an entry may have; dots part the levels of nested fields.
    pub fields: fn() -> Vec<String>,
    /// Names of other tables, and the fields that stand for them in this one.
    pub other_names: &'static [(&'static str, &'static str)],
    /// Reads the value of a field.
    pub read_field: fn(&str, YamlNode) -> Result<Value, FieldProblem>,
}

/// How the files of one version are laid out.
#[derive(Debug)]
pub struct FileLayout {
    /// What the key `version` says in them.
    pub version: &'static str,
    /// The key below which all settings but the version are; none where they stand alone.
    pub section: Option<&'static str>,
    /// The tables that they may hold.
    pub tables: &'static [FileTable],
}

/// The key that says by which layout a file is read.
const VERSION: &str = "version";

/// An entry of a [`FileTable`].
#[derive(Debug, Clone)]
pub struct TableEntry {
    table: &'static str,
    /// The name.
    pub name: String,
    /// Where the name stands.
    pub place: TextPlace,
    /// The fields; whether their values are right is not known yet.
    pub fields: Vec<TableField>,
}

impl TableEntry {
    /// The table and the name, for problems: `tunnels.web`. Characters that terminals do not show are escaped.
    pub fn qualified_key(&self) -> String {
        key_of(self.table, &self.name)
    }
}

fn key_of(table: &str, name: &str) -> String {
    format!("{table}.{}", name.escape_debug())
}

/// A field of an entry.
#[derive(Debug, Clone)]
pub struct TableField {
    /// The name.
    pub name: String,
    /// Where the value stands.
    pub place: TextPlace,
    /// The value.
    pub value: Value,
}

/// A configuration file that was read, key by key; whether its values are right is for the settings to
/// say.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    values: Vec<FileValue>,
    entries: Vec<TableEntry>,
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
    pub fn from_path<C>(
        path: &Path,
        sections: &'static [SettingSection<C>],
    ) -> Result<Self, String> {
        Self::read_with_layouts(path, sections, &[])
    }

    /// Reads a file that has one of these layouts, the first where its version is that of none.
    ///
    /// # Errors
    /// When the file cannot be read, with its name.
    pub fn read_with_layouts<C>(
        path: &Path,
        sections: &'static [SettingSection<C>],
        layouts: &'static [FileLayout],
    ) -> Result<Self, String> {
        let text = read_text(path);
        let text = text.map_err(|error| format!("cannot read {}: {error}", mask::path(path)))?;
        Ok(Self::from_text(path, &text, sections, layouts))
    }

    /// The same for values that stand in no file; `name` is what problems begin with.
    pub fn from_value<C>(
        name: &Path,
        value: Value,
        sections: &'static [SettingSection<C>],
    ) -> Self {
        let mut file = Self::empty(name);
        file.take_root(YamlNode::from_json(value), &FileSchema::from_sections(sections, None));
        file
    }

    fn empty(path: &Path) -> Self {
        let (values, entries, problems) = (Vec::new(), Vec::new(), Vec::new());
        Self { path: path.to_owned(), values, entries, problems }
    }

    /// The same for the text of a file.
    pub fn from_text<C>(
        path: &Path,
        text: &str,
        sections: &'static [SettingSection<C>],
        layouts: &'static [FileLayout],
    ) -> Self {
        let mut file = Self::empty(path);
        match read_tree(text) {
            Ok(root) => {
                let schema = FileSchema::from_sections(sections, layout_of(&root, layouts));
                file.take_root(root, &schema);
            }
            Err(error) => file.record_problem(error.place, &error.problem),
        }
        file
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it sets nothing.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.entries.is_empty()
    }

    /// Whether it says something of a setting.
    pub fn has_setting(&self, key: &str) -> bool {
        self.setting_values(key).is_some()
    }

    /// The entries of a table, in the order of the file.
    pub fn table_entries(&self, table: &str) -> impl Iterator<Item = &TableEntry> {
        self.entries.iter().filter(move |entry| entry.table == table)
    }

    /// Whether something is wrong with the file itself.
    pub fn is_broken(&self) -> bool {
        !self.problems.is_empty()
    }

    /// What the file says of a setting, and where; none where it says nothing.
    pub(super) fn setting_values(&self, key: &str) -> Option<(&[String], TextPlace)> {
        let value = self.values.iter().find(|value| value.key == key)?;
        Some((&value.texts, value.place))
    }

    fn record_problem(&mut self, place: Option<TextPlace>, problem: &str) {
        let problem = match place {
            Some(place) => problem_at(&self.path, place, problem),
            None => format!("{}: {problem}", mask::path(&self.path)),
        };
        self.problems.push(problem);
    }

    fn take_root<C>(&mut self, root: YamlNode, schema: &FileSchema<C>) {
        match root.value {
            YamlValue::Null => {}
            YamlValue::Map(entries) => self.take_entries(entries, "", schema),
            _ => self.record_problem(Some(root.place), "the file must hold keys with their values"),
        }
    }

    fn take_entries<C>(
        &mut self,
        entries: Vec<(YamlKey, YamlNode)>,
        prefix: &str,
        schema: &FileSchema<C>,
    ) {
        for (key, node) in entries {
            let name = format!("{prefix}{}", key.name);
            let inside = format!("{name}.");
            let setting = schema.find_setting(&name);
            let table = schema.tables.iter().find(|table| table.key == name);
            match (setting, table, node) {
                (Some(setting), _, node) => self.take_value(setting, node),
                (None, Some(table), node) => self.take_table(table, node.value, node.place),
                (None, None, YamlNode { value: YamlValue::Map(entries), .. })
                    if schema.has_prefix(&inside) =>
                {
                    self.take_entries(entries, &inside, schema);
                }
                (None, None, node) if schema.has_prefix(&inside) => {
                    self.record_problem(Some(node.place), &no_map(&name));
                }
                _ => {
                    self.record_problem(Some(key.place), &unknown_key(&name, &schema.key_names()));
                }
            }
        }
    }

    fn take_table(&mut self, table: &'static FileTable, value: YamlValue, place: TextPlace) {
        match value {
            YamlValue::Null => {}
            YamlValue::Map(entries) if table.named_by.is_none() => {
                entries.into_iter().for_each(|(key, node)| self.take_entry(table, key, node));
            }
            YamlValue::List(items) if table.named_by.is_some() => {
                items.into_iter().for_each(|item| self.take_item(table, item));
            }
            _ if table.named_by.is_some() => {
                self.record_problem(Some(place), &format!("{}: must be a list", table.key));
            }
            _ => self.record_problem(Some(place), &no_map(table.key)),
        }
    }

    /// Takes an entry that one of its own fields names.
    fn take_item(&mut self, table: &'static FileTable, item: YamlNode) {
        let field = table.named_by.unwrap_or_default();
        let YamlValue::Map(fields) = &item.value else {
            return self.record_problem(Some(item.place), &no_map(table.key));
        };
        let named = fields.iter().find(|(key, _)| key.name == field);
        let name = named.and_then(|(_, value)| value.scalar_text()).filter(|name| !name.is_empty());
        match name {
            Some(name) if self.table_entries(table.key).any(|known| known.name == name) => {
                let problem = format!("{}: there is more than one {name:?}", table.key);
                self.record_problem(Some(item.place), &problem);
            }
            Some(name) => self.take_entry(table, YamlKey { name, place: item.place }, item),
            None => {
                self.record_problem(
                    Some(item.place),
                    &format!("{}: an entry has no {field}", table.key),
                );
            }
        }
    }

    /// Takes the fields of an entry; those that are unknown are problems.
    fn take_entry(&mut self, table: &'static FileTable, key: YamlKey, node: YamlNode) {
        if key.name.is_empty() {
            return self
                .record_problem(Some(key.place), &format!("{}: an entry has no name", table.key));
        }
        let prefix = key_of(table.key, &key.name);
        let YamlValue::Map(fields) = node.value else {
            return self.record_problem(Some(node.place), &no_map(&prefix));
        };
        let known: Vec<_> =
            (table.fields)().iter().map(|name| format!("{prefix}.{name}")).collect();
        self.check_fields(&fields, &prefix, &known, table.other_names);
        let mut read = Vec::new();
        for (field, node) in fields {
            let place = node.place;
            match (table.read_field)(&field.name, node) {
                Ok(value) => read.push(TableField { name: field.name, place, value }),
                Err(FieldProblem { field, problem, place }) => {
                    self.record_problem(Some(place), &format!("{prefix}.{field}: {problem}"));
                }
            }
        }
        let (place, fields) = (key.place, read);
        self.entries.push(TableEntry { table: table.key, name: key.name, place, fields });
    }

    /// Notes the fields that nobody knows, and those inside of the ones whose fields are known.
    fn check_fields(
        &mut self,
        fields: &[(YamlKey, YamlNode)],
        prefix: &str,
        known: &[String],
        other_names: &[(&str, &str)],
    ) {
        for (field, node) in fields {
            let name = format!("{prefix}.{}", field.name);
            let inside = format!("{name}.");
            if !known.contains(&name) {
                let other = other_names.iter().find(|(other, _)| *other == field.name);
                let problem = match other {
                    Some((_, meant)) => suggest_key(&name, &format!("{prefix}.{meant}")),
                    None => unknown_key(&name, known),
                };
                self.record_problem(Some(field.place), &problem);
            } else if let YamlValue::Map(inner) = &node.value
                && known.iter().any(|known| known.starts_with(&inside))
            {
                self.check_fields(inner, &name, known, &[]);
            }
        }
    }

    fn take_value<C>(&mut self, setting: &'static Setting<C>, node: YamlNode) {
        let (place, kind) = (node.place, setting.field.kind);
        let is_list = kind == ValueKind::List;
        let texts = match (node.scalar_text(), node.value) {
            _ if kind == ValueKind::Unused => Ok(Vec::new()),
            // `yes` and `on` are truth values for some readers of YAML, and texts for others.
            (_, YamlValue::Bool(_)) if kind == ValueKind::Secret => {
                Err((place, "is a truth value; put the text into quotes"))
            }
            (Some(text), _) if is_list => {
                Ok(text.split(',').map(|item| item.trim().to_owned()).collect())
            }
            (Some(text), _) => Ok(vec![text]),
            (None, YamlValue::List(items)) if is_list => items.into_iter().map(text_of).collect(),
            (None, other) => Err((place, unusable_reason(&other))),
        };
        if self.has_setting(setting.key) {
            return self
                .record_problem(Some(place), &format!("{}: is set a second time", setting.key));
        }
        match texts {
            Ok(texts) => self.values.push(FileValue { key: setting.key, texts, place }),
            Err((place, problem)) => {
                self.record_problem(Some(place), &format!("{}: {problem}", setting.key));
            }
        }
    }
}

/// What a file may hold.
struct FileSchema<C: 'static> {
    settings: Vec<&'static Setting<C>>,
    section: Option<&'static str>,
    tables: &'static [FileTable],
}

impl<C> FileSchema<C> {
    fn from_sections(
        sections: &'static [SettingSection<C>],
        layout: Option<&'static FileLayout>,
    ) -> Self {
        Self {
            settings: sections.iter().flat_map(SettingSection::settings).collect(),
            section: layout.and_then(|layout| layout.section),
            tables: layout.map_or(&[], |layout| layout.tables),
        }
    }

    /// The setting that a name in the file stands for.
    fn find_setting(&self, name: &str) -> Option<&'static Setting<C>> {
        let inner = match self.section.filter(|_| name != VERSION) {
            Some(section) => name.strip_prefix(section)?.strip_prefix('.')?,
            None => name,
        };
        let is_placed = |setting: &&&Setting<C>| {
            self.section.is_none() || (setting.key == VERSION) == (name == VERSION)
        };
        self.settings.iter().filter(is_placed).find(|setting| setting.is_called(inner)).copied()
    }

    fn has_prefix(&self, prefix: &str) -> bool {
        self.key_names().iter().any(|name| name.starts_with(prefix))
    }

    /// What the keys of a file may be called.
    fn key_names(&self) -> Vec<String> {
        let tables = self.tables.iter().map(|table| table.key.to_owned());
        let settings = self.settings.iter().flat_map(|setting| {
            let names = [Some(setting.key), setting.alias].into_iter().flatten();
            names.map(|name| match self.section.filter(|_| setting.key != VERSION) {
                Some(section) => format!("{section}.{name}"),
                None => name.to_owned(),
            })
        });
        settings.chain(tables).collect()
    }
}

/// The layout that the version of a file asks for, or the first.
fn layout_of(root: &YamlNode, layouts: &'static [FileLayout]) -> Option<&'static FileLayout> {
    let entries = match &root.value {
        YamlValue::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    let version = entries.iter().find(|(key, _)| key.name == VERSION);
    let version = version.and_then(|(_, node)| node.scalar_text());
    let named = layouts.iter().find(|layout| version.as_deref() == Some(layout.version));
    named.or_else(|| layouts.first())
}

/// A problem with its place in a file.
pub fn problem_at(path: &Path, place: TextPlace, problem: &str) -> String {
    if place == TextPlace::NONE {
        return format!("{}: {problem}", mask::path(path));
    }
    let TextPlace { line, column } = place;
    format!("{}:{line}:{column}: {problem}", mask::path(path))
}

fn text_of(node: YamlNode) -> Result<String, (TextPlace, &'static str)> {
    node.scalar_text().ok_or_else(|| (node.place, unusable_reason(&node.value)))
}

fn no_map(name: &str) -> String {
    format!("{name}: must hold keys with their values")
}

/// Why a value of this form is no setting's.
fn unusable_reason(value: &YamlValue) -> &'static str {
    match value {
        YamlValue::Null => "has no value; leave the key out for the default",
        YamlValue::Number(_) => "is a number that is not whole; put text into quotes",
        YamlValue::List(_) => "takes one value, not a list",
        YamlValue::Map(_) => "takes a value, not keys with values",
        YamlValue::Text(_) | YamlValue::Bool(_) => "is unusable",
    }
}

fn unknown_key(name: &str, known: &[String]) -> String {
    match nearest_key(name, known) {
        Some(near) => suggest_key(name, &near),
        None => format!("unknown key {name:?}"),
    }
}

fn suggest_key(name: &str, meant: &str) -> String {
    format!("unknown key {name:?}; did you mean {meant:?}?")
}

/// The known name that was probably meant, level by level: what two names have in front makes them no
/// more alike.
fn nearest_key(name: &str, known: &[String]) -> Option<String> {
    let mut meant = String::new();
    for part in name.split('.') {
        let siblings = known.iter().filter_map(|known| known.strip_prefix(&meant));
        let siblings = siblings.filter_map(|rest| rest.split('.').next());
        let near = correct_misspelling(&part.replace('-', "_"), siblings)?.to_owned();
        meant = format!("{meant}{near}.");
    }
    // A section is meant as well, whose keys have its name in front.
    meant.pop();
    Some(meant)
}

/// Reads a file whose text is no longer than that of a configuration file.
///
/// # Errors
/// When it cannot be read, is longer or no text.
pub fn read_text(path: &Path) -> io::Result<String> {
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
