//! A run: each strategy on each file system, recorded, cut, and checked.
//!
//! *Owns*: how many states of which run. *May not touch*: how a state is made or judged.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::content::{Left, look};
use super::moment::{Moment, State, each_state, state_at};
use super::plain::Plain;
use super::record::{Made, Recorded, acknowledgements, trial_of};
use super::report::{Report, Row, Verdict};
use super::trial::Trial;
use super::writer::DIRECTORY;
use crate::certificate::Certificate;
use crate::certificate::kernel;
use crate::kernel::disk::Disk;
use crate::kernel::each::on_each;
use crate::kernel::machine::{FsKind, Machine};
use crate::kernel::record::Program;
use crate::kernel::recording::Recording;
use crate::kernel::states::Subset;

/// States that are taken from one recording; more come from recordings of the next seeds.
const STATES_OF_A_RUN: usize = 60;
/// Steps of a run.
pub const STEPS: usize = 8;

/// What to run.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// On these file systems.
    pub kinds: Vec<FsKind>,
    /// These strategies.
    pub strategies: Vec<Plain>,
    /// States of each strategy on each file system.
    pub states: usize,
    /// The first run's.
    pub seed: u64,
    /// Where work directories are made.
    pub parent: PathBuf,
    /// Where recordings that contradict a claim are kept.
    pub keep_in: Option<PathBuf>,
    /// The writer.
    pub program: Program,
    /// The command that repeats the run.
    pub command: String,
}

