//! Runs calls that wait for a disk outside of the runtime's threads.
//!
//! *Owns*: choosing the thread. *May not touch*: anything else.

use std::panic::resume_unwind;

use tokio::runtime::Handle;

/// Runs `call` on a thread that may block: without a tokio runtime, on this one.
pub(crate) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    match Handle::try_current() {
        Ok(runtime) => match runtime.spawn_blocking(call).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, with every task that waits in it.
                Err(_) => std::future::pending().await,
            },
        },
        Err(_) => call(),
    }
}
