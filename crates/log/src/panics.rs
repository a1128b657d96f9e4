//! Panics of the user's code that are caught, so that something else is done first, and then
//! resume.
//!
//! *Owns*: which of several resumes, and that no other is dropped. What a panic carries is the
//! user's: to drop it may panic again, and a panic while another one unwinds ends the process. *May
//! not touch*: what is done before.

use std::any::Any;
use std::mem::forget;
use std::panic::resume_unwind;
use std::thread::panicking;

/// What a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Keeps the first of several panics.
pub(crate) fn keep_first(first: &mut Option<Panic>, panic: Panic) {
    match first {
        None => *first = Some(panic),
        Some(_) => forget(panic),
    }
}

/// Resumes the panic that was kept, unless this thread unwinds already.
pub(crate) fn resume(kept: Option<Panic>) {
    match kept {
        Some(panic) if panicking() => forget(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}
