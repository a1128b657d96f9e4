//! The bill: the requests that reached the device between one acknowledgement and the next, from
//! whom, and why.
//!
//! *Owns*: turning the kernel's events into counts. *May not touch*: the measuring loop; events
//! come from `inkstone_host`. `layer` knows the devices, `requests` pairs the events of each
//! request, `attribute` decides what each request was, `below` whose requests reach the disk below
//! a loop device, `durable` whether flushes covered the acknowledgements.

mod attribute;
mod below;
mod durable;
pub(crate) mod evidence;
mod layer;
pub(crate) mod requests;

pub use attribute::{bill_of, shared_counters};
pub use evidence::Evidence;
pub use layer::{Layer, layers_of};
