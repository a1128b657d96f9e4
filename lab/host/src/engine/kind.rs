//! What makes the system calls of a write.
//!
//! *Owns*: the names of the engines. *May not touch*: files.

use inkstone_io::named_choice;

named_choice! {
    /// What makes the system calls.
    EngineKind, "engine" {
        Caller = "caller", "the calling thread itself";
        Uring = "uring", "io_uring: one entry for the write, one for the sync";
        UringLinked = "uring-linked", "io_uring: the write linked to its fsync, one submission";
        Aio = "aio", "Linux AIO: io_submit and io_getevents";
    }
}
