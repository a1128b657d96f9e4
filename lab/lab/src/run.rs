//! A run: cells side by side in one place, interleaved in rounds, each in a random order; then
//! their bills.
//!
//! *Owns*: the order of steps, and what happens to a cell that fails. *May not touch*: how one pass
//! is measured (`pass`), what the block layer's events mean (`bill`).
//!
//! A cell that fails becomes a row with its reason; the run continues. Bills come from passes of
//! their own, after the timed rounds: tracing costs time, which must not be in a cell's figures.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone_host::{BlockStat, DeviceNumber, block_stat};
use inkstone_io::{Access, AlignedBuf, NamedChoice};

use crate::bill::shared_counters;
use crate::billing::{Billing, bill_round};
use crate::cell::{Cell, Pass};
use crate::histogram::Recorder;
use crate::over_time::{Slice, slices_per_round};
use crate::pass::{Limits, PassTotals, Recorders, Writer};
use crate::progress::Progress;
use crate::result::{
    Bill, CellDescription, CellResult, DurableFinding, Measured, Outcome, Round, Run,
};
use crate::site::Site;
use crate::stage::{CellError, Leftover, Session, Staged, cool, incompressible, stage};
use crate::stats::{median, relative_of_several};

/// In which order the cells of a round run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Another random order in each round, so that no cell always runs after the same one.
    Random,
    /// As listed, in each round.
    Listed,
}

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Short name: `quick`, `e1-removed`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// The cells.
    pub cells: Vec<Cell>,
    /// The cell that the others are compared with: its place in `cells`.
    pub baseline: usize,
    /// How many rounds.
    pub rounds: u32,
    /// Their order.
    pub order: Order,
    /// What happens to files between rounds.
    pub leftover: Leftover,
    /// When a timed pass ends before the file does.
    pub limits: Limits,
    /// No round begins after this much time, once five are done.
    pub deadline: Option<Duration>,
    /// Commits in each cell's bill; 0 = no bills.
    pub bill_commits: u64,
    /// No commit of a bill begins after this much time.
    pub bill_time: Duration,
    /// Commits shown request by request in each bill.
    pub timeline_commits: usize,
    /// Seed of the orders and of the bytes written.
    pub seed: u64,
}

impl Plan {
    /// Whole files in one round, in random order, each compared with the first.
    pub fn new(name: &str, title: &str, cells: Vec<Cell>) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            cells,
            baseline: 0,
            rounds: 1,
            order: Order::Random,
            leftover: Leftover::Kept,
            limits: Limits::NONE,
            deadline: None,
            bill_commits: 0,
            bill_time: Duration::MAX,
            timeline_commits: 0,
            seed: fastrand::u64(..),
        }
    }
}

/// Fewer rounds than this show no difference.
pub const ROUNDS_MIN: u32 = 5;

/// Blocks of random bytes that all cells write from.
const PAYLOAD_BYTES: usize = 2 << 20;

/// One cell on its way through the rounds.
struct Arm {
    cell: Cell,
    name: String,
    file_name: String,
    writer: Option<Writer<inkstone_host::LabEngine>>,
    recorders: Recorders,
    preparation: Recorder,
    rounds: Vec<Round>,
    over_time: Vec<Vec<Slice>>,
    failed: Option<String>,
    counted: Counted,
    faults: (u64, u64),
    unchecked: Option<String>,
    bill: Option<(Bill, DurableFinding)>,
}

/// The device's counters over the timed passes of an arm.
#[derive(Default)]
struct Counted {
    total: BlockStat,
    commits: u64,
}

impl Arm {
    fn new(number: usize, cell: Cell, name: String) -> Self {
        Self {
            cell,
            name,
            file_name: format!("arm-{number:02}"),
            writer: None,
            recorders: Recorders::new(),
            preparation: Recorder::new(),
            rounds: Vec::new(),
            over_time: Vec::new(),
            failed: None,
            counted: Counted::default(),
            faults: (0, 0),
            unchecked: None,
            bill: None,
        }
    }

    fn after_turn(&self, session: &Session<'_>, leftover: Leftover) {
        if leftover == Leftover::Removed {
            // If a file cannot be removed, its arm cannot be staged again, which is reported.
            let _ = session.clear(&self.file_name);
        }
    }

    fn fail(&mut self, session: &Session<'_>, error: &CellError) {
        self.failed = Some(error.reason());
        self.writer = None;
        // Best effort: the removal of the working directory takes the rest.
        let _ = session.remove(&self.file_name);
    }
}

