//! Files with facts about the addresses of visitors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ginnel_api::mask;
use ginnel_gateway::AddressFiles;
use ginnel_policy::{AddressDatabase, AddressKind, AddressKinds};
use ginnel_settings::settings;

use super::Error;

settings! {
    /// Files with facts about the addresses of visitors.
    #[derive(Debug, Clone)]
    pub struct AddressFileSettings {
    }

    /// The settings of the files.
    rows {
        geo_database: Option<PathBuf> = None,
            "geo_database", "FILE",
            "Database for conn.geo and conn.client_ip.geo, in MaxMind's format, with the places of addresses";
        asn_database: Option<PathBuf> = None,
            "asn_database", "FILE",
            "Database for conn.client_ip.as, in MaxMind's format, with the networks of addresses";
        address_categories: Option<PathBuf> = None,
            "address_categories", "FILE",
            "A list of CIDR,category lines, for conn.client_ip.categories";
    }
}

impl AddressFileSettings {
    /// The files, each with the kind of its facts.
    fn by_kind(&self) -> impl Iterator<Item = (AddressKind, &Path)> {
        let files = [
            (AddressKind::Place, &self.geo_database),
            (AddressKind::System, &self.asn_database),
            (AddressKind::Category, &self.address_categories),
        ];
        files.into_iter().filter_map(|(kind, path)| Some((kind, path.as_deref()?)))
    }

    /// The files that are named.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.by_kind().map(|(_, path)| path)
    }

    /// Opens the files. Returns `None` without files.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub(super) fn open(&self) -> Result<Option<Arc<dyn AddressDatabase>>, Error> {
        let mut files = AddressFiles::default();
        for (kind, path) in self.by_kind() {
            files.add_file(kind, path).map_err(|error| {
                Error::invalid_setting(
                    kind.setting_name(),
                    format!("{}: {error}", mask::path(path)),
                )
            })?;
        }
        let is_empty = files.kinds() == AddressKinds::default();
        Ok((!is_empty).then(|| Arc::new(files) as Arc<dyn AddressDatabase>))
    }
}
