//! The subcommands of `inkstone lab` that are about results and choices, not about measuring one
//! thing.
//!
//! *Owns*: the list of them. *May not touch*: what each does.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;

use crate::claims::{ClaimsArguments, claims};
use crate::compare::{CompareArguments, compare};
use crate::engines::{EnginesArguments, engines};
use crate::score::{ScoreArguments, score};

#[derive(Debug, Subcommand)]
pub(crate) enum ResultCommand {
    /// Check here what articles and public threads say of durable writes: confirmed, refuted, or it
    /// cannot be told
    Claims(ClaimsArguments),
    /// Score the rule and the tuned choice against the best durable way
    Score(ScoreArguments),
    /// Derive settings for PostgreSQL, RocksDB, MySQL, SQLite and etcd from a result
    Engines(EnginesArguments),
    /// Compare two results: what became slower, beyond noise
    Compare(CompareArguments),
}

/// Runs one of them.
pub(crate) fn run(command: &ResultCommand, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    match command {
        ResultCommand::Claims(arguments) => claims(arguments, stop),
        ResultCommand::Score(arguments) => score(arguments, stop),
        ResultCommand::Engines(arguments) => engines(arguments),
        ResultCommand::Compare(arguments) => compare(arguments),
    }
}
