//! The torture run of the replicated log: real processes in network namespaces of their own, on
//! real kernel file systems on disks whose power can be cut, and clients whose histories a
//! linearizability checker judges.
//!
//! *Owns*: what is done to a cluster from outside. *May not touch*: the cluster's insides: it
//! starts the program that users start, and asks through the client that users have.
//!
//! | module | |
//! |---|---|
//! | [`network`] | hosts, and how they are joined and parted |
//! | [`disk`], [`node`] | a node's disk, whose power can be cut while it is in use; its process |
//! | [`cluster`] | all of them, and carrying out a fault |
//! | [`faults`] | what goes wrong when, from a seed |
//! | [`clients`], [`history`] | what clients ask, and what they asked and heard |
//! | [`agreement`] | whether all nodes have the same state in the end |
//! | [`judge`] | whether a history is linearizable: the Go program in `checker/`, over porcupine |
//! | [`run`] | a round; all of them, and what is kept of a failure |
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what a name says needs no second word")]

pub mod agreement;
pub mod clients;
pub mod cluster;
pub mod disk;
pub mod faults;
pub mod history;
pub mod judge;
pub mod network;
pub mod node;
pub mod run;
