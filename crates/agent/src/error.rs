//! Why an agent cannot start, or cannot do what it was asked.

use std::io;
use std::path::PathBuf;

use ginnel_api::mask;

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", mask::path(path))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Certificates are unusable.
    #[error("certificates: {0}")]
    Certificates(String),
    /// An option is missing or unusable.
    #[error("{option}: {problem}")]
    Option {
        /// The option's name.
        option: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The local API cannot listen.
    #[error("web_addr: cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody can watch the agent at the address.
    #[error("admin_addr: cannot listen on {address}: {source}")]
    AdminAddress {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The service refused the agent for good.
    #[error("the service refused the agent: {0}")]
    Refused(String),
}

impl Error {
    /// The first of several problems.
    pub(super) fn first_problem(problems: Vec<Self>) -> Self {
        let none =
            || Self::Option { option: "options".to_owned(), problem: "cannot be read".to_owned() };
        problems.into_iter().next().unwrap_or_else(none)
    }
}
