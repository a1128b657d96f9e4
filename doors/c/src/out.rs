//! A place of the caller's for a result.
//!
//! *Owns*: writing there. *May not touch*: what the result is.

use std::mem::MaybeUninit;

/// A place of the caller's for a result. What is there before the call is never read.
pub(crate) struct Out<'a, T>(Option<&'a mut MaybeUninit<T>>);

impl<T> Out<'_, T> {
    pub(crate) fn put(&mut self, value: T) {
        if let Some(place) = &mut self.0 {
            place.write(value);
        }
    }

    pub(crate) fn is_asked_for(&self) -> bool {
        self.0.is_some()
    }
}

/// # Safety
/// `place` is null, or a place for a `T` that nothing else uses during the call.
pub(crate) unsafe fn out<'a, T>(place: *mut T) -> Out<'a, T> {
    // SAFETY: as the caller says; memory that may not hold a value yet is a `MaybeUninit`.
    Out(unsafe { place.cast::<MaybeUninit<T>>().as_mut() })
}
