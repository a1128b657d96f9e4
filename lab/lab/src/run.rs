//! A run: ways of writing side by side, in rounds; then the bill of each.
//!
//! *Owns*: the plan, and what a way's turn consists of. *May not touch*: how one pass is measured
//! (`pass`), what the block layer's events mean (`bill`).
//!
//! Bills come from passes of their own, after the timed rounds: tracing costs time, which must not
//! be in a way's figures.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone_io::Access;

use crate::bar::contradiction;
use crate::billing::{Devices, bill_pass};
use crate::pass::{Limits, Recorders, Writer};
use crate::progress::Progress;
use crate::result::{Bill, DurableFinding, Table, Unit, Way, figure};
use crate::rounds::{
    Frame, ROUNDS_MIN, Running, Sample, SideBySide, TakesTurns, Turn, Turns, take_turns,
};
use crate::site::Site;
use crate::stage::{Leftover, Session, Staged, WayError, cool, stage};
use crate::stats::median;
use crate::writing::{Pass, Writing};

/// Fewer commits are no count: what only some of them cost (a block's first write, one in eight of
/// 512 B) may be in all of them or in none.
pub const COMMITS_TO_COUNT: u64 = 64;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Short name: `quick`, `e1-removed`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// The ways.
    pub ways: Vec<Writing>,
    /// The way that the others are compared with: its place in `ways`.
    pub baseline: usize,
    /// How many rounds.
    pub rounds: u32,
    /// Whether each round has another random order, so that no way always runs after the same one.
    pub random_order: bool,
    /// What happens to files between rounds.
    pub leftover: Leftover,
    /// When a timed pass ends before the file does.
    pub limits: Limits,
    /// No round begins after this much time, once five are done.
    pub deadline: Option<Duration>,
    /// Commits in each way's bill; 0 = no bills.
    pub bill_commits: u64,
    /// Further bills of each way, to know how much a count varies.
    pub recounts: u32,
    /// No commit of a bill begins after this much time.
    pub bill_time: Duration,
}

impl Plan {
    /// Whole files in one round, in random order, each compared with the first.
    pub fn new(name: &str, title: &str, ways: Vec<Writing>) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            ways,
            baseline: 0,
            rounds: 1,
            random_order: true,
            leftover: Leftover::Kept,
            limits: Limits::NONE,
            deadline: None,
            bill_commits: 0,
            recounts: 0,
            bill_time: Duration::MAX,
        }
    }

    /// Bytes of disk that it needs at the same time.
    pub fn room_bytes(&self) -> u64 {
        let valid = self.ways.iter().filter(|writing| writing.check().is_ok());
        let files = valid.map(|writing| writing.file_bytes);
        match self.leftover {
            Leftover::Kept => files.sum(),
            Leftover::Removed => files.max().unwrap_or(0),
        }
    }
}

/// Commits into one file.
struct Commits<'a> {
    writing: Writing,
    file_name: String,
    plan: &'a Plan,
    site: &'a Site,
    devices: Option<&'a Devices>,
    writer: Option<Writer>,
    recorders: Recorders,
    preparations_ns: Vec<f64>,
    /// Page faults of the writing thread.
    faults: u64,
    unchecked: Option<String>,
    bill: Option<(Bill, DurableFinding)>,
    recounts: Vec<Bill>,
}

