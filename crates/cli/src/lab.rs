//! `inkstone lab` and its subcommands.
//!
//! *Owns*: their arguments. *May not touch*: measuring, rendering.

mod aa;
mod all;
mod experiments;
mod numbered;
mod zero_range;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use inkstone_io::NamedChoice;
use inkstone_lab::command::{
    AtlasOptions, Context, FilesystemsOptions, MeasureOptions, disks, fallocate, filesystems,
    measure, quick,
};
use inkstone_lab::image::{ImageKind, LoopMode};
use inkstone_lab::presets::Preset;
use inkstone_lab::result::LabResult;
use inkstone_lab::run::ROUNDS_MIN;
use inkstone_lab::warnings::DISK_FULL_WARNING;

use self::aa::AaArguments;
use self::all::AllArguments;
use self::experiments::ExperimentCommand;
use self::numbered::NumberedCommand;
use self::zero_range::ZeroRangeArguments;
use crate::disks::text;
use crate::output::{Output, View};
use crate::parse::{names, size};
use crate::report::{ReportArguments, report};
use crate::results::{self, ResultCommand};
use crate::select::{Billed, Device, Running, Selection, Where, title};

/// A pass of 256 commits of 4 KiB: a dozen file systems take minutes, not an hour.
const IMAGE_FILE_BYTES: u64 = 1 << 20;
/// The image of article 1.
const PUBLISHED_IMAGE_BYTES: u64 = 2 << 30;
const IMAGE_BYTES: u64 = 512 << 20;
/// The bytes that article 3 zeroed.
const PUBLISHED_ZEROING_BYTES: u64 = 10 << 30;
/// Enough to see which requests repeat.
const TIMELINE_COMMITS: usize = 3;

const BILL_EXAMPLES: &str = "\
Examples:
  sudo inkstone lab bill                   every way of the published comparison, at 4 KiB and at 512 B
  sudo inkstone lab bill /mnt/nvme --preset quick --commits 1000
  sudo inkstone lab bill --reuse new,reuse --durability fdatasync --timeline
                                           two ways, and every request of three commits of each

Exact bills need root, for the kernel's trace of the block layer.";
const FALLOCATE_EXAMPLES: &str = "\
Examples:
  inkstone lab fallocate                   this directory's file system only
  inkstone lab fallocate /mnt/nvme --size 1GiB
  sudo inkstone lab fallocate --file-systems ext4,xfs,btrfs    these too, created on loop devices";
const FILESYSTEMS_EXAMPLES: &str = "\
Examples:
  sudo inkstone lab filesystems            every file system on both kinds of loop devices: minutes
  sudo inkstone lab filesystems --file-systems ext4,ext4-nojournal --loops direct --bills
  sudo inkstone lab filesystems --file-systems xfs --reuse new,reuse --durability fdatasync,o-dsync
  sudo inkstone lab filesystems --preset e2 --published        at article 1's own size";
