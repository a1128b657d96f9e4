//! Histories on a simulated disk, crashed at every instant, with every fault that such a disk can
//! have.
//!
//! *Owns*: which crashes are checked and how many. *May not touch*: how a disk loses what it loses
//! (`inkstone_sim`).

pub mod class;
pub mod explore;
pub mod fault;
pub mod killed;
pub mod lab;
pub mod lies;
pub mod readers;
pub mod run;
pub mod space;
pub(crate) mod stale;
pub mod threads;
pub mod variant;
