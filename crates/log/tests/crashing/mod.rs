//! What the crash tests stand on: histories from a seed, a model of what a log may hold, and the looking at what a crash
//! left.
//!
//! *Owns*: nothing itself. *May not touch*: the crate's insides: only the public log, and the simulated disk under it.

pub(crate) mod crash;
pub(crate) mod fault;
pub(crate) mod history;
pub(crate) mod lies;
pub(crate) mod model;
pub(crate) mod threads;
pub(crate) mod variant;
