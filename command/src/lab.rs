//! `inkstone lab` and its subcommands.
//!
//! *Owns*: their arguments. *May not touch*: measuring, rendering.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use inkstone_host::FsKind;
use inkstone_io::NamedChoice;
use inkstone_lab::command::{ExperimentOptions, LabError, What, disks, experiments, parts, quick};
use inkstone_lab::experiment::part::{On, Part, Size};
use inkstone_lab::experiment::statement::statements;
use inkstone_lab::experiment::{EXPERIMENTS, Experiment, named};
use inkstone_lab::image::LoopMode;
use inkstone_lab::result::LabResult;

use crate::compare::{CompareArguments, compare};
use crate::output::{Output, View, render};
use crate::parse::{duration, names};
use crate::report::{ReportArguments, report};
use crate::select::{Running, Selection, Where, words_of_a_way};

/// A pass of 256 commits of 4 KiB: a dozen file systems take minutes, not an hour.
const IMAGE_FILE_BYTES: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  inkstone lab                             the fastest durable way on this disk: under a minute
  inkstone lab /mnt/nvme /mnt/ssd          which of these disks is best for a log
  inkstone lab write --only 'new fdatasync,reuse fdatasync'
  sudo inkstone lab write --bills          the block requests that one commit causes
  sudo inkstone lab write --file-systems ext4,xfs,btrfs
  inkstone lab experiment 8                ways of reading a file
  inkstone lab compare before.json after.json    what became slower: exit code 3
  inkstone lab report out.json             one page, out.html, that needs no network";
const WRITE_EXAMPLES: &str = "\
Examples:
  inkstone lab write                       every way of preparing a file for a log
  inkstone lab write --only 'new fdatasync,reuse fdatasync' --rounds 30
  inkstone lab write --only 'new fdatasync 512B,keep-size fdatasync 512B'
  sudo inkstone lab write --bills --rounds 1
  sudo inkstone lab write --file-systems ext4,ext4-nojournal,xfs --only 'new fsync,reuse o-dsync'

Exact bills need root, for the kernel's trace of the block layer.";
const ALL_EXAMPLES: &str = "\
Examples:
  sudo inkstone lab all --json all.json    the ten experiments and their statements: 6 minutes
  inkstone lab report all.json             and a page of it";
const EXPERIMENT_EXAMPLES: &str = "\
Examples:
  sudo inkstone lab experiment 1           small: seconds to minutes
  inkstone lab experiment 1 --list         its statements; nothing runs
  sudo inkstone lab experiment 2 --published --json e2.json
      as published: 1, 2 and 7 take hours
  sudo inkstone lab experiment 2 --published --rounds 1 --time 5m
      the published sizes, about 5 minutes for each table

The tables come as they are measured, the answers to the statements last. --json FILE is written
after each table, so that a kill costs only the one that is measured. What cannot run (without root,
say) is a warning.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    command: Option<LabCommand>,
    /// Directory on the disk to measure [default: the current one]; with several: which is best for
    /// a log
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Measure any ways: preparation x reuse x access x durability x engine x size x pass, here or
    /// on file systems created for this, and what one commit costs at the block layer
    #[command(after_help = format!("{WRITE_EXAMPLES}\n\n{}", words_of_a_way()))]
    Write(Box<WriteArguments>),
    /// Run the first answer and the ten experiments, small, and say whether the statements of
    /// articles and public threads hold here, within a time
    #[command(after_help = ALL_EXAMPLES)]
    All(AllArguments),
    /// Compare two results: what became slower, beyond noise
    Compare(CompareArguments),
    /// Make an HTML page from a result that `--json` wrote: charts, tables, the answer in words
    Report(ReportArguments),
    /// Repeat an experiment of the articles, and say whether its statements hold here
    #[command(after_help = EXPERIMENT_EXAMPLES)]
    Experiment(ExperimentArguments),
}

#[derive(Debug, Args)]
struct WriteArguments {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    selection: Selection,
    /// Measure on these file systems, created for this on loop devices (root)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<FsKind>())]
    file_systems: Vec<FsKind>,
    /// Kinds of their loop devices [default: both]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<LoopMode>())]
    #[arg(requires = "file_systems")]
    loops: Vec<LoopMode>,
    /// Show each way's whole bill in place of its times: kinds of requests, and who submits them
    #[arg(long)]
    bills: bool,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Args)]
struct AllArguments {
    #[command(flatten)]
    place: Where,
    /// Print the rows and the statements of the five articles as a Markdown table
    #[arg(long)]
    articles: bool,
    /// About how long all of it may take; what has no time left is named
    #[arg(long, value_name = "TIME", default_value = "6m", value_parser = duration)]
    time: Duration,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Args)]
