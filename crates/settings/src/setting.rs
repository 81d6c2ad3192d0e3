//! The declaration of a setting.

use std::ffi::OsStr;

use super::value::{Bounds, ValueKind, quote_value, without_login};

/// The longest time that a peer may take, in milliseconds: a day.
pub const MAX_TIME_MILLIS: u64 = 24 * 3_600_000;

/// Settings that belong together, under a title.
#[derive(Debug)]
pub struct SettingSection<C: 'static> {
    /// The title, as in the help and in the reference.
    pub title: &'static str,
    /// The settings, in the groups that the parts of a program declare.
    pub groups: &'static [&'static [Setting<C>]],
}

impl<C> SettingSection<C> {
    /// The settings of all groups.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting<C>> + use<C> {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

/// A configuration that contains the settings `P` of a part of the program. Rows that a part declares fit each
/// configuration that contains the part.
pub trait HasPart<P> {
    /// The settings of the part.
    fn part(&self) -> &P;

    /// The settings of the part, to be changed.
    fn part_mut(&mut self) -> &mut P;
}

impl<P> HasPart<P> for P {
    fn part(&self) -> &P {
        self
    }

    fn part_mut(&mut self) -> &mut P {
        self
    }
}

/// When a change of a setting has its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// At a reload.
    Live,
    /// When the program is started again.
    Restart,
}

/// What a setting is called outside of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingName {
    /// What follows from its key.
    OfKey,
    /// Something else.
    Special(&'static str),
    /// It cannot be set there.
    Absent,
}

impl SettingName {
    fn or_else(self, usual: impl FnOnce() -> String) -> Option<String> {
        match self {
            Self::OfKey => Some(usual()),
            Self::Special(name) => Some(name.to_owned()),
            Self::Absent => None,
        }
    }
}

/// A setting: what it is called, what it means, and where a configuration `C` keeps it.
#[derive(Debug)]
pub struct Setting<C: 'static> {
    /// The key in a file; dots part the levels of nested keys.
    pub key: &'static str,
    /// Another name that files may use for the key.
    pub alias: Option<&'static str>,
    /// What stands for its value in the help.
    pub value_name: &'static str,
    /// What it means, as a sentence without a full stop.
    pub doc: &'static str,
    /// What holds while nothing is set, where the default value does not say it.
    pub unset: &'static str,
    /// When a change has its effect.
    pub reload: Reload,
    /// The range of values.
    pub bounds: Bounds,
    /// Whether it says how a command behaves, and not the service or agent that it runs.
    pub of_command: bool,
    /// If true, the help lists its flag among the usual ones.
    pub is_usual: bool,
    /// What it is called on the command line.
    pub flag: SettingName,
    /// What it is called in the environment.
    pub variable: SettingName,
    /// The keyword argument of another program that sets it, if there is one. Several settings may have the same
    /// keyword, which takes a value for each.
    pub keyword: Option<&'static str>,
    /// Where it is kept.
    pub field: SettingField<C>,
}

/// The place of a setting in a configuration, whatever its type.
pub struct SettingField<C> {
    /// How it is written.
    pub kind: ValueKind,
    /// The words that it may be, where these are all.
    pub choices: &'static [&'static str],
    /// Reads a value into it.
    pub read: fn(&mut C, &OsStr, Bounds) -> Result<(), String>,
    /// Drops what a list holds.
    pub clear: fn(&mut C),
    /// Its value as text; none where nothing is set.
    pub text: fn(&C) -> Option<String>,
    /// Writes one of its bounds.
    pub bound: fn(u64) -> String,
    /// Takes the value of another configuration.
    pub copy: fn(&mut C, &C),
}