/// Runs the plan. There is always a result: for an interrupted run, what was measured before.
pub fn run(site: &Site, plan: &Plan, stop: &AtomicBool, progress: &mut Progress) -> Run {
    run_side_by_side(&[site], plan, stop, progress).pop().unwrap_or_default()
}

/// Runs the plan in several places at once: each round in all of them, one after the other, in
/// another random order.
pub fn run_side_by_side(
    sites: &[&Site],
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Vec<Run> {
    let mut places: Vec<_> = sites.iter().map(|site| Running::new(site, plan, stop)).collect();
    let payload = incompressible(PAYLOAD_BYTES, plan.seed);
    let ended = rounds(plan, &payload, &mut places, progress);
    for place in &mut places {
        if ended.is_ok() {
            bills(place.site, plan, &place.session, &payload, &mut place.arms, progress);
        }
    }
    places.into_iter().map(|place| result_of(place.site, plan, place.arms)).collect()
}

/// One place of a run.
struct Running<'a> {
    site: &'a Site,
    session: Session<'a>,
    arms: Vec<Arm>,
}

impl<'a> Running<'a> {
    fn new(site: &'a Site, plan: &Plan, stop: &'a AtomicBool) -> Self {
        let mut arms: Vec<Arm> = Vec::new();
        for (number, cell) in plan.cells.iter().enumerate() {
            let mut name = cell.name();
            let same = arms.iter().filter(|arm| arm.cell.name() == name).count();
            if same > 0 {
                name = format!("{name} #{}", same + 1);
            }
            let mut arm = Arm::new(number, *cell, name);
            arm.failed = cell.check().and_then(|()| site.can(cell)).err();
            arms.push(arm);
        }
        Self { site, session: site.session(stop), arms }
    }
}

fn rounds(
    plan: &Plan,
    payload: &AlignedBuf,
    places: &mut [Running<'_>],
    progress: &mut Progress,
) -> Result<(), CellError> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut order: Vec<usize> = (0..plan.cells.len()).collect();
    let mut turns: Vec<usize> = (0..places.len()).collect();
    let begin = Instant::now();
    for number in 0..plan.rounds {
        if number >= ROUNDS_MIN && plan.deadline.is_some_and(|deadline| begin.elapsed() > deadline)
        {
            break;
        }
        if places.len() > 1 {
            random.shuffle(&mut turns);
        }
        for &place in &turns {
            if plan.order == Order::Random {
                random.shuffle(&mut order);
            }
            one_round(plan, payload, &mut places[place], &order, number, progress)?;
        }
    }
    Ok(())
}

fn one_round(
    plan: &Plan,
    payload: &AlignedBuf,
    place: &mut Running<'_>,
    order: &[usize],
    number: u32,
    progress: &mut Progress,
) -> Result<(), CellError> {
    let Running { site, session, arms } = place;
    for (turn, &index) in order.iter().enumerate() {
        let arm = &mut arms[index];
        progress.step(&arm.name);
        if arm.failed.is_some() {
            continue;
        }
        let timed = timed_round(site, session, arm, payload, plan.limits);
        arm.after_turn(session, plan.leftover);
        match timed {
            Ok((totals, preparation_ns)) => {
                arm.over_time.push(arm.recorders.over_time.slices(slices_per_round(plan.rounds)));
                arm.rounds.push(Round {
                    number,
                    turn: turn as u32,
                    commits: totals.commits,
                    total_ns: totals.total_ns,
                    closing_sync_ns: totals.closing_sync_ns,
                    preparation_ns,
                });
            }
            Err(CellError::Interrupted) => return Err(CellError::Interrupted),
            Err(error) => arm.fail(session, &error),
        }
    }
    Ok(())
}

fn timed_round(
    site: &Site,
    session: &Session<'_>,
    arm: &mut Arm,
    payload: &AlignedBuf,
    limits: Limits,
) -> Result<(PassTotals, u64), CellError> {
    let (staged, mut writer) = ready(session, arm, payload)?;
    arm.preparation.record(staged.preparation_ns);
    let device = site.capabilities.device.as_ref().map(|device| device.number);
    let before = stat(device);
    let totals = writer.run(session, &arm.cell, &staged.file, limits, &mut arm.recorders, None)?;
    if let (Some(before), Some(after)) = (before, stat(device)) {
        arm.counted.add(&after.since(&before), totals.commits);
    }
    arm.faults.0 += totals.faults.0;
    arm.faults.1 += totals.faults.1;
    arm.unchecked = staged.unchecked;
    arm.writer = Some(writer);
    Ok((totals, staged.preparation_ns))
}

