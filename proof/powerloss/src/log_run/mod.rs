//! `run`: histories of a log, or of a raft log, recorded on each file system, and states of each
//! recording judged.
//!
//! *Owns*: how many states of which history, what is said of one. *May not touch*: how a state is
//! made ([`crate::medium`]).
//!
//! | module | |
//! |---|---|
//! | [`spec`], `writer` | what is done, and the process that does it (of a raft log: `raft.rs`) |
//! | [`chronicle`] | what is allowed at each moment of a recording |
//! | `project` | states that follow from a mounted one without a mount |

pub mod chronicle;
pub(crate) mod project;
mod raft;
pub mod spec;
pub(crate) mod writer;

use std::sync::atomic::AtomicBool;

use inkstone_io::OsDirectory;

use self::chronicle::{Again, Chronicle, May};
use self::project::{Projection, Projector, Seen, read_files};
use self::spec::{Kind, Spec};
use crate::campaign::Campaign;
use crate::kernel::machine::{FsKind, Machine};
use crate::kernel::states::{Cut, Subset};
use crate::medium::{Choice, Place, PowerCut, RunError, State};
use crate::process::Program;
use crate::result::RunResult;
use crate::runner::{self, Lab, Plan, Written};
use crate::sim::tally::log2_of_sum;
use crate::words::Way;

/// Mounted states that are taken from one history.
const STATES_OF_A_HISTORY: u64 = 40;
const LENGTH: usize = 24;
/// One mounted state in this many is cut again while it is judged.
const AGAIN_EVERY: u64 = 8;
/// After this many violations on one file system the rest would show the same.
const VIOLATIONS_MAX: usize = 5;

#[derive(Debug, Clone)]
pub struct Wanted {
    pub ways: Vec<Way>,
    /// States that the kernel mounts, on each file system.
    pub mounted: u64,
    /// States that are projected from these, on each file system.
    pub projected: u64,
    /// What is written. Of a raft log no states are projected.
    pub subject: Kind,
}

/// Runs it: a result for each file system, in order.
pub fn run(
    campaign: &Campaign,
    wanted: &Wanted,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<RunResult>, RunError> {
    let what = match wanted.subject {
        Kind::Log => "operations",
        Kind::Raft => "calls of a raft log",
    };
    let subject = format!("histories of {LENGTH} {what}; {}", Way::list(&wanted.ways));
    let ran = campaign.on_each("run", &subject, stop, |machine, kind, result| {
        on(campaign, wanted, (machine, kind), result, stop, progress)
    })?;
    Ok(ran.into_iter().map(|(result, ())| result).collect())
}

fn on(
    campaign: &Campaign,
    wanted: &Wanted,
    (machine, kind): (&Machine, FsKind),
    result: &mut RunResult,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    let (ways, lack) = Way::on(kind, &wanted.ways);
    if !lack.is_empty() {
        result.not_run.push(format!("{}: this file system has no O_DIRECT", Way::list(&lack)));
    }
    if ways.is_empty() {
        return Ok(());
    }
    let histories = wanted.mounted.div_ceil(STATES_OF_A_HISTORY).max(ways.len() as u64);
    let mut lab = LogRun {
        campaign,
        wanted,
        histories,
        ways,
        judging: None,
        seen: None,
        states: [0; 3],
        mounted: 0,
        again: 0,
        projection: Projection::default(),
        possible_log2: 0.0,
        done: 0,
    };
    let keep_in = campaign.keep_in.clone();
    let plan = Plan { rounds: histories, violations_max: VIOLATIONS_MAX, keep_in };
    let mut medium = PowerCut::new(machine, kind);
    runner::run(&plan, &mut medium, &mut lab, result, stop, progress)?;
    result.seeds = lab.done;
    result.classes.clear();
    result.count("mounted", lab.mounted);
    result.classes[0].possible_log2 = Some(lab.possible_log2);
    result.count("cut again", lab.again);
    lab.projection.describe(result, kind, wanted.projected);
    Ok(())
}

struct LogRun<'a> {
    campaign: &'a Campaign,
    wanted: &'a Wanted,
    histories: u64,
    ways: Vec<Way>,
    judging: Option<Judging>,
    /// What the last mount showed, if states are projected from it.
    seen: Option<Seen>,
    /// States to mount of this history, to project from them, and what was mounted so far.
    states: [u64; 3],
    mounted: u64,
    again: u64,
    projection: Projection,
    /// The binary logarithm of the number of all states that are possible at the judged cuts.
    possible_log2: f64,
    done: u64,
}

/// Records a history: what reaches the disk from mkfs on, and the writer's lines. An error that the
/// writer found is in the recording too.
pub fn record(
    medium: &mut PowerCut<'_>,
    spec: &Spec,
    program: &Program,
    stop: &AtomicBool,
) -> Result<Chronicle, String> {
    medium.record(program, &spec.to_string(), stop)?;
    Chronicle::read(&medium.recording)
}

