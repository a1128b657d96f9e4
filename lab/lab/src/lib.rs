//! The lab: every durable way of writing a file, measured side by side on the user's own disk, with
//! what each commit costs at the block layer.
//!
//! *Owns*: experiments, sampling, statistics, and the report. *May not touch*: system calls
//! (`inkstone-io` makes them) or the terminal's arguments (`inkstone-cli` reads them).
//!
//! An overview: a [`writing::Writing`] is one way of writing; [`run`] measures a set of them side
//! by side ([`stage`] brings each file into its claimed state and checks it, [`pass`] is the timed
//! loop), and makes their [`bill`]s. [`experiment`] has the rest: ways of other work, the ten
//! experiments of the articles with their statements, and the parts that [`command`] runs. All of
//! them take turns over one runner ([`rounds`]). `answers` has the answers to the statements.
//! Everything ends in a [`result::LabResult`], the contract that [`table`] and [`report`] read.
//! [`log_bill`] is the bill of the log itself, [`mod@compare`] compares two results, and [`disks`]
//! several disks. [`mod@watch`] makes the bill of a program that runs already.
#![forbid(unsafe_code)]

mod answers;
mod atlas;
mod bar;
pub mod bill;
pub mod billing;
pub mod command;
pub mod compare;
pub mod crowd;
mod device;
pub mod disks;
pub mod experiment;
pub mod finding;
pub mod histogram;
pub mod image;
pub mod log_bill;
pub mod machine;
pub mod pass;
mod pattern;
pub mod progress;
pub mod report;
pub mod result;
pub mod rounds;
pub mod run;
pub mod site;
pub mod stage;
pub mod stats;
pub mod table;
pub mod warnings;
pub mod watch;
pub mod writing;
