//! Calls the user's listener of the log below while the raft log holds no lock, so that it may use
//! the raft log.
//!
//! *Owns*: which thread runs it. *May not touch*: the log and the state.
//!
//! The log sends an event on the thread where it happened. If that thread holds the order of
//! writes, the event waits until it is released.

use std::cell::Cell;
use std::sync::Arc;

use crate::callbacks::Callbacks;
use crate::sync::thread_local;

thread_local! {
    /// How many calls of a listener are on the stack of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread runs a listener.
pub(crate) fn is_listening_here() -> bool {
    DEPTH.with(Cell::get) > 0
}

/// Options whose listener waits while its thread has the order of writes.
pub(crate) fn wrap(options: inkstone::Options, callbacks: &Arc<Callbacks>) -> inkstone::Options {
    let callbacks = Arc::clone(callbacks);
    options.wrap_listener(move |listener| {
        Arc::new(move |event| {
            if callbacks.is_writing_here() {
                let (listener, event) = (Arc::clone(&listener), event.clone());
                callbacks.keep(Box::new(move || listen(|| listener(&event))));
            } else {
                listen(|| listener(event));
            }
        })
    })
}

fn listen(call: impl FnOnce()) {
    struct Left;
    impl Drop for Left {
        fn drop(&mut self) {
            DEPTH.with(|depth| depth.set(depth.get() - 1));
        }
    }
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    let _left = Left;
    call();
}
