//! What an operator knows of the addresses of visitors, for rules that ask.

use std::fmt;
use std::net::IpAddr;
use std::ops::BitOrAssign;
use std::sync::{Arc, OnceLock};

use serde_json::Value as Json;

use super::problem::{DocumentPath, Problem, code};

/// A kind of knowledge; each is in a file of its own, which may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// Where an address is.
    Place,
    /// Which autonomous system announces it.
    System,
    /// What the operator's list has it under.
    Category,
}

/// Some kinds of knowledge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressKinds([bool; AddressKind::ALL.len()]);

/// What is known of one address.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AddressFacts {
    /// As databases of places in MaxMind's form have it.
    pub place: Json,
    /// As databases of autonomous systems in MaxMind's form have it.
    pub system: Json,
    /// Its categories.
    pub categories: Vec<String>,
}

/// What an operator knows of addresses.
pub trait AddressDatabase: fmt::Debug + Send + Sync {
    /// The kinds that there are files for.
    fn kinds(&self) -> AddressKinds;

    /// What is known of an address.
    fn find(&self, address: IpAddr) -> AddressFacts;
}

/// What is known of the address of a visitor, looked up when the first rule asks.
#[derive(Debug, Clone, Default)]
pub struct AddressLookup {
    /// None where the operator has no files.
    database: Option<Arc<dyn AddressDatabase>>,
    found: OnceLock<AddressFacts>,
}

impl AddressKind {
    const ALL: [Self; 3] = [Self::Place, Self::System, Self::Category];

    /// The kind that a variable asks for.
    pub(super) fn from_variable(name: &str) -> Option<Self> {
        let name = name.strip_prefix("conn.")?;
        if name.starts_with("geo.") {
            return Some(Self::Place);
        }
        match name.strip_prefix("client_ip.")? {
            name if name.starts_with("geo.") => Some(Self::Place),
            name if name.starts_with("as.") => Some(Self::System),
            _ => Some(Self::Category),
        }
    }

    /// The setting of the service that names the file.
    pub fn setting_name(self) -> &'static str {
        match self {
            Self::Place => "geo_database",
            Self::System => "asn_database",
            Self::Category => "address_categories",
        }
    }

    fn variable_names(self) -> &'static str {
        match self {
            Self::Place => "conn.geo and conn.client_ip.geo",
            Self::System => "conn.client_ip.as",
            Self::Category => "conn.client_ip.categories, is_on_blocklist and is_tor_node",
        }
    }
}

impl AddressKinds {
    /// These and one more.
    pub fn insert(&mut self, kind: AddressKind) {
        self.0[kind as usize] = true;
    }

    /// What is wrong with a policy that asks for these where only those of `known` are there.
    pub fn missing_from(self, known: Self) -> Option<Problem> {
        let is_missing = |kind: &AddressKind| self.0[*kind as usize] && !known.0[*kind as usize];
        let kind = AddressKind::ALL.into_iter().find(is_missing)?;
        let (variables, setting) = (kind.variable_names(), kind.setting_name());
        let message = format!("{variables} need {setting}, which this service does not have");
        Some(DocumentPath::top_level("document").problem(code::EXPRESSION, message))
    }
}

impl BitOrAssign for AddressKinds {
    fn bitor_assign(&mut self, other: Self) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own |= more;
        }
    }
}

impl AddressLookup {
    /// A lookup that has not been made.
    pub fn from_database(database: Option<Arc<dyn AddressDatabase>>) -> Self {
        Self { database, found: OnceLock::new() }
    }

    /// What is known of this address, which is the same one each time.
    pub fn look_up(&self, address: IpAddr) -> Option<&AddressFacts> {
        let database = self.database.as_ref()?;
        Some(self.found.get_or_init(|| database.find(address.to_canonical())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_kind_does_not_stand_for_another() {
        let variables = ["conn.geo.city", "conn.client_ip.as.number", "conn.client_ip.is_tor_node"];
        for (variable, missing) in variables.iter().zip(AddressKind::ALL) {
            let mut asked = AddressKinds::default();
            asked.insert(AddressKind::from_variable(variable).unwrap());
            let mut others = AddressKinds::default();
            for kind in AddressKind::ALL.into_iter().filter(|kind| *kind != missing) {
                others.insert(kind);
            }

            let problem = asked.missing_from(others).unwrap().to_string();
            assert!(problem.contains(missing.setting_name()), "{variable}: {problem}");
            assert_eq!(asked.missing_from(asked), None);
        }
        assert_eq!(AddressKind::from_variable("conn.client_ip"), None);
    }
}
