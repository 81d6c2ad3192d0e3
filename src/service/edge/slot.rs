//! A value that many read and few replace.

use std::sync::{Arc, PoisonError, RwLock};

/// A value that many read and few replace; readers keep what they have read.
#[derive(Debug, Default)]
pub(super) struct Slot<T>(RwLock<Arc<T>>);

impl<T> Slot<T> {
    pub(super) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub(super) fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}
