//! A callback of the caller's, which is called once.
//!
//! *Owns*: the callback on its way to another thread. *May not touch*: when it is called.

use std::ffi::c_void;
use std::ptr;

use inkstone::Lsn;

use crate::error::inkstone_error;

/// Called once with what became of a record: `error` is NULL when it and all before it are on
/// stable storage, and else why it may not be. The error is the library's and valid until the
/// function returns. `lsn` is the record's in both cases.
pub type inkstone_callback =
    Option<unsafe extern "C" fn(context: *mut c_void, lsn: u64, error: *const inkstone_error)>;

/// A callback with its context, on its way to another thread.
pub(crate) struct Call {
    pub(crate) function: unsafe extern "C" fn(*mut c_void, u64, *const inkstone_error),
    pub(crate) context: *mut c_void,
    pub(crate) lsn: u64,
}

// SAFETY: the header tells that a context is handed to whichever thread makes the call.
unsafe impl Send for Call {}

impl Call {
    pub(crate) fn now(self, outcome: Result<Lsn, inkstone::Error>) {
        let error = outcome.err().map(|error| inkstone_error::of(&error));
        let error = error.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the function is the caller's, and the error outlives the call.
        unsafe { (self.function)(self.context, self.lsn, error) }
    }
}