/// Runs it.
///
/// # Errors
/// The work directory or a file system cannot be created.
pub fn run(
    campaign: &Campaign,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<(Report, Vec<Certificate>), String> {
    let mut report =
        Report { kernel: kernel(), command: campaign.command.clone(), ..Report::default() };
    let ran = on_each(&campaign.kinds, &campaign.parent, stop, |kind, machine| {
        match machine {
            Ok(machine) => report.rows.extend(on_kind(campaign, machine, kind, stop, progress)?),
            Err(why) => report.not_run.push(format!("{kind}: {why}")),
        }
        Ok(())
    })?;
    let seconds: Vec<_> = ran.iter().map(|ran| (ran.kind.to_string(), ran.seconds)).collect();
    report.not_run.extend(ran.into_iter().filter_map(|ran| ran.not_removed));
    let certificates = report.certificates(campaign.seed, &seconds);
    Ok((report, certificates))
}

fn on_kind(
    campaign: &Campaign,
    machine: &Machine,
    kind: FsKind,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, String> {
    let made = Made::new(machine, kind)?;
    let mut rows = Vec::new();
    for &strategy in &campaign.strategies {
        let trial = Trial { kind, strategy, seed: campaign.seed, steps: STEPS };
        let row = on_trial(campaign, machine, &made, trial, stop);
        progress(&row.to_string());
        rows.push(row);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(rows)
}

fn on_trial(
    campaign: &Campaign,
    machine: &Machine,
    made: &Made,
    first: Trial,
    stop: &AtomicBool,
) -> Row {
    let mut row = Row::new(&first);
    let mut told = None;
    for number in 0..campaign.states.div_ceil(STATES_OF_A_RUN) {
        let trial = Trial { seed: first.seed + number as u64, ..first };
        let states = (campaign.states - number * STATES_OF_A_RUN).min(STATES_OF_A_RUN);
        let before = row.telling_state().map(String::from);
        let recorded = match made.record(machine, &trial, &campaign.program, stop) {
            Ok(recorded) => recorded,
            Err(why) => {
                row.not_run = Some(why);
                break;
            }
        };
        if let Err(why) = states_of(machine, &trial, &recorded, states, stop, &mut row) {
            row.not_run = Some(why);
        }
        if told.is_none() || row.telling_state().map(String::from) != before {
            told = Some((trial, recorded.recording));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    row.conclude();
    // A run that did not reach its end proves nothing.
    row.as_claimed &= row.not_run.is_none();
    if let Some((trial, recording)) = told {
        // A mistake that was not caught has no state of its own: the plainest one at the end shows
        // it.
        let at_the_end = Moment { acked: trial.steps, after: 0, subset: Subset::None }.to_string();
        let state = row.telling_state().unwrap_or(&at_the_end);
        row.command = (row.verdict != Verdict::Held || row.hole.is_some() || !row.as_claimed)
            .then(|| command(campaign, &trial, &recording, state, row.as_claimed));
    }
    row
}

fn states_of(
    machine: &Machine,
    trial: &Trial,
    recorded: &Recorded,
    states: usize,
    stop: &AtomicBool,
    row: &mut Row,
) -> Result<(), String> {
    let Recorded { recording, after_kill } = recorded;
    row.lost_at_kill = row.lost_at_kill.max(after_kill.missing());
    let places = acknowledgements(recording, trial.steps)?;
    each_state(recording, &places, trial.kind.disk_bytes(), states, trial.seed, |state| {
        let found = look_at(machine, trial, &state);
        row.add(&state.moment.to_string(), state.moment.is_plainest(), state.moment.acked, found);
        !stop.load(Ordering::Relaxed)
    });
    Ok(())
}

/// Mounts a state and checks what is left.
fn look_at(machine: &Machine, trial: &Trial, state: &State) -> Result<Left, String> {
    let disk = Disk::new("state", state.image.clone());
    let running = machine.boot(&disk, trial.kind)?;
    let mut left = look(trial, &machine.target().join(DIRECTORY), state.moment.acked);
    if let Ok(left) = &mut left {
        add_strays(left, machine.target());
    }
    running.shut_down()?;
    left
}

/// Adds what e2fsck found without a name to the words about what is missing.
fn add_strays(left: &mut Left, target: &Path) {
    let strays = std::fs::read_dir(target.join("lost+found")).map_or(0, Iterator::count);
    if strays > 0 && left.missing() > 0 {
        left.words.push_str(&format!("; {strays} files in lost+found"));
    }
}

fn command(
    campaign: &Campaign,
    trial: &Trial,
    recording: &Recording,
    state: &str,
    as_claimed: bool,
) -> String {
    let Trial { kind, strategy, seed, .. } = trial;
    let again = format!(
        "inkstone powerloss strategies --fs {kind} --strategy {strategy} --seed {seed} --state {state}"
    );
    let Some(directory) = campaign.keep_in.as_ref().filter(|_| !as_claimed) else { return again };
    // The kernel's timing does not follow from the seed, so the recording of a violation is kept.
    let path = directory.join(format!("strategy-{kind}-{strategy}-{seed}.log-writes"));
    match recording.save(&path) {
        Ok(()) => {
            format!("inkstone powerloss strategies --recording {} --state {state}", path.display())
        }
        Err(error) => {
            format!("{again} (the recording could not be kept in {}: {error})", path.display())
        }
    }
}

/// Repeats one state of one run: recorded again, or from a file.
///
/// # Errors
/// It cannot be recorded or made, or there is no such state.
pub fn again(
    campaign: &Campaign,
    recording: Option<&Path>,
    moment: Moment,
    stop: &AtomicBool,
) -> Result<Row, String> {
    let machine = Machine::new(&campaign.parent)?;
    let found = again_in(&machine, campaign, recording, moment, stop);
    machine.remove()?;
    found
}

fn again_in(
    machine: &Machine,
    campaign: &Campaign,
    recording: Option<&Path>,
    moment: Moment,
    stop: &AtomicBool,
) -> Result<Row, String> {
    let (trial, recording) = match (recording, &campaign.kinds[..], &campaign.strategies[..]) {
        (Some(path), ..) => {
            let recording = Recording::load(path)?;
            (trial_of(&recording)?, recording)
        }
        (None, &[kind], &[strategy]) => {
            let trial = Trial { kind, strategy, seed: campaign.seed, steps: STEPS };
            let made = Made::new(machine, kind)?;
            (trial, made.record(machine, &trial, &campaign.program, stop)?.recording)
        }
        _ => return Err("a state belongs to one file system and one strategy: name both".into()),
    };
    let places = acknowledgements(&recording, trial.steps)?;
    let state = state_at(&recording, &places, trial.kind.disk_bytes(), moment)?;
    let mut row = Row::new(&trial);
    row.add(
        &moment.to_string(),
        moment.is_plainest(),
        moment.acked,
        look_at(machine, &trial, &state),
    );
    row.conclude();
    Ok(row)
}
