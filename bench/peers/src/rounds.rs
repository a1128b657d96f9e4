//! Rounds: in each, every contestant has its turn, in another order.
//!
//! *Owns*: the order, what is read before and after a turn (device, CPU time). *May not touch*:
//! what a turn does.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use inkstone_host::{BlockStat, DeviceNumber, block_stat, process_usage};
use inkstone_lab::histogram::Recorder;
use inkstone_lab::result::Round;

use crate::result::{Arm, DeviceBill};
use crate::threads::Turn;

/// A device counts as quiet after this time without a request.
const QUIET: Duration = Duration::from_millis(5);
/// How long that is waited for: on a disk that others use it never is.
const QUIET_MAX: Duration = Duration::from_millis(300);

/// Of the flushes that a turn needs at least: its first and last commits may lie across its ends.
const COVERED_MIN: f64 = 0.95;

/// Who takes part in a load.
pub trait Contestant {
    fn name(&self) -> &str;

    /// Before a turn, outside the clock.
    fn rest(&mut self) -> Result<()>;

    /// After a turn, outside the clock: what it began in the background ends before somebody else's
    /// turn.
    fn calm(&mut self) -> Result<()> {
        Ok(())
    }

    /// One turn.
    fn turn(&mut self, time: Duration) -> Result<Turn>;

    /// After the last round: its end, and the check of what it says it did.
    fn finish(self: Box<Self>) -> Result<Finish>;
}

/// What is known of a contestant at its end.
#[derive(Debug, Clone, Default)]
pub struct Finish {
    pub how: String,
    pub notes: Option<String>,
    /// Records that were read back and were right; `None` for a floor.
    pub checked: Option<u64>,
}

/// How a load is run.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub rounds: u32,
    pub time: Duration,
    pub seed: u64,
    pub device: Option<DeviceNumber>,
    /// Whether what is durable takes a flush there: a volatile cache, and no FUA.
    pub needs_flushes: bool,
}

/// A contestant that could be made, or the reason and the name of one that could not.
pub type Made = Result<Box<dyn Contestant>, (String, anyhow::Error)>;

/// Runs all rounds. Whoever fails leaves with its reason.
pub fn run(pace: &Pace, contestants: Vec<Made>) -> Vec<Arm> {
    let mut entries: Vec<Entry> = contestants
        .into_iter()
        .map(|made| match made {
            Ok(one) => {
                Entry { arm: Arm::new(one.name()), latency: Recorder::new(), contestant: Some(one) }
            }
            Err((name, error)) => Entry {
                arm: Arm::failed(&name, &error),
                latency: Recorder::new(),
                contestant: None,
            },
        })
        .collect();
    let mut order: Vec<usize> = (0..entries.len()).collect();
    let mut random = fastrand::Rng::with_seed(pace.seed);
    for number in 0..pace.rounds {
        random.shuffle(&mut order);
        for (turn, &index) in order.iter().enumerate() {
            entries[index].take_turn(pace, number, turn as u32);
        }
        eprint!(".");
    }
    entries.into_iter().map(Entry::end).collect()
}

/// A contestant with what it came to; `None` once it has left.
struct Entry {
    arm: Arm,
    latency: Recorder,
    contestant: Option<Box<dyn Contestant>>,
}

impl Entry {
    fn take_turn(&mut self, pace: &Pace, number: u32, turn: u32) {
        let Some(mut one) = self.contestant.take() else { return };
        match self.measure(pace, number, turn, &mut *one) {
            Ok(()) => self.contestant = Some(one),
            Err(error) => self.arm.fail(&error),
        }
    }