struct ExperimentArguments {
    /// Which of the ten
    #[arg(value_name = "N", value_parser = numbers())]
    experiment: &'static Experiment,
    #[command(flatten)]
    place: Where,
    /// Take the published sizes, set-ups and rounds
    #[arg(long)]
    published: bool,
    /// Rounds of each table [default: its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// About how long each table may take [default: as long as each takes]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// List the statements and run nothing
    #[arg(long, conflicts_with_all = ["json", "directory"])]
    list: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the subcommand, or gives the quick answer.
pub(crate) fn lab(arguments: &LabArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let Some(command) = &arguments.command else { return answer(arguments, stop) };
    use LabCommand as L;
    match command {
        L::Write(arguments) => write(arguments, stop),
        L::All(arguments) => everything(arguments, stop),
        L::Compare(arguments) => compare(arguments),
        L::Report(arguments) => report(arguments),
        L::Experiment(arguments) => experiment(arguments, stop),
    }
}

/// In one directory, or in several to find the best of them.
fn answer(arguments: &LabArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let LabArguments { directories, output, .. } = arguments;
    if directories.len() > 1 {
        return output.show(View::Tables, stop, |context| disks(directories, context));
    }
    let directory = directories.first().map(PathBuf::as_path);
    output.show(View::Tables, stop, |context| quick(directory, context))
}

fn write(arguments: &WriteArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let WriteArguments { place, selection, file_systems, running, output, .. } = arguments;
    let mut selection = selection.clone();
    if !file_systems.is_empty() {
        selection.or_size(IMAGE_FILE_BYTES);
    }
    let mut part = Part::here(running.plan("write", selection.ways()?));
    if !file_systems.is_empty() {
        let modes = if arguments.loops.is_empty() { LoopMode::ALL } else { &arguments.loops };
        let alone = |&kind| modes.iter().map(move |&mode| vec![On::Image(kind, mode)]);
        part = part.on(file_systems.iter().flat_map(alone).collect());
    }
    let view = if arguments.bills { View::Bills } else { View::Tables };
    output.show(view, stop, |context| parts(place.directory(), &[part], context))
}

fn everything(arguments: &AllArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let AllArguments { place, articles, time, output } = arguments;
    let view = if *articles { View::Articles } else { View::All };
    let options = ExperimentOptions {
        what: What::All(*time),
        directory: place.directory.clone(),
        rounds: None,
    };
    output.show(view, stop, |context| experiments(&options, context, &mut |_| Ok(())))
}

/// Lists the statements of an experiment.
fn list(experiment: &Experiment) {
    for one in statements().iter().filter(|one| one.experiment == experiment.name) {
        let link = one.link.as_ref().map(|link| format!(", {link}")).unwrap_or_default();
        say!("{}\n  {}\n  source: {}{link}", one.id, one.says, one.source);
    }
}

/// Takes the number of an experiment.
fn numbers() -> impl TypedValueParser<Value = &'static Experiment> {
    let number = |experiment: &'static Experiment| experiment.name.trim_start_matches('e');
    let value = move |experiment| PossibleValue::new(number(experiment)).help(experiment.about);
    let values = PossibleValuesParser::new(EXPERIMENTS.iter().map(value));
    values.try_map(|number| named(&format!("e{number}")).ok_or("there is no such experiment"))
}

fn experiment(arguments: &ExperimentArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let ExperimentArguments { experiment, place, published, rounds, time, output, .. } = arguments;
    if arguments.list {
        say!("{}: {}\n", experiment.name, experiment.about);
        list(experiment);
        return Ok(ExitCode::SUCCESS);
    }
    let size = if *published { Size::Published } else { Size::Small };
    let options = ExperimentOptions {
        what: What::One(experiment, size, *time),
        directory: place.directory.clone(),
        rounds: *rounds,
    };
    let mut shown = 0;
    let mut so_far = |so_far: &LabResult| {
        output.say(&news(so_far, &mut shown));
        output.keep(so_far).map_err(|error| LabError::Refused(format!("{error:#}")))
    };
    output.show(View::Statements, stop, |context| experiments(&options, context, &mut so_far))
}

/// The tables of a growing result that were not shown yet.
fn news(so_far: &LabResult, shown: &mut usize) -> String {
    let tables = so_far.tables[*shown..].to_vec();
    let news = LabResult { tables, warnings: Vec::new(), ..so_far.clone() };
    *shown = so_far.tables.len();
    match news.has_content() {
        true => render(&news, View::Tables),
        false => String::new(),
    }
}
