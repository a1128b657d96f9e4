//! The command `torture`: its arguments, what it needs of this machine, its exit code.
//!
//! *Owns*: these. *May not touch*: what a run does (`run.rs`).
//!
//! Exit codes: 0 every promise held; 1 one was broken; 2 this machine cannot run it, and the words
//! say what is missing; 3 the run came to no end, or the checker to no answer: nothing is known; 64
//! the arguments make no sense.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use inkstone_host::WorkDir;
use inkstone_powerloss::kernel::machine::{self, FsKind};
use replicated_log_torture::clients::Load;
use replicated_log_torture::cluster::ClusterOptions;
use replicated_log_torture::faults::Kinds;
use replicated_log_torture::judge::{self, Judge};
use replicated_log_torture::network;
use replicated_log_torture::run::{RunOptions, Summary, run};

const CANNOT_RUN: u8 = 2;
const UNKNOWN: u8 = 3;
const USAGE: u8 = 64;

/// Tortures a replicated log: nodes in network namespaces, on real file systems on disks whose
/// power is cut, and a checker of what clients have seen. As root.
#[derive(Debug, Parser)]
#[command(name = "torture", version)]
struct Arguments {
    /// Rounds: clients work, faults come, all is mended, all is read
    #[arg(long, default_value_t = 20, overrides_with = "rounds")]
    rounds: u64,
    /// No round begins after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// The file system of all nodes: ext4, xfs or btrfs
    #[arg(long, value_parser = file_system, default_value = "ext4")]
    file_system: FsKind,
    /// Nodes: 1 to 9
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=9))]
    nodes: u64,
    /// Decides faults, crash states and what clients ask
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first round: with the seed of another run, one of its rounds again
    #[arg(long, default_value_t = 0, overrides_with = "first_round")]
    first_round: u64,
    /// What goes wrong, with commas between: all, others (all but power-all), power, network, disk,
    /// none, or names of faults
    #[arg(long, default_value = "all")]
    faults: Kinds,
    /// Clients at once
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Keys of a round
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    keys: u64,
    /// The mean pause of a client between two operations, in microseconds
    #[arg(long, default_value_t = 4000)]
    pause_us: u64,
    /// A new cluster after so many rounds
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    renew: u64,
    /// How long an opening may take, and after a round an answer and equal states, in seconds: what
    /// takes longer is a broken promise
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// The program `replicated-log`, if it is not beside this one
    #[arg(long)]
    program: Option<PathBuf>,
    /// One more argument of each node, as --snapshot-every=20; may be given many times
    #[arg(long, allow_hyphen_values = true, action = clap::ArgAction::Append)]
    node_argument: Vec<String>,
    /// Where a failure is kept
    #[arg(long, default_value = "torture-kept")]
    keep: PathBuf,
    /// A mistake of the clients: a write of which nothing is known is sent again
    #[arg(long)]
    retries_blindly: bool,
}

fn file_system(name: &str) -> Result<FsKind, String> {
    let all = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    all.into_iter().find(|kind| kind.to_string() == name).ok_or("ext4, xfs or btrfs".into())
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let missing = machine::missing().or_else(|| arguments.file_system.missing());
    if let Some(why) = missing.or_else(network::missing).or_else(judge::missing) {
        eprintln!("NOT RUN: {why}");
        return ExitCode::from(CANNOT_RUN);
    }
    match torture(arguments) {
        Ok(summary) => {
            print!("{summary}");
            match (summary.broken.is_empty(), summary.undecided.is_empty()) {
                (false, _) => ExitCode::from(1),
                (true, false) => ExitCode::from(UNKNOWN),
                (true, true) => ExitCode::SUCCESS,
            }
        }
        Err(why) => {
            eprintln!("NO END: {why}");
            ExitCode::from(UNKNOWN)
        }
    }
}

fn torture(arguments: Arguments) -> Result<Summary, String> {
    let this = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let program = arguments.program.unwrap_or_else(|| this.with_file_name("replicated-log"));
    if !program.exists() {
        let path = program.display();
        return Err(format!("{path} is not there: build replicated-log, or name it by --program"));
    }
    let parent = std::env::temp_dir();
    // Removed when the run ends, or by the next one after a kill.
    let work = WorkDir::create(&parent).map_err(|error| error.to_string())?;
    let logs = work.path().join("logs");
    std::fs::create_dir(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let judge = Judge::build(work.path())?;
    let options = RunOptions {
        cluster: ClusterOptions {
            nodes: arguments.nodes as usize,
            kind: arguments.file_system,
            program,
            arguments: node_arguments(arguments.node_argument),
            parent,
            logs,
            seed: arguments.seed,
            patience: Duration::from_secs(arguments.patience),
        },
        kinds: arguments.faults,
        rounds: arguments.rounds,
        first_round: arguments.first_round,
        time: arguments.seconds.map(Duration::from_secs),
        renew: arguments.renew,
        load: Load {
            clients: arguments.clients,
            keys: Vec::new(),
            pause: Duration::from_micros(arguments.pause_us),
            seed: 0,
            retries_blindly: arguments.retries_blindly,
        },
        keys: arguments.keys,
        keep: arguments.keep,
    };
    run(&options, &judge, work.path())
}

/// Short times and small pieces, so that a round of seconds has elections, snapshots, purges and
/// new segments in it.
fn node_arguments(given: Vec<String>) -> Vec<String> {
    let defaults =
        [("--election-ms", "200"), ("--snapshot-every", "150"), ("--segment-bytes", "4194304")];
    let is_given = |name: &str| given.iter().any(|word| word.split('=').next() == Some(name));
    let left = defaults.into_iter().filter(|(name, _)| !is_given(name));
    left.map(|(name, value)| format!("{name}={value}")).chain(given.clone()).collect()
}
