//! Cuts the power at any write and checks what is left of a log: nothing acknowledged may be lost,
//! nothing shown may be taken back, nothing may appear that was not appended.
//!
//! *Owns*: crash states and the checker. *May not touch*: the insides of the log, which it uses
//! through the public API; the operating system, which it reaches through `inkstone_io`.
//!
//! The `Err` of what judges says which promise is broken, in words. Any other error says what the
//! lab could not do, to which path, and why.
//!
//! | module | |
//! |---|---|
//! | `runner`, [`medium`], [`process`] | rounds; where a writer writes and crashes; its process |
//! | [`campaign`] | the settings of a lab; several file systems in turn |
//! | [`result`], [`keep`] | the result of a run, for machines and people; what a broken promise left |
//! | [`kernel`] | real file systems on disks in memory, recorded, cut, failing |
//! | [`words`], [`writer`] | what a writer of ours does, as words; the process that does it |
//! | [`in_use`] | a process that uses a log and says so, told to the judge |
//! | [`log_run`], [`kill`], [`faults`] | labs: its power is cut, it is killed, its disk fails |
//! | [`any`], [`server`] | lab: any writer and reader; a daemon with a client as those |
//! | `cause`, `fewest`, `view` | why a state is broken: the fewest sectors, files, and their syncs |
//! | [`check`], [`apart`] | lab: any command at all; its first process |
//! | [`test()`] | the same in anybody's `#[test]` |
//! | [`sim`] | lab: histories on the simulated disk, crashed at every instant |
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what a name says needs no second word")]

pub mod any;
pub mod apart;
pub mod campaign;
mod cause;
pub mod check;
pub mod faults;
mod fewest;
pub mod in_use;
pub mod keep;
pub mod kernel;
pub mod kill;
pub mod log_run;
pub mod medium;
pub mod process;
pub mod result;
pub(crate) mod runner;
pub mod server;
pub mod sim;
mod testing;
mod view;
pub mod words;
pub mod writer;

pub use self::testing::{Crash, Lines, Played, Report, Verdict, test};
