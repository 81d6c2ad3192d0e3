//! What the operator knows of the addresses of visitors: databases in MaxMind's form, and a list.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use maxminddb::{MaxMindDbError, Reader};
use serde_json::Value as Json;

use ginnel_policy::{AddressDatabase, AddressFacts, AddressKind, AddressKinds, Cidr};

/// What is in the files, read once.
#[derive(Default)]
pub struct AddressFiles {
    places: Option<MaxMindDatabase>,
    systems: Option<MaxMindDatabase>,
    categories: Option<HashMap<Cidr, Vec<String>>>,
}

/// A database in MaxMind's form.
struct MaxMindDatabase {
    reader: Reader<Vec<u8>>,
    path: PathBuf,
    /// Whether the log has that something in it cannot be read.
    is_reported: AtomicBool,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressFileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It is no database in MaxMind's form.
    #[error(transparent)]
    Database(#[from] MaxMindDbError),
    /// A line of the list is not `CIDR,category`.
    #[error("line {0} is not a CIDR, a comma and a category")]
    Line(usize),
}

impl AddressFiles {
    /// Reads the file of a kind: a database in MaxMind's form, or a list of categories with
    /// `CIDR,category` on each line and comments behind `#`.
    ///
    /// # Errors
    /// When it cannot be read, or is something else.
    pub fn add_file(&mut self, kind: AddressKind, path: &Path) -> Result<(), AddressFileError> {
        match kind {
            AddressKind::Place => self.places = Some(MaxMindDatabase::open(path)?),
            AddressKind::System => self.systems = Some(MaxMindDatabase::open(path)?),
            AddressKind::Category => self.categories = Some(read_categories(path)?),
        }
        Ok(())
    }
}

impl MaxMindDatabase {
    fn open(path: &Path) -> Result<Self, AddressFileError> {
        let reader = Reader::open_readfile(path)?;
        Ok(Self { reader, path: path.to_owned(), is_reported: AtomicBool::new(false) })
    }

    fn lookup_address(&self, address: IpAddr) -> Json {
        // A database of IPv4 addresses knows nothing of others, which is no error.
        if address.is_ipv6() && self.reader.metadata().ip_version == 4 {
            return Json::Null;
        }
        let found = self.reader.lookup(address).and_then(|found| found.decode::<Json>());
        found.unwrap_or_else(|error| self.report_once(&error)).unwrap_or_default()
    }

    /// Says once that an entry cannot be read: its visitors are unknown to the rules.
    fn report_once(&self, error: &MaxMindDbError) -> Option<Json> {
        if !self.is_reported.swap(true, Relaxed) {
            let path = self.path.display();
            tracing::warn!(%path, err = %error, "a database of addresses has entries that cannot be read");
        }
        None
    }
}

fn read_categories(path: &Path) -> Result<HashMap<Cidr, Vec<String>>, AddressFileError> {
    let text = std::fs::read_to_string(path)?;
    let mut categories: HashMap<_, Vec<_>> = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (range, category) = parse_line(line).ok_or(AddressFileError::Line(index + 1))?;
        categories.entry(range).or_default().push(category.to_owned());
    }
    Ok(categories)
}

fn parse_line(line: &str) -> Option<(Cidr, &str)> {
    let (range, category) = line.split_once(',')?;
    let range: Cidr = range.trim().parse().ok()?;
    let category = category.trim();
    (!category.is_empty()).then(|| (range.network(), category))
}

impl AddressDatabase for AddressFiles {
    fn kinds(&self) -> AddressKinds {
        let mut kinds = AddressKinds::default();
        let files = [
            (AddressKind::Place, self.places.is_some()),
            (AddressKind::System, self.systems.is_some()),
            (AddressKind::Category, self.categories.is_some()),
        ];
        files
            .into_iter()
            .filter(|(_, is_there)| *is_there)
            .for_each(|(kind, _)| kinds.insert(kind));
        kinds
    }

    fn find(&self, address: IpAddr) -> AddressFacts {
        let of = |database: &Option<MaxMindDatabase>| {
            database.as_ref().map(|it| it.lookup_address(address))
        };
        AddressFacts {
            place: of(&self.places).unwrap_or_default(),
            system: of(&self.systems).unwrap_or_default(),
            categories: self.categories_of(address),
        }
    }
}

impl AddressFiles {
    /// Those of all ranges around an address, the smallest range first.
    fn categories_of(&self, address: IpAddr) -> Vec<String> {
        let Some(categories) = &self.categories else { return Vec::new() };
        let width = if address.is_ipv4() { 32 } else { 128 };
        let ranges = (0..=width).rev().filter_map(|bits| Cidr::from_prefix(address, bits));
        ranges.filter_map(|range| categories.get(&range)).flatten().cloned().collect()
    }
}

impl fmt::Debug for AddressFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("AddressFiles").field(&self.kinds()).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn categories(lines: &str, address: &str) -> Vec<String> {
        let path = std::env::temp_dir().join(format!("ginnel-{}.csv", std::process::id()));
        std::fs::write(&path, lines).unwrap();
        let mut files = AddressFiles::default();
        let added = files.add_file(AddressKind::Category, &path);
        std::fs::remove_file(&path).unwrap();
        added.unwrap();
        files.find(address.parse().unwrap()).categories
    }

    #[test]
    fn an_address_has_the_categories_of_all_ranges_around_it() {
        let lines = "# ours\n10.1.2.3/8, office\n10.1.2.3,desk # mine\n10.1.2.3,chair\n::/0,six\n";

        assert_eq!(categories(lines, "10.1.2.3"), ["desk", "chair", "office"]);
        assert_eq!(categories(lines, "10.9.9.9"), ["office"]);
        assert_eq!(categories(lines, "192.0.2.1"), [""; 0]);
        assert_eq!(categories(lines, "2001:db8::1"), ["six"]);
    }

    #[test]
    fn a_line_that_is_something_else_is_refused() {
        for line in ["10.0.0.0/8", "10.0.0.0/8,", "office,10.0.0.0/8"] {
            assert!(parse_line(line).is_none(), "{line}");
        }
    }
}
