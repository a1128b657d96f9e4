//! What C hands over, made into safe values.
//!
//! *Owns*: null, lengths, paths. *May not touch*: what is done with them.
//!
//! Each function takes what its caller vouches for by the rules of the header: a pointer is null,
//! or points at what its type says for as long as the call lasts.

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::io::IoSlice;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::Failure;
use crate::out::Out;

/// Bytes somewhere in memory; laid out as struct iovec. `data` may be NULL if `size` is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct inkstone_bytes {
    /// Where they begin.
    pub data: *const c_void,
    /// How many they are.
    pub size: usize,
}

const _: () = {
    assert!(size_of::<inkstone_bytes>() == size_of::<libc::iovec>());
    assert!(offset_of!(inkstone_bytes, data) == offset_of!(libc::iovec, iov_base));
    assert!(offset_of!(inkstone_bytes, size) == offset_of!(libc::iovec, iov_len));
    assert!(size_of::<std::io::IoSlice<'_>>() == size_of::<libc::iovec>());
};

impl AsRef<[u8]> for inkstone_bytes {
    /// Call `check_pieces` first.
    fn as_ref(&self) -> &[u8] {
        if self.data.is_null() || self.size == 0 {
            return &[];
        }
        // SAFETY: a piece is made by the caller of a call that appends, who vouches for its bytes;
        // its size was checked.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.size) }
    }
}

/// The error of a null pointer.
#[cold]
pub(crate) fn null(name: &str) -> Failure {
    Failure::Misuse(format!("{name} is NULL"))
}

/// An error if the caller gave no place.
pub(crate) fn required<'a, T>(place: Out<'a, T>, name: &str) -> Result<Out<'a, T>, Failure> {
    if place.is_asked_for() { Ok(place) } else { Err(null(name)) }
}

/// What a handle refers to.
pub(crate) fn given<T>(handle: Option<T>, name: &str) -> Result<T, Failure> {
    handle.ok_or_else(|| null(name))
}

/// The bytes of a record.
///
/// # Safety
/// `data` is null, or points at `size` bytes that nothing changes during the call.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: as the caller says.
    unsafe { array(data.cast::<u8>(), size, "data") }
}

/// An array of the caller's. Null is an array of no elements.
///
/// # Safety
/// `data` is null, or points at `count` elements that nothing changes during the call.
pub(crate) unsafe fn array<'a, T>(
    data: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    let is_too_large =
        count.checked_mul(size_of::<T>().max(1)).is_none_or(|bytes| bytes > isize::MAX as usize);
    if data.is_null() || is_too_large {
        return Err(no_array(data.is_null(), count, name));
    }
    // SAFETY: as the caller says, and the size was checked.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

#[cold]
fn no_array(is_null: bool, count: usize, name: &str) -> Failure {
    Failure::Misuse(if is_null {
        format!("{name} is NULL, and its size is {count}")
    } else {
        format!("{name}: a size of {count} is more than memory can hold")
    })
}

/// A text of the caller's that ends with a zero byte.
///
/// # Safety
/// `text` is null, or points at bytes up to a zero byte that nothing changes during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A path: any bytes.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char, name: &str) -> Result<&'a Path, Failure> {
    // SAFETY: as the caller says.
    let path = unsafe { text(path, name)? };
    if path.is_empty() {
        return Err(Failure::Misuse(format!("{name} is empty")));
    }
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Checks each piece, and that no place is null where there are bytes. Returns how many bytes all
/// have together.
pub(crate) fn check_pieces(pieces: &[inkstone_bytes], name: &str) -> Result<u64, Failure> {
    let mut bytes = 0_u64;
    for (index, piece) in pieces.iter().enumerate() {
        if piece.size > 0 && piece.data.is_null() {
            return Err(Failure::Misuse(format!(
                "{name}[{index}].data is NULL, and its size is {}",
                piece.size
            )));
        }
        if piece.size > isize::MAX as usize {
            return Err(Failure::Misuse(format!(
                "{name}[{index}].size is more than memory can hold"
            )));
        }
        bytes = bytes.saturating_add(piece.size as u64);
    }
    Ok(bytes)
}

/// The parts of a record, as the log takes them. Parts without bytes may be null in C, and not
/// here: then they are left out, which takes memory for the list.
///
/// # Safety
/// `check_pieces` has passed the parts, and each points at its bytes, which nothing changes during
/// the call.
pub(crate) unsafe fn slices(parts: &[inkstone_bytes]) -> Cow<'_, [IoSlice<'_>]> {
    if parts.iter().any(|part| part.data.is_null()) {
        let with_bytes = parts.iter().filter(|part| part.size > 0);
        return with_bytes.map(|part| IoSlice::new(part.as_ref())).collect::<Vec<_>>().into();
    }
    // SAFETY: `inkstone_bytes` has the layout of `iovec`, which is that of `IoSlice` (asserted
    // beside the type), no place is null, and each part is bytes that the caller vouches for.
    let slices =
        unsafe { std::slice::from_raw_parts(parts.as_ptr().cast::<IoSlice<'_>>(), parts.len()) };
    slices.into()
}
