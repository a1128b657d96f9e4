//! The experiments: the ten of the articles, with their statements, and what they share.
//!
//! *Owns*: the list of files. Each experiment is one file over the rounds of the lab
//! ([`crate::rounds`]). *May not touch*: the rounds.

pub mod e1;
mod e10;
mod e2;
mod e3;
mod e4;
mod e5;
mod e5_group;
mod e6;
mod e7;
mod e8;
mod e9;
mod flight;
pub mod list;
pub mod part;
mod pattern;
mod scratch;
pub mod statement;
#[cfg(test)]
mod testing;
pub(crate) mod ways;

pub use e8::{ReadOrder, read};
pub use ways::quick as quick_ways;
