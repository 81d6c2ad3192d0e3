//! Work on the database with the types of its caller erased.
//!
//! There are some hundred places that read or change the database. What carries their work to a thread
//! and back is compiled once, and not for each of them and each engine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{StoreError, Transaction, View};

/// A change that waits to be made, then goes back to its caller with what came of it.
pub trait Job: Any + Send {
    /// Makes the change; false when it failed and must be undone. May be called again, and makes the
    /// same change anew then.
    fn run(&mut self, transaction: &Transaction<'_>) -> bool;
    /// Notes that the change is not stored, whatever it gave.
    fn fail(&mut self, failure: StoreError);
    /// True when the change was made, and is not undone.
    fn is_made(&self) -> bool;
}

/// The work of a job, which may be called again.
type Work<T, E> = Box<dyn FnMut(&Transaction<'_>) -> Result<T, E> + Send>;

/// A job with the types of its caller.
pub struct TypedJob<T, E> {
    work: Work<T, E>,
    /// None until the change is made.
    result: Option<Result<T, E>>,
}

impl<T, E> TypedJob<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    /// Returns the job that does `work`.
    pub fn new_boxed(
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E> + Clone + Send + 'static,
    ) -> Box<dyn Job> {
        Self::from_repeatable(move |transaction: &Transaction<'_>| work.clone()(transaction))
    }

    /// Returns the job that does `work`, which makes the same change at each call.
    pub fn from_repeatable(
        work: impl FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Box<dyn Job> {
        Box::new(Self { work: Box::new(work), result: None })
    }

    /// Returns the result of a job of these types.
    pub fn downcast_result(job: Box<dyn Job>) -> Result<T, E> {
        let job: Box<dyn Any> = job;
        let result = job.downcast::<Self>().ok().and_then(|job| job.result);
        result.unwrap_or_else(|| Err(StoreError::Closed.into()))
    }
}

impl<T, E> Job for TypedJob<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    fn run(&mut self, transaction: &Transaction<'_>) -> bool {
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(transaction)));
        self.result = Some(result.unwrap_or_else(|_| Err(StoreError::Panicked.into())));
        self.is_made()
    }

    fn fail(&mut self, failure: StoreError) {
        self.result = Some(Err(failure.into()));
    }

    fn is_made(&self) -> bool {
        matches!(self.result, Some(Ok(_)))
    }
}

/// Something to be read on another thread, then handed back to its caller with what was read.
pub(super) trait ReadJob: Any + Send {
    fn run(&mut self, view: &View<'_>);
}

/// The work of a read, which is called once.
pub type ReadWork<T, E> = Box<dyn FnOnce(&View<'_>) -> Result<T, E> + Send>;

/// A read with the types of its caller.
pub(super) struct TypedRead<T, E> {
    /// None once it has run.
    work: Option<ReadWork<T, E>>,
    result: Option<Result<T, E>>,
}

impl<T, E> TypedRead<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    /// Returns the read that does `work`.
    pub fn new(work: ReadWork<T, E>) -> Self {
        Self { work: Some(work), result: None }
    }

    /// Returns the result of the read, which has run.
    pub fn into_result(self) -> Result<T, E> {
        self.result.unwrap_or_else(|| Err(StoreError::Closed.into()))
    }

    /// Returns the result of a read of these types.
    pub fn downcast_result(job: Box<dyn ReadJob>) -> Result<T, E> {
        let job: Box<dyn Any> = job;
        job.downcast::<Self>()
            .map_or_else(|_| Err(StoreError::Closed.into()), |it| it.into_result())
    }
}

impl<T, E> ReadJob for TypedRead<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    fn run(&mut self, view: &View<'_>) {
        self.result = self.work.take().map(|work| work(view));
    }
}
