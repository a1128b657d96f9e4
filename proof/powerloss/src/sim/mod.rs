//! Histories on a simulated disk, crashed at every instant, with every fault that such a disk can
//! have.
//!
//! *Owns*: which crashes are looked at and how many. *May not touch*: how a disk loses what it
//! loses (`inkstone_sim`), what is right ([`inkstone_subject`]).

pub(crate) mod beside;
pub mod class;
pub mod lab;
mod mortal;
pub mod prove;
pub mod space;
pub(crate) mod stale;
pub mod tally;
pub mod things;
pub(crate) mod threads;
pub mod variant;
pub mod walk;
pub mod way;

pub use inkstone_subject::PATH;
