//! Lists, objects and arguments that are open, with their members.

use std::ops::Range;

use super::super::labels::{LabelReach, MAX_NAME_BYTES, PairRole};
use super::super::object_kinds::{KIND, KeySiblings, SECRET_KINDS, SECRET_LIST_KIND, is_key};

/// The number of bytes of a name that are examined. Items contain groups, which are longer than names.
const MAX_EXAMINED_BYTES: usize = 1024;

/// A value to hide.
#[derive(Debug, Clone)]
pub(super) struct HiddenValue {
    pub place: Range<usize>,
    /// The quote to write around the mask.
    pub quote: &'static str,
}

/// A value of a pair whose name may follow.
#[derive(Debug, Clone)]
pub(super) struct PairValue {
    pub role: PairRole,
    pub value: HiddenValue,
}

/// A list, an object or arguments in brackets, or a line outside of brackets.
#[derive(Debug, Default)]
pub(super) struct PairGroup {
    /// The bracket that opens it; 0 for a line.
    pub open: u8,
    pub start: usize,
    /// The name of the secret, if a member has one, and its reach.
    pub secret: Option<(String, LabelReach)>,
    pub has_name: bool,
    pub values: Vec<PairValue>,
    /// The kind of the object, if its members are secrets.
    pub kinds: [bool; SECRET_KINDS.len()],
    /// True for a list of Secrets of Kubernetes whose items have no kind.
    pub is_secret_list: bool,
    pub has_kind: bool,
    /// The members that one of the kinds hides.
    pub kind_values: Vec<(usize, HiddenValue)>,
    /// The data of objects in this one that have no kind.
    pub inner_data: Vec<HiddenValue>,
    /// The values of `key`, and the members next to them.
    pub keys: Vec<Range<usize>>,
    pub siblings: KeySiblings,
    /// The key of the current item, and the part that it has in a pair.
    pub key: Range<usize>,
    pub role: Option<PairRole>,
    /// The quote of the current key.
    pub quote: &'static str,
    pub has_key: bool,
    /// The place of the current item's value.
    pub value: Option<Range<usize>>,
    pub items: usize,
    pub first: Option<Range<usize>>,
    pub second: Option<Range<usize>>,
    /// The second items of the pairs in this list whose first is the name of a secret.
    pub pairs: Vec<HiddenValue>,
    /// True if an item has a key.
    pub has_keys: bool,
    /// True if an item is not a pair.
    pub has_others: bool,
}

impl PairGroup {
    /// Returns true if the value of a key follows.
    pub fn awaits_value(&self) -> bool {
        self.has_key && self.value.is_none()
    }

    /// Notes a member that has the kind of the object, or is hidden because of a kind.
    pub fn add_kind_member(&mut self, text: &str, place: Range<usize>) {
        let member = strip_quotes(text.get(self.key.clone()).unwrap_or_default());
        if member.len() > MAX_NAME_BYTES {
            return;
        }
        let written = examined_part(strip_quotes(text.get(place.clone()).unwrap_or_default()));
        if is_key(member) {
            self.keys.push(place.clone());
        }
        let is_text = text.get(place.clone()).is_some_and(|it| it.starts_with(['"', '\'', '\\']));
        self.siblings.add_member(member, is_text);
        self.has_kind |= member == KIND;
        self.is_secret_list |= member == KIND && written == SECRET_LIST_KIND;
        for (number, (is_kind, known)) in self.kinds.iter_mut().zip(&SECRET_KINDS).enumerate() {
            *is_kind |= known.is_of(member, written);
            if known.hidden.contains(&member) {
                let value = HiddenValue { place: place.clone(), quote: self.quote };
                self.kind_values.push((number, value));
            }
        }
    }
}

pub(super) fn strip_quotes(text: &str) -> &str {
    text.trim_matches(['"', '\'', '\\'])
}

/// Returns the beginning of a name if it is too long.
pub(super) fn examined_part(name: &str) -> &str {
    let mut end = name.len().min(MAX_EXAMINED_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}
