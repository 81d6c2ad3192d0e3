//! What is known of the address of a visitor: where it is and whose, from files of the operator.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::super::address::AddressFacts;
use super::super::exchange::VisitorConnection;

/// A text that is known of an address: its variable, and where databases in MaxMind's form have it.
struct PlaceField {
    /// Below `conn.client_ip`.
    name: &'static str,
    /// As `conn.geo` has it, where it does.
    older: &'static str,
    pointer: &'static str,
}

const fn field(name: &'static str, older: &'static str, pointer: &'static str) -> PlaceField {
    PlaceField { name, older, pointer }
}

const FIELDS: &[PlaceField] = &[
    field("as.organization", "", "/autonomous_system_organization"),
    field("geo.location.city", "city", "/city/names/en"),
    field("geo.location.continent", "", "/continent/names/en"),
    field("geo.location.country", "country", "/country/names/en"),
    field("geo.location.country_code", "country_code", "/country/iso_code"),
    field("geo.location.latitude", "latitude", "/location/latitude"),
    field("geo.location.longitude", "longitude", "/location/longitude"),
    field("geo.location.metro_code", "", "/location/metro_code"),
    field("geo.location.postal_code", "", "/postal/code"),
    field("geo.location.radius", "radius", "/location/accuracy_radius"),
    field("geo.location.subdivision", "subdivision", "/subdivisions/0/names/en"),
    field("geo.location.timezone", "", "/location/time_zone"),
];

/// A text that is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Place(u8);

impl PlaceField {
    fn find_value<'f>(&self, facts: &'f AddressFacts) -> Option<&'f Json> {
        let database = if self.is_of_system() { &facts.system } else { &facts.place };
        database.pointer(self.pointer)
    }

    fn is_of_system(&self) -> bool {
        self.name.starts_with("as.")
    }
}

impl Place {
    /// The one of a variable.
    pub(super) fn from_variable(variable: &str) -> Option<Self> {
        let index = match variable.strip_prefix("conn.geo.") {
            Some(older) => FIELDS.iter().position(|field| field.older == older)?,
            None => {
                let name = variable.strip_prefix("conn.client_ip.")?;
                FIELDS.iter().position(|field| field.name == name)?
            }
        };
        u8::try_from(index).ok().map(Self)
    }

    /// The text; empty where nothing is known.
    pub(in super::super) fn read_text(self, connection: &VisitorConnection) -> Cow<'_, str> {
        match FIELDS
            .get(usize::from(self.0))
            .and_then(|field| field.find_value(connection.address_facts()?))
        {
            Some(Json::String(text)) => text.as_str().into(),
            Some(Json::Number(number)) => number.to_string().into(),
            _ => "".into(),
        }
    }
}

/// The number of the autonomous system; 0 where nothing is known.
pub(super) fn autonomous_system(connection: &VisitorConnection) -> u64 {
    let number = |facts: &AddressFacts| facts.system.get("autonomous_system_number")?.as_u64();
    connection.address_facts().and_then(number).unwrap_or_default()
}

/// Whether the address is in the European Union.
pub(super) fn is_eu(connection: &VisitorConnection) -> bool {
    let is_in =
        |facts: &AddressFacts| facts.place.pointer("/country/is_in_european_union")?.as_bool();
    connection.address_facts().and_then(is_in).unwrap_or_default()
}

/// The categories that the operator's list has the address in.
pub(super) fn address_categories(connection: &VisitorConnection) -> impl Iterator<Item = &str> {
    connection.address_facts().into_iter().flat_map(|facts| &facts.categories).map(String::as_str)
}
