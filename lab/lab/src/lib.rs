//! The lab: every durable way of writing a file, measured side by side on the user's own disk, with
//! what each commit costs at the block layer.
//!
//! *Owns*: experiments, sampling, statistics, and the report. *May not touch*: system calls
//! (`inkstone-io` makes them) or the terminal's arguments (`inkstone-cli` reads them).
//!
//! An overview: a [`cell::Cell`] is one way of writing; [`presets`] name sets of them; [`run`]
//! measures a set side by side ([`stage`] brings each file into its claimed state and checks it,
//! [`pass`] is the timed loop), and makes their [`bill`]s. Everything ends in a
//! [`result::LabResult`], the contract that [`table`] and [`export`] read. [`mod@bench`] measures
//! the log itself beside the bare overwrite that it cannot beat; [`experiment`] has the experiments
//! whose rows are not commits of a cell (reads, pools, depths, text lines). [`mod@tune`] chooses
//! the log's way of writing in two seconds and [`mod@score`] scores the choice; [`mod@compare`]
//! compares two results, [`disks`] several disks, and [`engines`] derives advice for other engines.
//! [`command`] has one function for each command of the lab.
#![forbid(unsafe_code)]

pub mod agree;
pub mod asked;
pub mod atlas;
pub mod bench;
pub mod bill;
pub mod billing;
pub mod cell;
pub mod claims;
pub mod command;
pub mod compare;
mod crowd;
pub mod disks;
pub mod engines;
pub mod experiment;
pub mod export;
pub mod finding;
pub mod histogram;
pub mod image;
pub mod labels;
pub mod machine;
pub mod numbered;
pub mod over_time;
pub mod pass;
mod preamble;
pub mod precondition;
pub mod presets;
pub mod progress;
mod relative;
pub mod report;
pub mod result;
pub mod run;
pub mod score;
pub mod site;
pub mod stage;
pub mod stats;
pub mod table;
pub mod tune;
pub mod twins;
pub mod warnings;
