//! A value that many read and few replace.

use std::sync::{Arc, PoisonError, RwLock};

/// A value that many read and few replace; readers keep what they have read.
#[derive(Debug, Default)]
pub(crate) struct Slot<T>(RwLock<Arc<T>>);

impl<T> Slot<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}
