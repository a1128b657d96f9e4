//! The C door of Inkstone: every function of `include/inkstone.h`, which is made from this crate.
//!
//! *Owns*: what crosses between C and Rust: pointers, errors, callbacks, panics. *May not touch*:
//! what the calls do; each is a call of the crate `inkstone`, or of `inkstone-streams`. Rust
//! programs use these.
//!
//! The names are those that C programs write, so that one name has one spelling. A function's text
//! is its text in the header: it says who owns what, which threads may call it, and what is durable
//! when it returns. Each function makes safe values of its arguments first, in one `unsafe` block
//! (`pointers.rs`), and does the rest inside `door` (`error.rs`), which turns errors into error
//! objects and keeps panics from crossing into C.

#![allow(non_camel_case_types, reason = "a type is called what C programs call it")]
#![allow(
    clippy::missing_safety_doc,
    reason = "cbindgen.toml has what a caller must keep, for all functions at once"
)]

mod append;
mod batch;
mod call;
mod error;
mod event;
mod inspect;
mod json;
mod log;
mod options;
mod out;
mod pointers;
mod read;
mod streams;
mod streams_read;
mod text;
mod version;

pub use append::*;
pub use batch::*;
pub use call::*;
pub use error::*;
pub use event::*;
pub use inspect::*;
pub use log::*;
pub use options::*;
pub use pointers::*;
pub use read::*;
pub use streams::*;
pub use streams_read::*;
pub use text::*;
pub use version::*;