impl<C> std::fmt::Debug for SettingField<C> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SettingField").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Declares a setting: `setting!(Config, path.to.field: Type, "key", "VALUE", "What it means")`; methods
/// of [`Setting`] change its defaults. With `Config as Part`, the path begins in a part of the configuration.
#[macro_export]
macro_rules! setting {
    ($config:ty as $part:ty, $($field:ident).+ : $type:ty, $key:expr, $value:literal, $doc:expr) => {
        $crate::Setting::<$config> {
            key: $key,
            alias: None,
            value_name: $value,
            doc: $doc,
            unset: "",
            reload: $crate::Reload::Restart,
            bounds: $crate::Bounds::ALL,
            of_command: false,
            is_usual: false,
            flag: $crate::SettingName::OfKey,
            variable: $crate::SettingName::OfKey,
            keyword: None,
            field: $crate::SettingField {
                kind: <$type as $crate::SettingValue>::KIND,
                choices: <$type as $crate::SettingValue>::CHOICES,
                read: |config: &mut $config, text, bounds| {
                    let part = $crate::HasPart::<$part>::part_mut(config);
                    let field: &mut $type = &mut part.$($field).+;
                    $crate::SettingValue::read(field, text, bounds)
                },
                clear: |config: &mut $config| {
                    let part = $crate::HasPart::<$part>::part_mut(config);
                    let field: &mut $type = &mut part.$($field).+;
                    $crate::SettingValue::clear(field)
                },
                text: |config: &$config| {
                    let part = $crate::HasPart::<$part>::part(config);
                    $crate::SettingValue::text(&part.$($field).+)
                },
                bound: <$type as $crate::SettingValue>::bound,
                copy: |to: &mut $config, from: &$config| {
                    let to = $crate::HasPart::<$part>::part_mut(to);
                    let from = $crate::HasPart::<$part>::part(from);
                    to.$($field).+.clone_from(&from.$($field).+)
                },
            },
        }
    };
    ($config:ty, $($declaration:tt)+) => {
        $crate::setting!($config as $config, $($declaration)+)
    };
}