fn stat(device: Option<DeviceNumber>) -> Option<BlockStat> {
    block_stat(device?).ok()
}

impl Counted {
    fn add(&mut self, span: &BlockStat, commits: u64) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a.unwrap_or(0) + b?);
        self.total.reads += span.reads;
        self.total.read_sectors += span.read_sectors;
        self.total.writes += span.writes;
        self.total.write_sectors += span.write_sectors;
        self.total.flushes = sum(self.total.flushes, span.flushes);
        self.commits += commits;
    }
}

/// Brings the arm's file into its claimed state, and does everything that comes before the measured
/// pass.
fn ready(
    session: &Session<'_>,
    arm: &mut Arm,
    payload: &AlignedBuf,
) -> Result<(Staged, Writer<inkstone_host::LabEngine>), CellError> {
    session.check()?;
    let mut writer = match arm.writer.take() {
        Some(writer) => writer,
        None => Writer::for_cell(&arm.cell, payload)?,
    };
    let staged = stage(session, &arm.cell, &arm.file_name, payload)?;
    if arm.cell.pass == Pass::Second {
        writer.run(session, &arm.cell, &staged.file, Limits::NONE, &mut Recorders::new(), None)?;
    }
    cool(&staged.file, &arm.cell)?;
    pause(session, arm.cell.pause_ms)?;
    Ok((staged, writer))
}

fn pause(session: &Session<'_>, pause_ms: u64) -> Result<(), CellError> {
    let mut left_ms = pause_ms;
    while left_ms > 0 {
        session.check()?;
        let step_ms = left_ms.min(50);
        std::thread::sleep(Duration::from_millis(step_ms));
        left_ms -= step_ms;
    }
    session.check()
}

fn bills(
    site: &Site,
    plan: &Plan,
    session: &Session<'_>,
    payload: &AlignedBuf,
    arms: &mut [Arm],
    progress: &mut Progress,
) {
    if plan.bill_commits == 0 || site.trace.is_err() {
        return;
    }
    let Some(billing) = Billing::of(site, plan.timeline_commits) else { return };
    for arm in arms.iter_mut().filter(|arm| arm.failed.is_none()) {
        progress.step(&format!("bill of {}", arm.name));
        let limits = Limits { commits: plan.bill_commits, time: plan.bill_time };
        let billed = ready(session, arm, payload).and_then(|(staged, mut writer)| {
            let billed =
                bill_round(&billing, session, &arm.cell, &staged.file, &mut writer, limits);
            arm.writer = Some(writer);
            billed
        });
        arm.after_turn(session, plan.leftover);
        match billed {
            Ok(billed) => arm.bill = Some(billed),
            Err(CellError::Interrupted) => return,
            Err(error) => arm.fail(session, &error),
        }
    }
}

fn result_of(site: &Site, plan: &Plan, arms: Vec<Arm>) -> Run {
    let baseline = arms.get(plan.baseline).filter(|arm| arm.failed.is_none());
    let base_rounds = baseline.map(|arm| arm.rounds.clone()).unwrap_or_default();
    let base_name = baseline.map(|arm| arm.name.clone());
    let others = arms.iter().filter(|arm| arm.failed.is_none() && !arm.rounds.is_empty()).count();
    // A reader looks at all rows: their intervals hold together.
    let questions = others.saturating_sub(1);
    let mut notes: Vec<String> =
        arms.iter().filter_map(|arm| arm.unchecked.clone()).map(unchecked_note).collect();
    notes.dedup();
    let noticed = arms
        .iter()
        .filter_map(|arm| Some(format!("{}: {}", arm.name, arm.writer.as_ref()?.notice()?)));
    notes.extend(noticed);
    notes.extend(cut_short(&arms));
    if let Err(reason) = &site.trace {
        notes.push(format!(
            "device counts (~) are those of the whole device, with all processes; as root the lab traces each \
             request of each commit: {reason}"
        ));
    }
    let cells = arms
        .into_iter()
        .map(|arm| cell_result(site, arm, (&base_rounds, questions), plan, base_name.as_deref()));
    Run {
        name: plan.name.clone(),
        title: plan.title.clone(),
        place: site.place.clone(),
        cells: cells.collect(),
        baseline: base_name,
        rounds: plan.rounds,
        random_order: plan.order == Order::Random,
        seed: plan.seed,
        finding: None,
        notes,
    }
}

