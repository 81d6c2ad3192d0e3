//! Why a batch of changes was not stored.

use std::path::PathBuf;

use super::{StorageFault, StoreError};

/// Why a batch was not stored, for each of its jobs.
#[derive(Debug, Clone)]
pub(super) struct BatchError {
    pub fault: Option<StorageFault>,
    pub problem: String,
    /// The file that has lost its name.
    pub file: Option<PathBuf>,
}

impl From<StoreError> for BatchError {
    fn from(error: StoreError) -> Self {
        let (fault, problem) = (error.fault(), error.to_string());
        let file = match error {
            StoreError::Detached { path, .. } => Some(path),
            _ => None,
        };
        Self { fault, problem, file }
    }
}

impl From<rusqlite::Error> for BatchError {
    fn from(error: rusqlite::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl From<BatchError> for StoreError {
    fn from(BatchError { fault, problem, .. }: BatchError) -> Self {
        Self::Commit { fault, problem }
    }
}
