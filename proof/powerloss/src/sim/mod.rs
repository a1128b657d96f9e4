//! Histories on a simulated disk, crashed at every instant, with every fault that such a disk can
//! have.
//!
//! *Owns*: which crashes are checked and how many. *May not touch*: how a disk loses what it loses
//! (`inkstone_sim`).

pub mod class;
pub mod explore;
pub mod fault;
pub(crate) mod killed;
pub mod lab;
pub(crate) mod lies;
pub(crate) mod readers;
pub mod run;
pub mod space;
pub(crate) mod stale;
pub(crate) mod threads;
pub mod variant;