impl Commits<'_> {
    /// Brings the file into its claimed state, and does everything that comes before the measured
    /// pass.
    fn ready(&mut self, session: &Session<'_>) -> Result<(Staged, Writer), WayError> {
        session.check()?;
        let writing = &self.writing;
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::for_way(writing)?,
        };
        let staged = stage(session, writing, &self.file_name)?;
        if writing.pass == Pass::Second {
            let mut unused = Recorders::default();
            writer.run(session, writing, &staged.file, Limits::NONE, &mut unused, None)?;
        }
        cool(&staged.file, writing)?;
        pause(session, writing.pause_ms)?;
        Ok((staged, writer))
    }

    fn timed(&mut self, session: &Session<'_>) -> Result<Sample, WayError> {
        let (staged, mut writer) = self.ready(session)?;
        self.preparations_ns.push(staged.preparation_ns as f64);
        let limits = self.plan.limits;
        let totals =
            writer.run(session, &self.writing, &staged.file, limits, &mut self.recorders, None)?;
        self.faults += totals.faults;
        self.unchecked = staged.unchecked;
        self.writer = Some(writer);
        Ok(Sample::of(totals.commits, totals.total_ns))
    }

    fn billed(
        &mut self,
        session: &Session<'_>,
        devices: &Devices,
    ) -> Result<(Bill, DurableFinding), WayError> {
        let (staged, mut writer) = self.ready(session)?;
        let Plan { bill_commits, bill_time, .. } = *self.plan;
        let limits = Limits { commits: bill_commits, time: bill_time };
        let of = (&self.writing, &staged.file);
        let billed = bill_pass(devices, session, of, &mut writer, limits);
        self.writer = Some(writer);
        billed
    }

    /// What happens to the file after a turn.
    fn after<T>(&self, session: &Session<'_>, done: Result<T, WayError>) -> Result<T, WayError> {
        // If a file cannot be removed, its way cannot be staged again, which is reported; and the
        // removal of the working directory takes the rest.
        if self.plan.leftover == Leftover::Removed {
            let _ = session.clear(&self.file_name);
        } else if done.is_err() {
            let _ = session.remove(&self.file_name);
        }
        done
    }

    /// The traced bill if there is one; otherwise the reason.
    fn bill_and_finding(&mut self) -> (Option<Bill>, DurableFinding) {
        let Site { capabilities, memory, .. } = self.site;
        let (bill, seen) = match self.bill.take() {
            Some((bill, seen)) => (Some(bill), seen),
            None => {
                let file_system = &capabilities.mount.file_system;
                let reason = match capabilities.device {
                    None => format!("{file_system} has no single block device to watch"),
                    Some(_) => "only a trace shows it, which needs root".into(),
                };
                (None, DurableFinding::NotVisible { reason })
            }
        };
        let finding = match memory {
            _ if !self.writing.strategy.durability.claims_durable() => DurableFinding::NotClaimed,
            // Flushes to a disk in memory cover nothing.
            Some(memory) => DurableFinding::NotCovered {
                reason: format!("{memory} is memory: nothing there is durable"),
            },
            None => seen,
        };
        (bill, finding)
    }
}

fn pause(session: &Session<'_>, pause_ms: u64) -> Result<(), WayError> {
    let mut left_ms = pause_ms;
    while left_ms > 0 {
        session.check()?;
        let step_ms = left_ms.min(50);
        std::thread::sleep(Duration::from_millis(step_ms));
        left_ms -= step_ms;
    }
    session.check()
}

impl TakesTurns for Commits<'_> {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        let done = self.timed(turn.session);
        self.after(turn.session, done)
    }

    fn count(&mut self, session: &Session<'_>, progress: &mut Progress) -> Result<(), WayError> {
        let Some(devices) = self.devices else { return Ok(()) };
        progress.step(&format!("bill of {}", self.writing.name()));
        let done = self.billed(session, devices);
        self.bill = Some(self.after(session, done)?);
        for _ in 0..self.plan.recounts {
            let done = self.billed(session, devices);
            let (bill, _) = self.after(session, done)?;
            self.recounts.push(bill);
        }
        Ok(())
    }

    fn finish(&mut self, way: &mut Way, notes: &mut Vec<String>) {
        let Recorders { write, sync, commit } = &self.recorders;
        way.latency = Some(commit.finish());
        way.figures.push(figure("write p50", Unit::Ns, write.finish().p50_ns as f64));
        if sync.count() > 0 {
            way.figures.push(figure("sync p50", Unit::Ns, sync.finish().p50_ns as f64));
        }
        if self.writing.strategy.access == Access::Mmap {
            let writes = way.rounds.iter().map(|round| round.commits).sum::<u64>().max(1) as f64;
            way.figures.push(figure("page faults", Unit::PerOp, self.faults as f64 / writes));
        }
        let preparation_ns = median(&self.preparations_ns).unwrap_or(0.0);
        way.figures.push(figure("preparation", Unit::Ns, preparation_ns));
        let (bill, durable) = self.bill_and_finding();
        way.no_bill =
            bill.as_ref().and_then(|bill| contradiction(bill, &self.writing, &self.site.place));
        let seen = match (&way.no_bill, durable) {
            (Some(why), DurableFinding::Seen { .. }) => {
                DurableFinding::NotVisible { reason: why.clone() }
            }
            (_, durable) => durable,
        };
        way.durable = Some(seen);
        way.bill = bill.filter(|_| way.no_bill.is_none());
        way.recounts = std::mem::take(&mut self.recounts);
        let unchecked = self.unchecked.as_ref();
        let unchecked = unchecked
            .map(|why| format!("the states of the files' blocks could not be checked: {why}"));
        notes.extend(unchecked.filter(|note| !notes.contains(note)));
    }
}