const EXAMPLES: &str = "\
Examples:
  inkstone lab                             a quick comparison in the current directory: under a minute
  inkstone lab /var/lib/db --json out.json
  inkstone lab /mnt/nvme /mnt/ssd          which of these disks is best for a log
  inkstone lab write --preset e1           every row of the published comparison, at a small size
  inkstone lab write --preset e1 --published
  inkstone lab write --reuse new,reuse --access direct --durability o-dsync,rwf-dsync --write-size 4KiB,64KiB
  sudo inkstone lab write --preset e1-removed --precondition none,fill,trim --fill-size 4GiB
                                           whether the device's own state matters (article 4 suspected it)
  sudo inkstone lab bill --timeline        the block requests that one commit causes
  sudo inkstone lab filesystems            ext4 with and without journal, xfs, btrfs, side by side
  inkstone lab compare before.json after.json   what became slower: exit code 3 if anything did
  inkstone lab engines out.json            settings for PostgreSQL, RocksDB, MySQL, SQLite, etcd
  sudo inkstone lab zero-range             whether ZERO_RANGE makes syncs faster here: the articles disagree
  inkstone lab fallocate                   what each mode of fallocate does to a file
  inkstone lab report out.json             one page, out.html, that needs no network
  inkstone lab aa --pairs 200              how often two identical arms are called different: the false alarms
  inkstone lab aa --of all                 the same for every row of every experiment: 6 minutes";

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
    /// Measure any combination: preparation x reuse x access x durability x engine x size x pass
    #[command(after_help = EXAMPLES)]
    Write {
        #[command(flatten)]
        place: Where,
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        running: Running,
        #[command(flatten)]
        device: Device,
        #[command(flatten)]
        output: Output,
    },
    /// Show what one commit costs at the block layer: reads, data writes, journal writes, flushes,
    /// and who submits them
    #[command(after_help = BILL_EXAMPLES)]
    Bill {
        #[command(flatten)]
        place: Where,
        #[command(flatten)]
        selection: Selection,
        /// Commits in each bill
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        commits: u64,
        /// Print every request of three commits of each cell
        #[arg(long)]
        timeline: bool,
        /// Seed of the bytes
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        #[command(flatten)]
        output: Output,
    },
    /// Show what each mode of fallocate does to a file
    #[command(after_help = FALLOCATE_EXAMPLES)]
    Fallocate {
        #[command(flatten)]
        place: Where,
        /// File systems to create and examine too (root)
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<ImageKind>())]
        file_systems: Vec<ImageKind>,
        /// Bytes of the zeroing comparison
        #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = size)]
        size: u64,
        /// Take the published size for the zeroing comparison: 10GiB
        #[arg(long, conflicts_with = "size")]
        published: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Measure the same cells on file systems created for this, on loop devices (root)
    #[command(after_help = FILESYSTEMS_EXAMPLES)]
    Filesystems {
        #[command(flatten)]
        place: Where,
        /// Which file systems [default: all; with --preset e2 --published ext4 with a journal and
        /// without]
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<ImageKind>())]
        file_systems: Vec<ImageKind>,
        /// Kinds of loop devices [default: both; with --preset e2 --published the published one,
        /// buffered]
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<LoopMode>())]
        loops: Vec<LoopMode>,
        /// Bytes of an image [default: 512MiB; with --preset e2 --published 2GiB; with --published
        /// enough for all files]
        #[arg(long, value_name = "SIZE", value_parser = size)]
        image_size: Option<u64>,
        /// Show each cell's whole bill: kinds of writes, submitters, both layers of the loop device
        #[arg(long)]
        bills: bool,
        /// Show the bills, and every request of three commits of each cell
        #[arg(long)]
        timeline: bool,
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        running: Running,
        #[command(flatten)]
        output: Output,
    },
    /// Measure whether ZERO_RANGE makes syncs faster (articles 1 and 2: yes, article 4: no), for
    /// each file system, size, sync and pass
    #[command(after_help = zero_range::EXAMPLES)]
    ZeroRange(ZeroRangeArguments),
    #[command(flatten)]
    Results(ResultCommand),
    /// Run all experiments into one result, within a time limit
    #[command(after_help = experiments::EXAMPLES)]
    All(AllArguments),
    #[command(flatten)]
    Experiment(ExperimentCommand),
    /// Make an HTML page from a result that `--json` wrote: charts, tables, the answer in words
    Report(ReportArguments),
    #[command(flatten)]
    Numbered(NumberedCommand),
    /// Compare identical arms: how often the lab calls equal things different
    #[command(after_help = aa::EXAMPLES)]
    Aa {
        #[command(flatten)]
        arguments: AaArguments,
    },
}

/// Runs the subcommand, or the quick tier.
pub(crate) fn lab(arguments: &LabArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Some(LabCommand::Results(command)) => return results::run(command, stop),
        Some(LabCommand::Numbered(command)) => return command.run(stop),
        Some(LabCommand::Report(arguments)) => return report(arguments),
        _ => {}
    }
    let output = output_of(arguments);
    output.check()?;
    if !has_cells(arguments) {
        output.check_has_no_csv()?;
    }
    let mut progress = output.progress();
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let mut context = Context { stop, progress: &mut progress, command };
    let Some(command) = &arguments.command else { return quick_tier(arguments, &mut context) };
    let (result, view) = measured(command, &mut context)?;
    show(output, &result, view)
}

