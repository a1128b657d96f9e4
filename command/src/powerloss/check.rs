//! `inkstone powerloss check`: what any command leaves when the power goes after its exit 0.
//!
//! *Owns*: its arguments, and those of the process that starts the command. *May not touch*:
//! running, crashing, comparing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use inkstone_powerloss::apart::{Place, inside};
use inkstone_powerloss::campaign::Campaign;
use inkstone_powerloss::check::{self, CheckOptions, table};
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::process::Program;
use inkstone_powerloss::result::RunResult;

use super::shared::{JsonArgument, campaign, code_of, quoted};
use super::writer::program;
use crate::export::Export;
use crate::parse::{names, size, some_time};
use crate::stdout::{erase, redraw};

const HELP: &str = "The command runs on a disk in memory, in a directory that is empty or a copy \
of the one given. At its exit 0 the power is cut, and again at each write of the writeback that \
follows. Each state is mounted, and each name that the command has changed is compared with what \
it was before and after:

  new                  as after the command
  old                  as before it
  old name back        a name that the command took away is there again
  left over            a file that it had for a while only
  missing              a name that it has made is not there
  missing, old and new it was there before and after, and is not there now
  empty, torn          neither the old one nor the new one
  another's bytes      what never was in this file

Time stamps are not compared. A command that exits with another code is not judged.

Examples:
  sudo inkstone powerloss check --in . -- sed -i s/old/new/ settings.ini
  sudo inkstone powerloss check --fs ext4,xfs --durable -- ./mine import {dir}
  sudo inkstone powerloss check --durable -- sh -c 'echo x >f; sync f .'

The directory is the command's current one; {dir} in an argument is its path. A program that is \
named by a path is looked for there, and then where you are. Elsewhere the command may write below \
/tmp and /dev alone. When it has ended, what it has left running is killed.

Exit code 0: the table is shown. 1: with --durable a name was anything but new. 2: nothing could \
be shown: the command cannot be started, failed, did not end, or changed nothing; the directory \
cannot be copied; or no file system can run here.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct CheckArguments {
    /// File systems
    #[arg(long = "fs", value_name = "LIST", value_delimiter = ',', default_value = "ext4")]
    #[arg(value_parser = names::<FsKind>())]
    kinds: Vec<FsKind>,
    /// Begin with a copy of this directory; nothing of it is changed
    #[arg(long = "in", value_name = "DIR")]
    given: Option<PathBuf>,
    /// Exit with 1 if anything but the new files is found after exit 0
    #[arg(long)]
    durable: bool,
    /// Cut the power while the command runs, not after its exit: an editor that truncates a file
    /// before it writes it is found (needs strace, which makes the command slow)
    #[arg(long, conflicts_with = "durable")]
    during: bool,
    /// States on each file system at most; fewer than there are, they are taken evenly
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    states: u32,
    /// How long the command may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time)]
    limit: Duration,
    /// How large the disk is; it is in memory [default: 64 MiB for ext4, 320 MiB xfs, 256 MiB
    /// btrfs]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    disk: Option<u64>,
    /// Keep a copy of the first state in which a file is damaged or gone
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Where to mount file systems
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Seed of which sectors in flight are kept
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    json: JsonArgument,
    /// The command and its arguments, behind `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Checks the command and prints the table.
pub(crate) fn check(arguments: &CheckArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let file = arguments.json.open()?;
    let program = program()?;
    let words = ["powerloss", "inside"].map(String::from).to_vec();
    let options = CheckOptions {
        command: from_here(&arguments.command, arguments.given.as_deref()),
        words: quoted(arguments.command.iter().map(|word| word.to_string_lossy().into_owned())),
        directory: arguments.given.clone(),
        limit: arguments.limit,
        states: arguments.states as usize,
        disk_bytes: arguments.disk,
        is_durable: arguments.durable,
        is_during: arguments.during,
        inside: Program { arguments: words, ..program },
    };
    let parent = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
    let campaign = campaign(arguments.kinds.clone(), arguments.seed, &parent)?;
    let campaign = Campaign { keep_in: arguments.keep.clone(), ..campaign };
    let results = check::run(&options, &campaign, stop, &mut redraw);
    erase();
    conclude(&results?, file, stop)
}

/// The command begins in another directory: a program that is named by a path from here is found
/// there by its whole path, unless the directory that is given has one of that name.
fn from_here(command: &[OsString], given: Option<&Path>) -> Vec<OsString> {
    let mut command = command.to_vec();
    let program = Path::new(&command[0]);
    let is_path = program.components().count() > 1 && program.exists();
    let is_given = given.is_some_and(|given| given.join(program).exists());
    if is_path
        && !is_given
        && let Ok(path) = std::path::absolute(program)
    {
        command[0] = path.into();
    }
    command
}

fn conclude(
    results: &[RunResult],
    json: Option<Export>,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    if !matches!(json, Some(Export::Stdout)) {
        say!("{}", table::in_words(results));
    }
    if let Some(mut file) = json {
        file.write(&(serde_json::to_string_pretty(results)? + "\n"))?;
    }
    Ok(code_of(results, stop))
}

#[derive(Debug, Args)]
pub(crate) struct InsideArguments {
    /// The mount that it may write to
    #[arg(long)]
    open: PathBuf,
    /// What it must not change
    #[arg(long)]
    sealed: Option<PathBuf>,
    /// Where the command works
    directory: PathBuf,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The first process of the command's namespaces.
pub(crate) fn begin(arguments: &InsideArguments) -> anyhow::Result<ExitCode> {
    let InsideArguments { open, sealed, directory, command } = arguments;
    let place = Place { directory: directory.clone(), open: open.clone(), sealed: sealed.clone() };
    inside(&place, command).map_err(anyhow::Error::msg)?;
    Ok(ExitCode::SUCCESS)
}
