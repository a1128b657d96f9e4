//! Which library this is, asked at run time.
//!
//! *Owns*: the number of the ABI. *May not touch*: anything else.

use std::ffi::{CStr, c_char};

/// The ABI that this header describes. It rises when a function or structure changes in a way that
/// a compiled program notices; what is only added leaves it. It is the number in the shared
/// library's soname.
pub const INKSTONE_ABI_VERSION: u32 = 1;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };

/// The ABI of the library that runs. A program that may meet another library than it was compiled
/// for (one that loads it by name, say) compares it with INKSTONE_ABI_VERSION before any other
/// call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn inkstone_abi_version() -> u32 {
    INKSTONE_ABI_VERSION
}

/// The version of the library, such as "0.1.0".
///
/// Owner: the library; never freed. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn inkstone_version() -> *const c_char {
    VERSION.as_ptr()
}
