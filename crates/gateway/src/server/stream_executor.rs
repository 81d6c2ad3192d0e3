//! Runs the requests of a connection that carries many at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use hyper::rt::Executor;

use crate::message::connection_activity::ConnectionActivity;

/// Runs the requests of a connection, and ends those that are given up.
#[derive(Clone)]
pub struct StreamExecutor(pub Arc<ConnectionActivity>);

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let Some(stream_timers) = self.0.stream_timers() else {
            tokio::spawn(request);
            return;
        };
        let stream_timer = stream_timers.start_timer();
        let request = stream_timer.clone().scope_request(request);
        tokio::spawn(async move {
            // Whoever lets go of a stream in the middle resets it.
            let mut request = pin!(request);
            tokio::select! {
                _ = poll_fn(|cx| stream_timer.poll(request.as_mut(), cx)) => {}
                () = stream_timer.is_over() => {}
            }
        });
    }
}