/// Runs a command that measures; returns its result, and how it is shown.
fn measured(command: &LabCommand, context: &mut Context<'_>) -> anyhow::Result<(LabResult, View)> {
    Ok(match command {
        LabCommand::Write { place, selection, running, device, .. } => {
            let options = write_options(place, selection, running, device)?;
            (measure(&options, context)?, View::Runs)
        }
        LabCommand::Bill { place, selection, commits, timeline, seed, .. } => {
            let billed = Billed {
                commits: *commits,
                timeline_commits: if *timeline { TIMELINE_COMMITS } else { 0 },
                seed: *seed,
            };
            let cells = bill_cells(selection)?;
            let plan = billed.plan(cells.clone(), &title(&cells));
            let options = MeasureOptions::of(place.directory.clone(), plan, false);
            let view = if *timeline { View::BillsAndTimelines } else { View::Bills };
            (measure(&options, context)?, view)
        }
        LabCommand::Fallocate { place, file_systems, size, published, .. } => {
            let options = atlas_options(place, file_systems, *size, *published);
            (fallocate(&options, context)?, View::Fallocate)
        }
        LabCommand::Filesystems {
            place,
            file_systems,
            loops,
            image_size,
            bills,
            timeline,
            selection,
            running,
            ..
        } => {
            let mut options =
                filesystems_options(place, file_systems, loops, *image_size, selection, running)?;
            options.plan.timeline_commits = if *timeline { TIMELINE_COMMITS } else { 0 };
            let view = match (*bills, *timeline) {
                (_, true) => View::BillsAndTimelines,
                (true, false) => View::Bills,
                (false, false) => View::Runs,
            };
            (filesystems(&options, context)?, view)
        }
        LabCommand::ZeroRange(arguments) => (arguments.measured(context)?, View::Runs),
        LabCommand::All(arguments) => (arguments.measured(context)?, View::Runs),
        LabCommand::Experiment(command) => (command.measured(context)?, View::Runs),
        LabCommand::Aa { arguments } => (arguments.measured(context)?, View::Aa),
        LabCommand::Results(_) | LabCommand::Numbered(_) | LabCommand::Report(_) => {
            anyhow::bail!("this command measures nothing by itself")
        }
    })
}

/// Prints the result. A run during which the disk filled up is no success, whatever it measured
/// before.
pub(crate) fn show(output: &Output, result: &LabResult, view: View) -> anyhow::Result<ExitCode> {
    let code = output.show(result, view)?;
    Ok(if is_full(result) { ExitCode::FAILURE } else { code })
}

/// Whether the disk filled up during a run that nobody ended.
fn is_full(result: &LabResult) -> bool {
    let full = result.warnings.iter().any(|warning| warning.name == DISK_FULL_WARNING);
    full && !result.preamble.interrupted
}

/// In one directory, or in several to find the best of them.
fn quick_tier(arguments: &LabArguments, context: &mut Context<'_>) -> anyhow::Result<ExitCode> {
    let LabArguments { directories, output, .. } = arguments;
    if directories.len() > 1 {
        let found = disks(directories, context)?;
        return output.show_with(&found, &found.result, &text(&found));
    }
    if let Some(directory) = directories.first() {
        check_is_no_misspelt_command(directory)?;
    }
    show(output, &quick(directories.first().map(PathBuf::as_path), context)?, View::Runs)
}

/// Most mistakes in a command's name.
const MISTAKES_MAX: usize = 2;

/// A single word that is no directory may be meant as a command.
fn check_is_no_misspelt_command(directory: &Path) -> anyhow::Result<()> {
    let word = directory.to_string_lossy();
    if directory.exists() || word.contains('/') {
        return Ok(());
    }
    let definition = LabArguments::augment_args(clap::Command::new("lab"));
    let near = |name: &str| strsim::damerau_levenshtein(&word, name);
    let nearest =
        definition.get_subcommands().map(clap::Command::get_name).min_by_key(|name| near(name));
    match nearest.filter(|name| near(name) <= MISTAKES_MAX) {
        Some(name) => {
            anyhow::bail!(
                "there is no directory and no command {word:?}: `inkstone lab {name}` is one"
            )
        }
        None => Ok(()),
    }
}

