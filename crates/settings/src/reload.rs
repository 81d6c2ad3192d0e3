//! What a reload changes.

use super::setting::{Reload, Setting, SettingSection};
use super::value::ValueKind;

/// A setting whose value is another than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// The key.
    pub key: &'static str,
    /// The value before, as it may be shown.
    pub from: String,
    /// The value now.
    pub to: String,
    /// When it has its effect.
    pub reload: Reload,
}

/// What is different in a new configuration.
pub fn diff_settings<C>(sections: &[SettingSection<C>], old: &C, new: &C) -> Vec<SettingChange> {
    let settings = sections.iter().flat_map(SettingSection::settings);
    settings.filter_map(|setting| diff_setting(setting, old, new)).collect()
}

/// Takes from the old configuration what only a restart can change.
pub fn keep_fixed<C>(sections: &[SettingSection<C>], old: &C, new: &mut C) {
    let settings = sections.iter().flat_map(SettingSection::settings);
    for setting in settings.filter(|setting| setting.reload == Reload::Restart) {
        (setting.field.copy)(new, old);
    }
}

fn diff_setting<C>(setting: &Setting<C>, old: &C, new: &C) -> Option<SettingChange> {
    let (from, to) = ((setting.field.text)(old), (setting.field.text)(new));
    let shown = |text: Option<String>| match (text, setting.field.kind) {
        (None, _) => "unset".to_owned(),
        (Some(_), ValueKind::Secret) => "***".to_owned(),
        (Some(text), _) => text,
    };
    let change = || SettingChange {
        key: setting.key,
        from: shown(from.clone()),
        to: shown(to.clone()),
        reload: setting.reload,
    };
    (from != to).then(change)
}