/// Declares the settings of a part of a program: the struct that the part uses, its default, and the rows of
/// its fields in groups. A group becomes a function of the struct, which a [`SettingSection`] lists.
///
/// ```
/// use ginnel_settings::{Setting, SettingSection, settings};
///
/// settings! {
///     /// How the kettle works.
///     #[derive(Debug, Clone)]
///     pub struct KettleSettings {
///         /// A field that is not a setting.
///         pub is_test: bool = false,
///     }
///
///     /// The water.
///     water {
///         max_cups: u32 = 4, "kettle.max_cups", "N", "The most cups that it boils", with_bounds(1, 20), live();
///     }
/// }
///
/// const KETTLE: SettingSection<KettleSettings> =
///     SettingSection { title: "Kettle", groups: &[KettleSettings::water()] };
/// let keys: Vec<_> = KETTLE.settings().map(|setting| setting.key).collect();
/// assert_eq!((keys, KettleSettings::default().max_cups), (vec!["kettle.max_cups"], 4));
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        pub struct $Settings:ident {
            $($(#[$plain_attribute:meta])* pub $plain:ident: $plain_type:ty = $plain_default:expr,)*
        }
        $(
            $(#[$group_attribute:meta])*
            $group:ident {
                $(
                    $field:ident: $type:ty = $default:expr, $key:literal, $value:literal, $doc:literal
                    $(, $method:ident($($argument:expr),*))*;
                )+
            }
        )+
    ) => {
        $(#[$attribute])*
        pub struct $Settings {
            $($(#[$plain_attribute])* pub $plain: $plain_type,)*
            $($(#[doc = concat!($doc, ".")] pub $field: $type,)+)+
        }

        impl Default for $Settings {
            fn default() -> Self {
                Self { $($plain: $plain_default,)* $($($field: $default,)+)+ }
            }
        }

        impl $Settings {
            $(
                $(#[$group_attribute])*
                pub const fn $group<C: $crate::HasPart<Self> + 'static>() -> &'static [$crate::Setting<C>] {
                    const {
                        &[$(
                            $crate::setting!(C as $Settings, $field: $type, $key, $value, $doc)
                                $(.$method($($argument),*))*
                        ),+]
                    }
                }
            )+
        }
    };
}

impl<C> Setting<C> {
    /// A change has its effect at a reload.
    pub const fn live(mut self) -> Self {
        self.reload = Reload::Live;
        self
    }

    /// It says how a command behaves, and not the service or agent that it runs.
    pub const fn of_command(mut self) -> Self {
        self.of_command = true;
        self
    }

    /// Lists the flag in `--help`. Other flags are listed by `--help-all` only.
    pub const fn listed_in_help(mut self) -> Self {
        self.is_usual = true;
        self
    }

    /// A keyword argument with the name of the key sets it.
    pub const fn with_keyword(self) -> Self {
        let key = self.key;
        self.named_keyword(key)
    }

    /// A keyword argument with this name sets it.
    pub const fn named_keyword(mut self, name: &'static str) -> Self {
        self.keyword = Some(name);
        self
    }

    /// Files may use this name as well.
    pub const fn with_alias(mut self, name: &'static str) -> Self {
        self.alias = Some(name);
        self
    }

    /// The smallest and the largest value: a number, milliseconds or bytes.
    pub const fn with_bounds(mut self, min: u64, max: u64) -> Self {
        self.bounds = Bounds { min, max };
        self
    }

    /// A time that a peer may take: from 50 milliseconds to a day.
    pub const fn with_time_bounds(self) -> Self {
        self.with_bounds(50, MAX_TIME_MILLIS)
    }

    /// What holds while nothing is set.
    pub const fn when_unset(mut self, meaning: &'static str) -> Self {
        self.unset = meaning;
        self
    }

    /// The variable of the environment, where it is not `GINNEL_` and the key.
    pub const fn named_variable(mut self, name: &'static str) -> Self {
        self.variable = SettingName::Special(name);
        self
    }

    /// The flag, where it is not made from the key.
    pub const fn named_flag(mut self, name: &'static str) -> Self {
        self.flag = SettingName::Special(name);
        self
    }

    /// There is no flag for it.
    pub const fn without_flag(mut self) -> Self {
        self.flag = SettingName::Absent;
        self
    }

    /// Only files may set it.
    pub const fn only_in_files(mut self) -> Self {
        self.variable = SettingName::Absent;
        self.without_flag()
    }

    /// The smallest and the largest value as they are written, where these are not just those of the
    /// type.
    pub fn written_bounds(&self) -> Option<[String; 2]> {
        let Bounds { min, max } = self.bounds;
        let is_meant = max < u32::MAX.into();
        is_meant.then(|| [min, max].map(self.field.bound))
    }

    /// Whether files call it so.
    pub fn is_called(&self, name: &str) -> bool {
        self.key == name || self.alias == Some(name)
    }

    /// The flag without its dashes; none for secrets, since command lines are for all to see.
    pub fn flag_name(&self) -> Option<String> {
        let usual = || self.key.replace(['_', '.'], "-");
        self.flag.or_else(usual).filter(|_| self.field.kind != ValueKind::Secret)
    }

    /// The variable of the environment; none for what only files may set.
    pub fn variable_name(&self) -> Option<String> {
        self.variable.or_else(|| format!("GINNEL_{}", self.key.replace('.', "_").to_uppercase()))
    }

    /// The value in a configuration as it may be shown; none where nothing is set.
    pub fn display_value(&self, config: &C) -> Option<String> {
        let text = (self.field.text)(config)?;
        Some(if self.field.kind == ValueKind::Secret { "***".to_owned() } else { text })
    }

    /// Reads values in place of what the configuration holds.
    ///
    /// # Errors
    /// With what is wrong, for a sentence behind the name of the setting.
    pub fn replace_value(
        &self,
        config: &mut C,
        values: &[impl AsRef<OsStr>],
    ) -> Result<(), String> {
        self.replace_within(config, values, self.bounds)
    }

    /// Reads values like [`Setting::replace_value`], within other bounds.
    ///
    /// # Errors
    /// If a value cannot be read. The problem is the end of a sentence that begins with the name of the setting.
    pub fn replace_within(
        &self,
        config: &mut C,
        values: &[impl AsRef<OsStr>],
        bounds: Bounds,
    ) -> Result<(), String> {
        (self.field.clear)(config);
        values.iter().map(AsRef::as_ref).try_for_each(|value| {
            let read = (self.field.read)(config, value, bounds);
            read.map_err(|problem| match self.field.kind {
                // Of many values, it is said which.
                ValueKind::List => {
                    format!("{}: {}", quote_value(value), without_login(value, &problem))
                }
                _ => without_login(value, &problem),
            })
        })
    }
}
