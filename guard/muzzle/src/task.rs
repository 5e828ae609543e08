//! Tasks that end with their owner.

use std::future::Future;

use tokio::task::AbortHandle;

/// A running task that is aborted when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the task"]
pub(crate) struct TaskGuard(AbortHandle);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task that lives as long as the guard.
pub(crate) fn spawn_guarded(future: impl Future<Output = ()> + Send + 'static) -> TaskGuard {
    TaskGuard(start(future))
}

/// Starts a task that ends by itself. Only for work that carries its own deadline.
pub(crate) fn spawn_bounded(future: impl Future<Output = ()> + Send + 'static) {
    start(future);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the crate's one place that starts tasks outside a JoinSet"
)]
fn start(future: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(future).abort_handle()
}
