//! Texts and bytes that the library makes and the caller frees.
//!
//! *Owns*: handing them out and taking them back. *May not touch*: what they say.

use std::ffi::{CString, c_char};
use std::ptr;

use crate::error::{Failure, c_text, quietly};
use crate::out::Out;
use crate::pointers::inkstone_bytes;
use crate::pointers::required;

/// Makes a text and gives it to the caller; the caller's place is null if it cannot be made.
pub(crate) fn give(
    place: Out<'_, *mut c_char>,
    name: &str,
    make: impl FnOnce() -> Result<String, Failure>,
) -> Result<(), Failure> {
    let mut place = required(place, name)?;
    place.put(ptr::null_mut());
    place.put(c_text(make()?).into_raw());
    Ok(())
}

/// No bytes.
pub(crate) const NONE: inkstone_bytes = inkstone_bytes { data: ptr::null(), size: 0 };

/// Gives bytes to the caller.
pub(crate) fn give_bytes(place: &mut Out<'_, inkstone_bytes>, bytes: Vec<u8>) {
    let bytes = Box::leak(bytes.into_boxed_slice());
    place.put(inkstone_bytes { data: bytes.as_ptr().cast(), size: bytes.len() });
}

/// Frees a text that a call of this library has put into a `char **`. NULL is nothing.
///
/// Threads: any, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: a text that `give` made, freed once.
        let text = unsafe { CString::from_raw(text) };
        quietly((), || drop(text));
    }
}

/// Frees bytes that a call of this library has put into an `inkstone_bytes *bytes`, and sets `data`
/// to NULL and `size` to 0. NULL, or bytes that are NULL, are nothing.
///
/// Threads: any, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_bytes_free(bytes: *mut inkstone_bytes) {
    // SAFETY: null, or a place of the caller's.
    let Some(bytes) = (unsafe { bytes.as_mut() }) else { return };
    let given = std::mem::replace(bytes, NONE);
    if !given.data.is_null() {
        let slice = ptr::slice_from_raw_parts_mut(given.data.cast_mut().cast::<u8>(), given.size);
        // SAFETY: bytes that `give_bytes` made, freed once.
        let owned = unsafe { Box::from_raw(slice) };
        quietly((), || drop(owned));
    }
}
