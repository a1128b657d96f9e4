//! The bill: the requests that reached the device between one acknowledgement and the next, from
//! whom, and why.
//!
//! *Owns*: turning the kernel's events into counts. *May not touch*: the measuring loop; events
//! come from `inkstone_host`. `layer` knows the devices, `requests` pairs the events of each
//! request, `attribution` decides whose each was (for `watch`, too), `durable` whether flushes
//! covered the acknowledgements, `commits` sums for the lab.

pub(crate) mod attribution;
mod commits;
pub(crate) mod durable;
mod evidence;
pub(crate) mod layer;
pub(crate) mod requests;

pub use commits::{Billed, bill_of};
pub use evidence::Evidence;
pub use layer::{Disk, Layer, Piece};
