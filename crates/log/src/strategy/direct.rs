//! Whether groups can be written past the page cache here.
//!
//! *Owns*: that answer, and why not. *May not touch*: files, which way is chosen (`strategy.rs`).

use inkstone_io::{Capabilities, DioAlignment};

/// Groups are written in blocks of this size from memory aligned to it.
const BLOCK_BYTES: u32 = inkstone_format::limits::BLOCK_BYTES as u32;

/// Why O_DIRECT is not available; `None` if it is.
pub(super) fn no_direct(found: &Capabilities) -> Option<String> {
    let name = &found.mount.file_system;
    match found.direct {
        DioAlignment::Bytes { memory, offset }
            if memory <= BLOCK_BYTES && offset <= BLOCK_BYTES =>
        {
            None
        }
        DioAlignment::Bytes { memory, offset } => Some(format!(
            "O_DIRECT on this {name} needs an alignment of {memory} bytes in memory and {offset} \
             in the file, and groups are aligned to {BLOCK_BYTES}"
        )),
        DioAlignment::Refused => {
            Some(format!("this {name} has no O_DIRECT, or serves it through the page cache"))
        }
        DioAlignment::NotTold => {
            Some(format!("the kernel does not report what alignment O_DIRECT needs on this {name}"))
        }
    }
}
