//! The network of the cluster: hosts of their own, and a wire of ours between them.
//!
//! *Owns*: making and removing it, and the weather on it. *May not touch*: nodes, clients, disks.

mod hosts;
mod switch;
mod weather;

pub use hosts::{Hosts, missing, sweep};
pub use switch::Switch;
pub use weather::{Way, Weather};
