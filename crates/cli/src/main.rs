//! The `inkstone` command.
//!
//! *Owns*: arguments, the terminal, exit codes. *May not touch*: measuring, logs; each subcommand is one call of a library.
//!
//! | exit code | |
//! |---|---|
//! | 0 | done; `powerloss`: every promise held; `verify`: intact (a torn tail is no damage); `append`: everything is durable; the reader closed the pipe |
//! | 1 | failed, or nothing could be measured; `verify`: corrupt; any other that met damage; `powerloss`: a promise was broken |
//! | 2 | the arguments make no sense; `verify`: it could not be found out (no log, an I/O error) |
//! | 3, 4 | `lab compare`: something became slower beyond noise; nothing can be told |
//! | 130 | ended by Ctrl-C, SIGTERM or SIGHUP, in order; `tee`: and everything that was read is in the log |
#![forbid(unsafe_code)]

mod bench;
mod claims;
mod columns;
mod compare;
mod disks;
mod engines;
mod lab;
mod log;
mod manual;
mod output;
mod parse;
mod powerloss;
mod report;
mod results;
mod score;
mod select;
mod signals;
mod tee;
mod tune;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory as _, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "inkstone", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure every durable way of writing a file on this disk
    Lab(Box<lab::LabArguments>),
    /// Measure the log beside a bare overwrite of a written file
    Bench(bench::BenchArguments),
    /// Measure for two seconds which way of writing is fastest here, and keep the choice beside the log
    Tune(tune::TuneArguments),
    /// Cut the power, and look at what is left of a log
    Powerloss(powerloss::PowerlossArguments),
    /// Write stdin into a rotating text log that survives a kill
    Tee(Box<tee::TeeArguments>),
    #[command(flatten)]
    Log(log::LogCommand),
    #[command(flatten)]
    Manual(manual::ManualCommand),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let stop = Arc::new(AtomicBool::new(false));
    // `tee` reads on after a signal, and listens by itself.
    let is_stopped = !matches!(arguments.command, Command::Tee(_));
    let listening = if is_stopped { signals::stop_on_signals(&stop) } else { Ok(()) };
    let outcome = listening.and_then(|()| match arguments.command {
        Command::Lab(lab) => lab::lab(&lab, &stop),
        Command::Bench(bench) => bench::bench(&bench, &stop),
        Command::Tune(tune) => tune::tune(&tune, &stop),
        Command::Powerloss(powerloss) => powerloss::powerloss(&powerloss, &stop),
        Command::Tee(tee) => tee::tee(*tee),
        Command::Log(command) => log::run(&command, &stop),
        Command::Manual(command) => manual::run(&command, Arguments::command()),
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // A closed pipe is the reader's way to say enough.
            let closed = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
            if error.chain().filter_map(|cause| cause.downcast_ref()).any(closed) {
                return ExitCode::SUCCESS;
            }
            eprintln!("inkstone: {error:#}");
            ExitCode::FAILURE
        }
    }
}