fn output_of(arguments: &LabArguments) -> &Output {
    match &arguments.command {
        None | Some(LabCommand::Results(_) | LabCommand::Report(_) | LabCommand::Numbered(_)) => {
            &arguments.output
        }
        Some(LabCommand::ZeroRange(arguments)) => arguments.output(),
        Some(LabCommand::All(arguments)) => arguments.output(),
        Some(LabCommand::Experiment(command)) => command.output(),
        Some(
            LabCommand::Write { output, .. }
            | LabCommand::Bill { output, .. }
            | LabCommand::Fallocate { output, .. }
            | LabCommand::Filesystems { output, .. },
        ) => output,
        Some(LabCommand::Aa { arguments }) => arguments.output(),
    }
}

/// Whether the command's result has cells, which are the rows of a CSV.
fn has_cells(arguments: &LabArguments) -> bool {
    let has_none = |command: &LabCommand| {
        matches!(
            command,
            LabCommand::Aa { .. } | LabCommand::Fallocate { .. } | LabCommand::Experiment(_)
        )
    };
    !arguments.command.as_ref().is_some_and(has_none)
}

fn or_all<T: Copy>(given: &[T], all: &[T]) -> Vec<T> {
    if given.is_empty() { all.to_vec() } else { given.to_vec() }
}

/// E3 bills every arm of E1 at 4 KiB and at 512 B.
fn bill_cells(selection: &Selection) -> anyhow::Result<Vec<inkstone_lab::cell::Cell>> {
    let mut both = selection.clone();
    both.or_write_sizes(&[4096, 512]);
    both.cells(Preset::E1)
}

fn write_options(
    place: &Where,
    selection: &Selection,
    running: &Running,
    device: &Device,
) -> anyhow::Result<MeasureOptions> {
    let mut plan = running.plan(selection, Preset::E1, "")?;
    plan.title = title(&plan.cells) + &running.cut(&plan.cells);
    // Too few rounds to compare anything.
    let conclude = plan.rounds >= ROUNDS_MIN;
    Ok(MeasureOptions {
        preconditions: device.precondition.clone(),
        fill_bytes: device.fill_size,
        ..MeasureOptions::of(place.directory.clone(), plan, conclude)
    })
}

fn atlas_options(place: &Where, kinds: &[ImageKind], size: u64, published: bool) -> AtlasOptions {
    let default = [ImageKind::Ext4, ImageKind::Xfs, ImageKind::Btrfs];
    AtlasOptions {
        directory: place.directory.clone(),
        kinds: or_all(kinds, &default),
        zeroing_bytes: if published { PUBLISHED_ZEROING_BYTES } else { size },
    }
}

fn filesystems_options(
    place: &Where,
    kinds: &[ImageKind],
    modes: &[LoopMode],
    image_bytes: Option<u64>,
    selection: &Selection,
    running: &Running,
) -> anyhow::Result<FilesystemsOptions> {
    let mut selection = selection.clone();
    selection.or_size(IMAGE_FILE_BYTES);
    let mut plan = running.plan(&selection, Preset::Quick, "")?;
    plan.title = title(&plan.cells) + &running.cut(&plan.cells);
    // Article 1's two, its image, and its loop device.
    let is_e2 = selection.is_published(Preset::E2);
    let published = [ImageKind::Ext4, ImageKind::Ext4NoJournal];
    let files: u64 = plan.cells.iter().map(|cell| cell.file_bytes).sum();
    let image_bytes = image_bytes.unwrap_or(match (is_e2, files > IMAGE_BYTES / 2) {
        (true, _) => PUBLISHED_IMAGE_BYTES,
        (false, true) => files + files / 4,
        (false, false) => IMAGE_BYTES,
    });
    Ok(FilesystemsOptions {
        directory: place.directory.clone(),
        kinds: or_all(kinds, if is_e2 { &published } else { ImageKind::ALL }),
        modes: or_all(modes, if is_e2 { &[LoopMode::Buffered] } else { LoopMode::ALL }),
        image_bytes,
        plan,
    })
}
