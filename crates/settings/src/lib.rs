//! Settings of a program: each is declared once, as a [`Setting`], with its key, its documentation and
//! the place where a configuration keeps it. The type of that place ([`SettingValue`]) says how it is
//! written. A part of a program declares its settings, their defaults and its rows with [`settings!`], and
//! [`HasPart`] makes them rows of a larger configuration. From the declaration come its flag, its variable of the environment, its key in a file, what
//! `config show` says of it, and its line of the reference.
//!
//! [`resolve_settings`] puts together what flags, environment and file say, in this order, and remembers where
//! each value comes from; [`diff_settings`] compares two configurations for a reload.
//!
//! Own code of 1,330 lines, because `figment` 0.10 (13 packages, among them the deprecated `serde_yaml`) and `config` 0.15
//! (3 packages) only merge sources. Flags, bounds, the line and column of a value, suggestions for misspelled keys,
//! masked secrets, reloads and the reference pages come from the rows here, and would remain.
//!
//! # Invariants
//!
//! - This crate does not know which settings exist: each program declares its own.

mod duration;
mod field_value;
mod file;
mod reload;
mod setting;
mod sources;
mod value;

pub use duration::{read_duration, write_duration};
pub use field_value::{FieldProblem, read_field_value};
pub use file::{ConfigFile, FileLayout, FileTable, TableEntry, TableField, problem_at, read_text};
pub use reload::{SettingChange, diff_settings, keep_fixed};
pub use setting::{
    HasPart, MAX_TIME_MILLIS, Reload, Setting, SettingField, SettingName, SettingSection,
};
pub use sources::{
    ResolvedSettings, SettingOrigin, SettingSources, is_set_by_kubernetes, resolve_settings,
};
pub use value::{Bounds, ByteSize, SettingItem, SettingValue, ValueKind, without_login};
