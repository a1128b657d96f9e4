//! `run`: histories of a log, recorded on each file system, and states of each recording judged.
//!
//! *Owns*: how many states of which history. *May not touch*: how a state is made
//! ([`crate::medium`]); what is right ([`crate::in_use::judging`]).

use std::sync::atomic::AtomicBool;

use crate::campaign::Campaign;
use crate::in_use::judging::Recorded;
use crate::in_use::usage::Usage;
use crate::kernel::machine::{FsKind, Machine};
use crate::medium::{Choice, PowerCut, RunError, State};
use crate::process::Program;
use crate::result::RunResult;
use crate::runner::{self, Enough, Lab, Plan, Written};
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
}

/// Runs it: a result for each file system, in order.
pub fn run(
    campaign: &Campaign,
    wanted: &Wanted,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<RunResult>, RunError> {
    let subject = format!("histories of {LENGTH} operations; {}", Way::list(&wanted.ways));
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
    let mut lab = LogRun { campaign, wanted, histories, ways, recorded: None };
    let keep_in = campaign.keep_in.clone();
    let plan = Plan { enough: Enough::Rounds(histories), violations_max: VIOLATIONS_MAX, keep_in };
    let mut medium = PowerCut::new(machine, kind);
    result.seeds = histories;
    runner::run(&plan, &mut medium, &mut lab, result, stop, progress)
}

struct LogRun<'a> {
    campaign: &'a Campaign,
    wanted: &'a Wanted,
    histories: u64,
    ways: Vec<Way>,
    recorded: Option<Recorded>,
}

/// What is written, of a seed.
pub fn usage(kind: FsKind, way: Way, seed: u64, length: usize) -> Usage {
    Usage {
        threads: 1,
        seed,
        life: 0,
        from: 0,
        kind: Some(kind),
        way: Some(way),
        length: Some(length),
        ends_after: None,
        mistake: None,
    }
}

/// Records a history: what reaches the disk from mkfs on, and the writer's lines. What the writer
/// found wrong is in the recording too.
pub fn record(
    medium: &mut PowerCut<'_>,
    usage: &Usage,
    program: &Program,
    stop: &AtomicBool,
) -> Result<Recorded, String> {
    medium.record(program, &usage.to_string(), stop)?;
    Recorded::of(&medium.recording)
}

impl Lab<PowerCut<'_>> for LogRun<'_> {
    fn write(
        &mut self,
        round: u64,
        medium: &mut PowerCut<'_>,
        stop: &AtomicBool,
    ) -> Result<Written, RunError> {
        let Self { campaign, wanted, .. } = *self;
        let way = self.ways[round as usize % self.ways.len()];
        // It does not depend on the way's number, so each way gets logs of every kind.
        let seed = campaign.seed.wrapping_add(round);
        let usage = Usage { mistake: campaign.mistake, ..usage(medium.kind, way, seed, LENGTH) };
        let recorded = record(medium, &usage, &campaign.program, stop)
            .map_err(|why| format!("{usage}: {why}"))?;
        let broken = recorded.failed.iter().map(|why| format!("the writer itself failed: {why}"));
        let broken = broken.collect();
        // They add up to what is wanted.
        let so_far = |rounds| wanted.mounted * rounds / self.histories;
        let choice = Choice {
            sampled: (so_far(round + 1) - so_far(round)) as usize,
            from: *recorded.range.start(),
            again_every: AGAIN_EVERY,
            seed,
            ..Choice::default()
        };
        self.recorded = Some(recorded);
        Ok(Written { choice: Some(choice), broken })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let recorded = self.recorded.as_mut().ok_or_else(|| "nothing was recorded".to_owned())?;
        Ok(recorded.judging.judge(state))
    }

    fn words(&self) -> String {
        let usage = self.recorded.as_ref().map(|recorded| recorded.judging.usage.to_string());
        usage.unwrap_or_default()
    }

    fn again(&self) -> String {
        self.campaign.command.clone()
    }
}
