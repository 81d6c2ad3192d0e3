//! Work on the database with the types of its caller erased.
//!
//! There are some hundred places that read or change the database. What carries their work to a thread
//! and back is compiled once, and not for each of them and each engine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{StoreError, StoreResult, Transaction, View};

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

/// A job with the types of its caller.
pub struct TypedJob<W, T, E> {
    work: W,
    /// None until the change is made.
    result: Option<Result<T, E>>,
}

impl<W, T, E> TypedJob<W, T, E>
where
    W: FnOnce(&Transaction<'_>) -> Result<T, E> + Clone + Send + 'static,
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    /// The job that does `work`.
    pub fn new_boxed(work: W) -> Box<dyn Job> {
        Box::new(Self { work, result: None })
    }

    /// What came of a job of these types.
    pub fn downcast_result(job: Box<dyn Job>) -> Result<T, E> {
        let job: Box<dyn Any> = job;
        let result = job.downcast::<Self>().ok().and_then(|job| job.result);
        result.unwrap_or_else(|| Err(StoreError::Closed.into()))
    }
}

impl<W, T, E> Job for TypedJob<W, T, E>
where
    W: FnOnce(&Transaction<'_>) -> Result<T, E> + Clone + Send + 'static,
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    fn run(&mut self, transaction: &Transaction<'_>) -> bool {
        let result = catch_unwind(AssertUnwindSafe(|| self.work.clone()(transaction)));
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

/// A read with the types of its caller.
pub(super) struct TypedRead<W, T, E> {
    /// None once it has run.
    work: Option<W>,
    result: Option<Result<T, E>>,
}

impl<W, T, E> TypedRead<W, T, E>
where
    W: FnOnce(&View<'_>) -> Result<T, E>,
    E: From<StoreError>,
{
    pub fn new(work: W) -> Self {
        Self { work: Some(work), result: None }
    }

    pub fn run(&mut self, view: &View<'_>) {
        self.result = self.work.take().map(|work| work(view));
    }

    /// What was read; `ran` says whether it could be.
    pub fn into_result(self, ran: StoreResult<()>) -> Result<T, E> {
        ran?;
        self.result.unwrap_or_else(|| Err(StoreError::Closed.into()))
    }
}

impl<W, T, E> TypedRead<W, T, E>
where
    W: FnOnce(&View<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    /// The read with its types erased.
    pub fn new_boxed(work: W) -> Box<dyn ReadJob> {
        Box::new(Self::new(work))
    }

    /// What a read of these types gave.
    pub fn downcast_result(job: Box<dyn ReadJob>) -> Result<T, E> {
        let job: Box<dyn Any> = job;
        let result = job.downcast::<Self>().ok().and_then(|job| job.result);
        result.unwrap_or_else(|| Err(StoreError::Closed.into()))
    }
}

impl<W, T, E> ReadJob for TypedRead<W, T, E>
where
    W: FnOnce(&View<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    fn run(&mut self, view: &View<'_>) {
        TypedRead::run(self, view);
    }
}
