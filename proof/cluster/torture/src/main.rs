//! The command `torture`: its arguments, what it needs of this machine, its exit code.
//!
//! *Owns*: these. *May not touch*: what a run does (`run.rs`).
//!
//! Exit codes: 0 every promise held; 1 one was broken; 2 this machine cannot run it, and the words
//! say what is missing; 3 the run came to no end, or the checker to no answer: nothing is known; 64
//! the arguments make no sense.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use inkstone_host::WorkDir;
use inkstone_powerloss::kernel::machine::{self, FsKind};
use replicated_log_torture::cluster::ClusterOptions;
use replicated_log_torture::faults::Kinds;
use replicated_log_torture::judge::{self, Judge};
use replicated_log_torture::network;
use replicated_log_torture::reach::{Blind, Programs};
use replicated_log_torture::run::{RunOptions, Summary, run};

const CANNOT_RUN: u8 = 2;
const UNKNOWN: u8 = 3;
const USAGE: u8 = 64;

/// A file system that nodes keep their directories on.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

/// A mistake of the clients, to see that the run notices it.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClientMistake {
    /// A write of which nothing is known is sent again.
    RetriesBlindly,
}

/// Tortures a replicated log: nodes in network namespaces, on real file systems on disks whose
/// power is cut, and a checker of what clients have seen. As root.
#[derive(Debug, Parser)]
#[command(name = "torture", version)]
struct Arguments {
    /// Rounds: clients work, faults come, all is mended, all is read
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// No round begins after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// The file system of all nodes
    #[arg(long, value_enum, default_value = "ext4")]
    file_system: FileSystem,
    /// Nodes: 1 to 9
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=9))]
    nodes: u64,
    /// Decides faults, crash states, weather and what clients ask
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first round: with the seed of another run, one of its rounds again
    #[arg(long, default_value_t = 0)]
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
    /// The program `replicated-log`; built if it is not beside this one
    #[arg(long)]
    program: Option<PathBuf>,
    /// One more argument of each node, as --snapshot-every=20; may be given many times
    #[arg(long, allow_hyphen_values = true)]
    node_argument: Vec<String>,
    /// Where a failure is kept
    #[arg(long, default_value = "torture-kept")]
    keep: PathBuf,
    /// A mistake of the clients
    #[arg(long, value_enum)]
    client_mistake: Option<ClientMistake>,
}

impl Arguments {
    fn kind(&self) -> FsKind {
        match self.file_system {
            FileSystem::Ext4 => FsKind::Ext4,
            FileSystem::Xfs => FsKind::Xfs,
            FileSystem::Btrfs => FsKind::Btrfs,
        }
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let kind = arguments.kind();
    let missing =
        machine::missing().or_else(|| machine::missing_for(kind)).or_else(network::missing);
    if let Some(why) = missing.or_else(judge::missing) {
        eprintln!("NOT RUN: {why}");
        return ExitCode::from(CANNOT_RUN);
    }
    match torture(&arguments) {
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

fn torture(arguments: &Arguments) -> Result<Summary, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => beside_this_one()?,
    };
    let parent = std::env::temp_dir();
    // Removed when the run ends, or by the next one after a kill.
    let work = WorkDir::create(&parent).map_err(|error| error.to_string())?;
    let place = work.path();
    let logs = place.join("logs");
    std::fs::create_dir(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let judge = Judge::build(place)?;
    let options = RunOptions {
        cluster: ClusterOptions {
            nodes: arguments.nodes as usize,
            kind: arguments.kind(),
            program,
            arguments: node_arguments(arguments),
            parent,
            logs,
            seed: arguments.seed,
            patience: Duration::from_secs(arguments.patience),
        },
        kinds: arguments.faults.clone(),
        rounds: arguments.rounds,
        first_round: arguments.first_round,
        time: arguments.seconds.map(Duration::from_secs),
        renew: arguments.renew,
        clients: arguments.clients,
        keys: arguments.keys as usize,
        pause: Duration::from_micros(arguments.pause_us),
        keep: arguments.keep.clone(),
        command: command(),
    };
    match arguments.client_mistake {
        None => run(&options, judge, place, |cluster, runtime| {
            Programs::new(&cluster.addresses(), runtime)
        }),
        Some(ClientMistake::RetriesBlindly) => run(&options, judge, place, |cluster, runtime| {
            Blind(Programs::new(&cluster.addresses(), runtime))
        }),
    }
}

/// Short times and small pieces, so that a round of seconds has elections, snapshots, purges and
/// new segments in it.
fn node_arguments(arguments: &Arguments) -> Vec<String> {
    let names = [
        ("--election-ms", "200"),
        ("--heartbeat-ms", "50"),
        ("--snapshot-every", "150"),
        ("--segment-bytes", "4194304"),
    ];
    let given = &arguments.node_argument;
    let defaults = names
        .iter()
        .filter(|(name, _)| !given.iter().any(|word| word.split('=').next() == Some(name)));
    defaults.map(|(name, value)| format!("{name}={value}")).chain(given.iter().cloned()).collect()
}

/// This command without the words that say which rounds: those follow.
fn command() -> String {
    let mut words = std::env::args().skip(1);
    let mut kept = vec!["torture".to_string()];
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rounds" | "--first-round" | "--seconds" => drop(words.next()),
            _ if ["--rounds=", "--first-round=", "--seconds="]
                .iter()
                .any(|name| word.starts_with(name)) => {}
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

/// The program `replicated-log` of the same build, made now if it is missing.
fn beside_this_one() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let program = this.with_file_name("replicated-log");
    let target =
        this.parent().and_then(Path::parent).ok_or("this program is in no target directory")?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "-p", "replicated-log", "--target-dir"]).arg(target);
    if this.parent().is_some_and(|directory| directory.ends_with("release")) {
        build.arg("--release");
    }
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../doors/openraft"));
    match build.status() {
        Ok(status) if status.success() && program.exists() => Ok(program),
        Ok(_) | Err(_) if program.exists() => Err(format!(
            "{} may be an old one: it could not be built again; name it with --program",
            program.display()
        )),
        Ok(status) => {
            Err(format!("replicated-log could not be built: {status}; name it with --program"))
        }
        Err(error) => {
            Err(format!("cargo: {error}; name the program replicated-log with --program"))
        }
    }
}