/// Runs the plan in several places at once: each round in all of them, one after the other, in
/// another random order. There is always a result: for an interrupted run, what was measured
/// before.
pub fn run_side_by_side(
    sites: &[&Site],
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Vec<Table> {
    let has_bills = |site: &Site| plan.bill_commits > 0 && site.trace.is_ok();
    let devices = sites.iter().map(|site| has_bills(site).then(|| Devices::of(site)).flatten());
    let devices: Vec<Option<Devices>> = devices.collect();
    let sessions: Vec<Session<'_>> = sites.iter().map(|site| site.session(stop)).collect();
    let turns = Turns {
        rounds: plan.rounds,
        is_random: plan.random_order,
        time: plan.limits.time,
        until: plan.deadline.map(|deadline| (deadline, ROUNDS_MIN)),
        cut_off: None,
    };
    let mut places: Vec<SideBySide<'_>> = (sites.iter().zip(&devices).zip(&sessions))
        .map(|((site, devices), session)| {
            let ways = running(site, plan, devices.as_ref());
            SideBySide { session, ways }
        })
        .collect();
    if take_turns(&turns, &mut places, progress) {
        places.iter_mut().for_each(|place| place.count(progress));
    }
    let tables = sites.iter().zip(places).map(|(site, place)| {
        let baseline = plan.ways.get(plan.baseline).map(Writing::name).unwrap_or_default();
        let (name, title, unit) = (plan.name.as_str(), plan.title.clone(), Unit::NsPerCommit);
        let frame = Frame { name, title, unit, baseline };
        let mut table = place.table(frame, &site.place, &turns);
        table.notes.extend(cut_short(&table, plan));
        table.notes.extend(site.trace.as_ref().err().map(|why| no_trace(why)));
        table
    });
    tables.collect()
}

/// The ways of a plan in one place.
fn running<'a>(site: &'a Site, plan: &'a Plan, devices: Option<&'a Devices>) -> Vec<Running<'a>> {
    let commits = |number: usize, writing: Writing| Commits {
        writing,
        file_name: format!("way-{number:02}"),
        plan,
        site,
        devices,
        writer: None,
        recorders: Recorders::default(),
        preparations_ns: Vec::new(),
        faults: 0,
        unchecked: None,
        bill: None,
        recounts: Vec::new(),
    };
    let one = |(number, writing): (usize, &Writing)| {
        let can = writing.check().map_err(WayError::Invalid).and_then(|()| site.can(writing));
        let mut running = Running::new(writing.name(), can.map(|()| commits(number, *writing)));
        running.way.file_bytes = Some(writing.file_bytes);
        running
    };
    plan.ways.iter().enumerate().map(one).collect()
}

/// What a table says where nothing could be traced.
fn no_trace(why: &str) -> String {
    format!("as root the lab traces each request of each commit: {why}")
}

/// How many passes ended before the end of their file because of a limit, and the earliest.
fn cut_short(table: &Table, plan: &Plan) -> Option<String> {
    let share = |(way, writing): (&Way, &Writing)| {
        let commits: Vec<f64> = way.rounds.iter().map(|round| round.commits as f64).collect();
        let share = 100.0 * median(&commits)? / writing.commits().max(1) as f64;
        (share < 99.95).then(|| (share, way.name.clone()))
    };
    let cut: Vec<(f64, String)> = table.ways.iter().zip(&plan.ways).filter_map(share).collect();
    let (share, name) = cut.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "a pass ends after a time or a number of commits, as planned, and not at the end of its \
         file: the shortest, of `{name}`, wrote {share:.0}% of it"
    ))
}