impl Lab<PowerCut<'_>> for LogRun<'_> {
    fn write(
        &mut self,
        round: u64,
        medium: &mut PowerCut<'_>,
        stop: &AtomicBool,
    ) -> Result<Written, RunError> {
        let Self { campaign, wanted, .. } = *self;
        let spec = Spec {
            kind: medium.kind,
            way: self.ways[round as usize % self.ways.len()],
            // It does not depend on the way's number, so each way gets logs of every kind.
            seed: campaign.seed.wrapping_add(round),
            length: LENGTH,
            mistake: campaign.mistake,
            subject: wanted.subject,
        };
        let chronicle = record(medium, &spec, &campaign.program, stop)
            .map_err(|why| format!("{spec}: {why}"))?;
        let broken = chronicle.failed.iter().map(|why| format!("the writer itself failed: {why}"));
        let broken = broken.collect();
        let states = share(wanted.mounted, self.histories, round);
        self.states = [states, share(wanted.projected, self.histories, round), 0];
        let choice = Choice {
            plainest: 0,
            sampled: states as usize,
            from: chronicle.first,
            again_every: AGAIN_EVERY,
            seed: spec.seed,
        };
        self.judging = Some(Judging::new(chronicle));
        Ok(Written { choice: Some(choice), broken })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let judging = self.judging.as_mut().ok_or_else(|| "nothing was recorded".to_owned())?;
        if state.again.is_some() {
            self.again += 1;
            return Ok(judging.judge(state));
        }
        let [states, projected, done] = self.states;
        let seen = match (state.disk, &state.directory) {
            (Some(disk), Ok(directory)) if share(projected, states, done) > 0 => {
                Some(Seen { files: read_files(directory)?, mount: disk.recorded() })
            }
            _ => None,
        };
        let judged = judging.judge(state);
        self.seen = seen.filter(|_| judged.is_ok());
        self.mounted += 1;
        Ok(judged)
    }

    fn after(
        &mut self,
        machine: &Machine,
        cut: &Cut,
        kept: &[bool],
    ) -> Result<Result<(), (String, Place)>, RunError> {
        self.possible_log2 = log2_of_sum(self.possible_log2, cut.units.len() as f64);
        let [states, projected, done] = &mut self.states;
        let quota = share(*projected, *states, *done);
        *done += 1;
        let (Some(seen), Some(judging)) = (self.seen.take(), &self.judging) else {
            return Ok(Ok(()));
        };
        let Chronicle { spec, .. } = &judging.chronicle;
        let (May::Log(past), _) = judging.chronicle.at(cut.entry) else {
            return Ok(Ok(()));
        };
        let mut projector = Projector { machine, spec, cut, kept, seen: &seen, past };
        let seed = spec.seed ^ (self.mounted << 20);
        let projected = projector.project(&mut self.projection, quota, seed);
        let place = |kept| Place { entry: cut.entry, subset: Subset::Exactly(kept) };
        Ok(projected.map_err(|(why, kept)| (why, place(kept))))
    }

    fn words(&self) -> String {
        let spec = self.judging.as_ref().map(|judging| judging.chronicle.spec.to_string());
        spec.unwrap_or_default()
    }

    fn again(&self) -> String {
        self.campaign.command.clone()
    }

    fn is_over(&mut self, medium: &mut PowerCut<'_>) -> Option<String> {
        self.done += 1;
        Some(format!(
            "{}: {} of {} histories, {} states mounted, {} projected",
            medium.kind,
            self.done,
            self.histories,
            self.mounted + self.again,
            self.projection.states
        ))
    }
}

/// Judges states of a recording of a log, and those of a second cut.
#[derive(Debug)]
pub struct Judging {
    chronicle: Chronicle,
    /// What may be found when the last state is cut again.
    allowed: Option<Again>,
}

impl Judging {
    pub fn new(chronicle: Chronicle) -> Self {
        Self { chronicle, allowed: None }
    }

    pub fn chronicle(&self) -> &Chronicle {
        &self.chronicle
    }

    pub fn judge(&mut self, state: &State<'_>) -> Result<(), String> {
        let entry = state.place.as_ref().map_or(0, |place| place.entry);
        let (first, moment) = self.chronicle.at(entry);
        let (allowed, again) = match (state.again, &self.allowed) {
            (Some(marks), Some(again)) => {
                let when = ["before it was shown", "after it was shown", "after one more append"];
                (&again[marks.min(2)], format!("; after a second cut, {}", when[marks.min(2)]))
            }
            _ => (first, String::new()),
        };
        let directory = OsDirectory::create(state.up()?).map_err(|error| error.to_string())?;
        let mark = |text: &str| state.disk.iter().for_each(|disk| disk.mark(text));
        let shown = allowed.check(directory, &self.chronicle.spec, mark);
        let shown = shown.map_err(|why| format!("{moment}{again}: {why}"))?;
        if state.again.is_none() {
            self.allowed = Some(shown);
        }
        Ok(())
    }
}

/// The part of `all` that falls to number `number` of `parts`, so that they add up.
fn share(all: u64, parts: u64, number: u64) -> u64 {
    let parts = parts.max(1);
    all / parts + u64::from(number % parts < all % parts)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up() {
        for (all, parts) in [(0, 3), (10, 3), (9, 3), (2, 5), (100_000, 1001)] {
            let shares: Vec<_> = (0..parts).map(|number| share(all, parts, number)).collect();
            assert_eq!(shares.iter().sum::<u64>(), all);
            assert!(shares.iter().max().expect("some") - shares.iter().min().expect("some") <= 1);
        }
    }
}