/// How many passes ended before the end of their file because of a limit, and the earliest.
fn cut_short(arms: &[Arm]) -> Option<String> {
    let share = |arm: &'_ Arm| {
        let commits: Vec<f64> = arm.rounds.iter().map(|round| round.commits as f64).collect();
        let share = 100.0 * median(&commits)? / arm.cell.commits().max(1) as f64;
        (share < 99.95).then(|| (share, arm.name.clone()))
    };
    let cut: Vec<(f64, String)> = arms.iter().filter_map(share).collect();
    let (share, name) = cut.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "a limit stopped the passes of {} of {} ways before the end of the file: the earliest was `{name}` after {share:.0}%",
        cut.len(),
        arms.len()
    ))
}

fn unchecked_note(reason: String) -> String {
    format!("the states of the files' blocks could not be checked: {reason}")
}

fn cell_result(
    site: &Site,
    arm: Arm,
    (base, questions): (&[Round], usize),
    plan: &Plan,
    base_name: Option<&str>,
) -> CellResult {
    let what = describe(&arm.cell);
    let outcome = match &arm.failed {
        Some(reason) => Outcome::Invalid { reason: reason.clone() },
        None if arm.rounds.is_empty() => Outcome::NotRun,
        None => {
            let is_base = base_name == Some(arm.name.as_str());
            let compared = base_name
                .filter(|_| !is_base)
                .and_then(|_| relative_of_several(base, &arm.rounds, plan.seed, questions));
            let writes = arm.rounds.iter().map(|round| round.commits).sum::<u64>().max(1) as f64;
            let mapped = arm.cell.strategy.access == Access::Mmap;
            let faults = (arm.faults.0 as f64 / writes, arm.faults.1 as f64 / writes);
            let (bill, durable) = bill_and_finding(site, &arm);
            Outcome::Measured(Box::new(Measured {
                rounds: arm.rounds,
                preparation: arm.preparation.finish(),
                write: arm.recorders.write.finish(),
                sync: arm.recorders.sync.finish(),
                commit: arm.recorders.commit.finish(),
                over_time: arm.over_time,
                relative: compared,
                bill,
                durable,
                faults_per_write: mapped.then_some(faults),
            }))
        }
    };
    CellResult { name: arm.name, what, outcome }
}

/// The traced bill if there is one; otherwise the device's counters over the timed passes, or the
/// reason.
fn bill_and_finding(site: &Site, arm: &Arm) -> (Option<Bill>, DurableFinding) {
    let (bill, seen) = match (&arm.bill, &site.capabilities.device) {
        (Some((bill, seen)), _) => (Some(bill.clone()), seen.clone()),
        (None, Some(device)) if arm.counted.commits > 0 => {
            let Counted { total, commits } = &arm.counted;
            let volatile_cache = device.volatile_cache.unwrap_or(true);
            let (bill, seen) = shared_counters(&device.name, *commits, total, volatile_cache);
            (Some(bill), seen)
        }
        (None, _) => {
            let reason = format!(
                "{} has no single block device to watch",
                site.capabilities.mount.file_system
            );
            (None, DurableFinding::NotVisible { reason })
        }
    };
    let finding = match &site.memory {
        _ if !arm.cell.strategy.durability.claims_durable() => DurableFinding::NotClaimed,
        // Flushes to a disk in memory cover nothing.
        Some(memory) => DurableFinding::NotCovered {
            reason: format!("{memory} is memory: nothing there is durable"),
        },
        None => seen,
    };
    (bill, finding)
}

pub(crate) fn describe(cell: &Cell) -> CellDescription {
    let strategy = cell.strategy;
    CellDescription {
        preparation: strategy.preparation.name().into(),
        reuse: strategy.reuse.name().into(),
        access: strategy.access.name().into(),
        durability: strategy.durability.name().into(),
        engine: strategy.engine.name().into(),
        write_bytes: cell.write_bytes,
        file_bytes: cell.file_bytes,
        pass: cell.pass.name().into(),
        cache: cell.cache.name().into(),
    }
}

/// The steps that a plan reports to its progress: rounds, and bills if they are possible.
pub fn steps_of(site: &Site, plan: &Plan) -> u64 {
    let cells = plan.cells.len() as u64;
    let billed = plan.bill_commits > 0 && site.trace.is_ok() && site.capabilities.device.is_some();
    cells * u64::from(plan.rounds) + if billed { cells } else { 0 }
}

/// Bytes of disk that a plan needs at the same time.
pub fn room_needed_bytes(plan: &Plan) -> u64 {
    let files = plan.cells.iter().filter(|cell| cell.check().is_ok()).map(|cell| cell.file_bytes);
    match plan.leftover {
        Leftover::Kept => files.sum(),
        Leftover::Removed => files.max().unwrap_or(0),
    }
}
