//! Tasks that are started seldom, such as one for each session or for each minute.
//!
//! tokio compiles the code that runs a task for each type of future: 2 kB for each of 150 places, which every user
//! downloads. These functions put the future into a box, so that it is compiled once for each type of result. Tasks of
//! requests and connections are started by tokio's own functions, without the allocation.

use std::future::Future;
use std::pin::Pin;

use tokio::task::JoinHandle;

/// Starts a task.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let boxed: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    tokio::spawn(boxed)
}

/// Runs work that may block on a thread for such work.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let boxed: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(boxed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    #[tokio::test]
    async fn a_task_gives_its_result_or_its_panic() {
        assert_eq!(super::spawn(async { 7 }).await.unwrap(), 7);
        assert_eq!(super::spawn_blocking(|| 7).await.unwrap(), 7);
        assert!(super::spawn(async { panic!("for this test") }).await.unwrap_err().is_panic());
    }
}
