//! Calls that wait for a disk, away from the threads of a runtime.
//!
//! *Owns*: the way there. *May not touch*: anything else.

use std::panic::resume_unwind;

use tokio::runtime::Handle;

/// Runs `call` on a thread that may wait. Where no runtime of tokio is, that is this one.
pub(crate) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    match Handle::try_current() {
        Ok(runtime) => match runtime.spawn_blocking(call).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is ending, and everything that waits in it with it.
                Err(_) => std::future::pending().await,
            },
        },
        Err(_) => call(),
    }
}
