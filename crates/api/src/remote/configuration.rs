//! The configuration of the service: read again while it runs.

use crate::macros::{resource, wire};

wire! {
    /// What a reload of the configuration has done.
    pub struct ConfigurationReload {
        /// The settings that have new values now, `key: old is now new`; secrets are masked.
        pub changed: Option<Vec<String>>,
        /// The settings whose new values wait for a restart, in the same form.
        pub restart_needed: Option<Vec<String>>,
    }
}

resource! {
    /// The configuration of the service: read again while it runs.
    "configuration" {
        /// Read the configuration and the certificate again; only an admin may do so.
        POST "/configuration/reload" Reload() -> ConfigurationReload;
    }
}