    fn measure(
        &mut self,
        pace: &Pace,
        number: u32,
        turn: u32,
        one: &mut dyn Contestant,
    ) -> Result<()> {
        one.rest()?;
        settle(pace.device);
        let stat = || block_stat(pace.device?).ok();
        let (stat_before, usage) = (stat(), process_usage());
        let done = one.turn(pace.time)?;
        let used = process_usage().since(&usage);
        let counted = stat().zip(stat_before).map(|(after, before)| bill(&after.since(&before)));
        if let Some(counted) = &counted {
            // The device's counters are of everybody: this catches an engine only where nobody else
            // flushes as much.
            ensure!(
                !pace.needs_flushes || can_be_durable(&done, counted.flushes),
                "{} records acknowledged with {} flushes of the device, where {} are the fewest \
                 that can make them durable",
                done.commits,
                counted.flushes,
                done.flushes_min
            );
            self.arm.device.get_or_insert_default().add(counted);
        }
        let round =
            |commits, total_ns| Round { number, turn, commits, total_ns, ..Round::default() };
        self.arm.rounds.push(round(done.commits, done.total_ns));
        if let Some(groups) = done.groups {
            *self.arm.groups.get_or_insert_default() += groups;
        }
        self.arm.cpu_ns.push(used.user_ns + used.system_ns);
        if let Some(latency) = done.latency {
            self.arm.p99_rounds.push(round(1, latency.finish().p99_ns));
            self.latency.merge(&latency);
        }
        one.calm()
    }

    fn end(self) -> Arm {
        let Self { mut arm, latency, contestant } = self;
        if latency.count() > 0 {
            let all = latency.finish();
            (arm.p50_ns, arm.p99_ns) = (Some(all.p50_ns), Some(all.p99_ns));
        }
        match contestant.map(|one| one.finish()) {
            Some(Ok(Finish { how, notes, checked })) => {
                (arm.how, arm.notes, arm.checked_records) = (how, notes, checked);
            }
            Some(Err(error)) => arm.fail(&error.context("the check after the rounds")),
            None => {}
        }
        arm
    }
}

/// Whether so many flushes of the device can have made durable what a turn acknowledged.
fn can_be_durable(turn: &Turn, flushes: u64) -> bool {
    flushes as f64 >= turn.flushes_min as f64 * COVERED_MIN
}

fn bill(counted: &BlockStat) -> DeviceBill {
    DeviceBill {
        writes: counted.writes,
        write_bytes: counted.write_sectors * 512,
        flushes: counted.flushes.unwrap_or(0),
        reads: counted.reads,
        read_bytes: counted.read_sectors * 512,
    }
}

/// Waits until the device is quiet: what one contestant leaves to the background is not to fall
/// into another's turn.
fn settle(device: Option<DeviceNumber>) {
    let begin = Instant::now();
    let stat = || block_stat(device?).ok();
    let mut last = stat();
    while last.is_some() && begin.elapsed() < QUIET_MAX {
        std::thread::sleep(QUIET);
        let now = stat();
        if now == last && now.is_some_and(|now| now.in_flight == 0) {
            return;
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges once in its first turn and fails in its third.
    struct Flaky {
        turns: u32,
    }

    impl Contestant for Flaky {
        fn name(&self) -> &str {
            "flaky"
        }

        fn rest(&mut self) -> Result<()> {
            Ok(())
        }

        fn turn(&mut self, _: Duration) -> Result<Turn> {
            self.turns += 1;
            ensure!(self.turns < 3, "its third turn");
            Ok(Turn { commits: 1, total_ns: 1, ..Turn::default() })
        }

        fn finish(self: Box<Self>) -> Result<Finish> {
            Ok(Finish::default())
        }
    }

    #[test]
    fn whoever_fails_leaves_and_does_not_count() {
        let pace =
            Pace { rounds: 5, time: Duration::ZERO, seed: 1, device: None, needs_flushes: false };
        let broken: Made = Err(("broken".into(), anyhow::anyhow!("it did not open")));
        let arms = run(&pace, vec![Ok(Box::new(Flaky { turns: 0 })), broken]);
        assert_eq!(arms[0].rounds.len(), 2);
        assert!(arms.iter().all(|arm| !arm.counts()), "{arms:?}");
        assert!(arms[0].failed.as_deref().is_some_and(|why| why.contains("third")));
    }

    #[test]
    fn acknowledging_without_flushes_is_found_out() {
        let turn = |flushes_min| Turn { commits: 8_000, flushes_min, ..Turn::default() };
        assert!(can_be_durable(&turn(1_000), 1_000));
        assert!(can_be_durable(&turn(1_000), 990), "the ends of a turn");
        assert!(!can_be_durable(&turn(1_000), 900));
        assert!(!can_be_durable(&turn(1), 0), "a stream without its sync");
    }
}
