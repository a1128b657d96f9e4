//! One use of a log with one fault: on a new disk, until the power is cut.
//!
//! *Owns*: the order of these steps. *May not touch*: what a fault is, what is right.

use std::ops::Range;
use std::path::Path;

use super::judge::{Left, Looked, judge, without_dropped};
use super::plan::{Fault, arm, mend, sectors_of_log};
use super::told::{Excuses, Met, met};
use super::watch::Watched;
use super::words::{Call, Class, Line};
use super::worker::Use;
use crate::kernel::disk::Disk;
use crate::kernel::image::Image;
use crate::kernel::machine::{FsKind, Machine};
use crate::kernel::record::Program;

/// Acknowledgements before the disk is armed; drawn up to here.
const BEFORE_MAX: usize = 40;
/// After this many further acknowledgements the log has not noticed the fault.
const AFTER: usize = 150;
/// The same for a file system without room.
const AFTER_WHEN_FULL: usize = 6000;
/// Refusals for want of room before there is room again.
const REFUSALS: u64 = 5;

/// What is done.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// The file system.
    pub kind: FsKind,
    /// What goes wrong.
    pub fault: Fault,
    /// How the log is used.
    pub usage: Use,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How often the fault occurred, in the disk or as a full file system.
    pub fired: u64,
    /// How the log handled it.
    pub met: Met,
    /// Acknowledged appends.
    pub acknowledged: u64,
    /// Flushes that the disk got between the poison and the log's closing, from anyone.
    pub flushes_after: u64,
    /// What the power cut left.
    pub looked: Looked,
    /// What is broken.
    pub broken: Vec<String>,
}

impl Outcome {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        if self.fired == 0 {
            "fault did not occur"
        } else if self.met.poison.is_some() {
            "poisoned"
        } else if self.met.no_room > 0 && self.met.went_on {
            "refused, then continued"
        } else if self.met.no_room > 0 {
            "refused"
        } else if !self.met.refused_openings.is_empty() {
            "opening or call refused"
        } else if self.met.unreadable.is_some() {
            "reading refused"
        } else {
            "not noticed"
        }
    }
}

/// Uses a log, lets the fault occur, makes the disk sound, reopens the log, cuts the power, and
/// checks what is left.
///
/// # Errors
/// Nothing could be tried at all: no file system, no process.
pub fn round(
    machine: &Machine,
    program: &Program,
    round: &Round,
    sampled: usize,
) -> Result<Outcome, String> {
    let Round { kind, fault, usage } = *round;
    let disk = Disk::new(kind.to_string().as_str(), Image::new(kind.disk_bytes()));
    disk.record();
    machine.make(&disk, kind)?;
    let running = machine.boot(&disk, kind)?;
    let directory = machine.target().join("log");
    let mut watched = Watched::start(program, &directory, &usage)?;
    let mut outcome = Outcome::default();
    let mut armed_at = 0;
    let lived = live(&mut watched, &disk, round, &directory, &mut outcome, &mut armed_at);
    // The disk must be sound before anything waits for it.
    outcome.fired = outcome.fired.max(mend(&disk));
    let recording = disk.take_recording();
    let lines = std::mem::take(&mut watched.lines);
    outcome.broken.extend(lived.err());
    outcome.broken.extend(watched.kill().err());
    if let Err(why) = running.shut_down() {
        outcome.broken.push(format!("the file system cannot be unmounted: {why}"));
        return Ok(outcome);
    }
    let excuses = Excuses {
        reads_fail: fault.reads_fail() || matches!(kind, FsKind::Xfs | FsKind::Btrfs),
        shows_old_bytes: kind == FsKind::Ext4DataJournal && fault.writes_fail(),
    };
    outcome.met = met(&lines, &machine.target().display().to_string(), excuses);
    if fault == Fault::FileSystemFull {
        outcome.fired = outcome.met.no_room + u64::from(outcome.met.poison.is_some());
    }
    outcome.broken.append(&mut outcome.met.broken.clone());
    let is_append = |line: &&Line| matches!(line, Line::Done(_, Call::Append | Call::Wait, ..));
    outcome.acknowledged = lines.iter().filter(is_append).count() as u64;
    let recording =
        if fault == Fault::FlushOnceDrops { without_dropped(&recording) } else { recording };
    let options = Use { mistake: None, ..usage }.options();
    let left =
        Left { kind, options: &options, recording: &recording, lines: &lines, from: armed_at };
    match judge(machine, &left, sampled, usage.seed) {
        Ok(looked) => outcome.looked = looked,
        Err(why) => outcome.broken.push(why),
    }
    Ok(outcome)
}

/// From the first opening to the power cut.
fn live(
    watched: &mut Watched,
    disk: &Disk,
    round: &Round,
    directory: &Path,
    outcome: &mut Outcome,
    armed_at: &mut usize,
) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(round.usage.seed ^ 0x6172_6D65_6421);
    let before = rng.usize(1..=BEFORE_MAX);
    let mut acknowledged = 0;
    while acknowledged < before {
        acknowledged += usize::from(is_acknowledgement(&watched.hear(disk)?));
    }
    let log: Vec<Range<u64>> = sectors_of_log(directory)?;
    *armed_at = disk.recorded().entries.len();
    arm(round.fault, disk, &log, rng.u64(..6));
    if round.fault == Fault::FileSystemFull {
        watched.tell("fill")?;
    }
    under_fault(watched, disk, round.fault, outcome)?;
    // Opened while the disk is still bad, then on a sound one, in the file system as it was left.
    for is_sound in [false, true] {
        if is_sound {
            outcome.fired = mend(disk);
            watched.tell("free")?;
        }
        watched.tell("reopen")?;
        while watched.hear(disk)? != Line::Rests {}
    }
    Ok(())
}

fn under_fault(
    watched: &mut Watched,
    disk: &Disk,
    fault: Fault,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let mut acknowledged = 0;
    let mut no_room = 0;
    let mut poisoned_at = None;
    let mut is_stopped = false;
    loop {
        let line = watched.hear(disk)?;
        match &line {
            Line::Rests => break,
            line if is_acknowledgement(line) => {
                acknowledged += 1;
                // The log notices a full file system when it needs its next segment, and it may
                // have some ready.
                let enough = match fault {
                    Fault::FileSystemFull if no_room == 0 => AFTER_WHEN_FULL,
                    _ => AFTER,
                };
                if acknowledged >= enough && !is_stopped {
                    is_stopped = true;
                    watched.tell("stop")?;
                }
            }
            Line::Failed(_, _, _, why) if why.class == Class::NoRoom => {
                no_room += 1;
                if no_room == REFUSALS {
                    if fault == Fault::DiskFull {
                        outcome.fired = mend(disk);
                    }
                    watched.tell("free")?;
                }
            }
            Line::Failed(_, _, _, why) if why.class == Class::Poisoned => {
                poisoned_at.get_or_insert(disk.counters().flushes);
            }
            Line::Begin(_, Call::Close, _) => {
                let now = disk.counters().flushes;
                outcome.flushes_after = poisoned_at.map_or(0, |then| now - then);
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_acknowledgement(line: &Line) -> bool {
    matches!(line, Line::Done(_, Call::Append | Call::Wait, ..))
}
