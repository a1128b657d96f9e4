//! The classes of faults: a table. Which history, which disk and log, what goes wrong, and which
//! states each is about.
//!
//! *Owns*: the rows, and one seed of one class from start to end. *May not touch*: how a history is
//! walked (`walk.rs`), how many seeds are run (`lab.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_io::{Directory, File, OpenFile, Preparation, named_choice};
use inkstone_sim::{
    AfterEffect, DirectoryOrder, Effect, Fault, FaultRates, NewBlocks, OperationKind, SimDisk,
    errno,
};

use super::beside::Readers;
use super::prove::prove;
use super::space::Pick;
use super::tally::Tally;
use super::variant::{Variant, variant};
use super::walk::{State, Walk};
use super::way::{Cuts, Effort, Way, Wrong};
use super::{PATH, stale, threads};
use inkstone_subject::log::history::{Op, Step, history, recycling_history, rough};
use inkstone_subject::log::options::{RECORD_BYTES_MAX, SEGMENT_BYTES};
use inkstone_subject::log::words::Shown;
use inkstone_subject::log::{LogSubject, new_past};
use inkstone_subject::mistake::Mistake;
use inkstone_subject::{Broken, End, Lie};

named_choice! {
    /// What goes wrong.
    FaultClass, "class" {
        Lost = "lost", "lost and reordered writes: any subset of whole writes";
        Torn512 = "torn-512", "any subset of unflushed sectors, sizes and names, torn at 512 bytes";
        Torn4096 = "torn-4096",
            "any subset of unflushed sectors, sizes and names, torn at 4096 bytes";
        Garbage = "garbage", "torn with garbage: each sector old, new or neither";
        Recycled = "recycled",
            "any subset over recycled segments, with old frames of this log and another underneath";
        NewBlocks = "new-blocks", "new blocks that read as zeros, as garbage or as removed data";
        Sizes = "sizes", "sizes that reach the disk before their data or after it";
        Names = "names", "creations, renames and removals lost or reordered";
        Misdirected = "misdirected", "a write that lands elsewhere";
        Rot = "rot", "a bit that rots in acknowledged records, or a piece of a file that is ruined";
        SyncError = "sync-error",
            "a sync that fails, with the three after-effects of real file systems";
        Errors = "errors", "an error at any operation, transfers in two parts";
        Faults = "faults", "errors at any operations, more than one";
        Full = "full", "a full disk, or a used-up budget";
        Rough = "rough",
            "histories that go on after power cuts, with records that fit where others were";
        Killed = "killed", "a process killed at any call, then a power cut";
        Readers = "readers", "readers and an archiver beside the writer, and a second writer";
        Recovery = "recovery", "crashes within recoveries, up to three in a row";
        Lying = "lying", "a device that acknowledges a write and loses it";
        Threads = "threads", "four threads that append while the power is cut";
    }
}

/// Operations of a history.
const LENGTH: usize = 12;
/// For histories that fail at many places: a little is looked at in each.
const LITTLE: Effort = Effort { samples: 1, all_of: 0, deep: 7 };
const FEW: Effort = Effort { samples: 2, all_of: 2, deep: 0 };

/// A row of the table.
struct Row {
    /// What is done: a failure is shortened by leaving some of it out.
    draw: fn(u64) -> Vec<Step>,
    /// What is always done after that.
    end: fn() -> Vec<Step>,
    /// The log and its disk, for this class.
    set: fn(u64, &mut Variant),
    pick: Pick,
    /// How much is looked at in a glance; else all states of small cuts, and 12 of others.
    glance: Effort,
    /// The walks of a seed.
    walks: fn(&Unit) -> Vec<Trial>,
}

/// What goes wrong in one walk, or in many, at one place after the other.
struct Trial {
    wrong: Wrong,
    faults: Faults,
    effort: Option<Effort>,
    cuts: Cuts,
    /// Other states than those of the row.
    pick: Option<Pick>,
    /// Other operations than those of the row.
    steps: Option<Vec<Step>>,
    budget_bytes: Option<u64>,
    /// The caller tells the log which records it knows to be durable (`expect_durable`).
    expects: bool,
}

enum Faults {
    Planned(Vec<Fault>),
    Rates(FaultRates, AfterEffect),
    /// The n-th operation that it fits, for each n until the history is too short to meet it.
    EachPlace(Box<dyn Fn(u64) -> Fault>),
}

impl Trial {
    fn new(wrong: Wrong) -> Self {
        let faults = Faults::Planned(Vec::new());
        let cuts = Cuts::Always;
        let (effort, pick, steps, budget_bytes) = (None, None, None, None);
        Self { wrong, faults, effort, cuts, pick, steps, budget_bytes, expects: false }
    }

    fn at_each_place(wrong: Wrong, fault: impl Fn(u64) -> Fault + 'static) -> Self {
        let faults = Faults::EachPlace(Box::new(fault));
        let (effort, cuts) = match wrong {
            Wrong::Lies(Lie::Anything) => {
                (Some(Effort { samples: 1, all_of: 0, deep: 0 }), Cuts::AtEnd)
            }
            Wrong::Lies(_) => (None, Cuts::Never),
            _ => (Some(LITTLE), Cuts::Always),
        };
        Self { faults, effort, cuts, ..Self::new(wrong) }
    }
}

const PLAIN: Row = Row {
    draw: |seed| history(seed, LENGTH),
    end: Vec::new,
    set: |seed, variant| small(seed, variant, 512),
    pick: Pick::Items,
    glance: FEW,
    walks: |_| vec![Trial::new(Wrong::Nothing)],
};

impl FaultClass {
    /// Whether everything follows from the seed. With threads only what is found at all does.
    pub fn is_of_the_seed(self) -> bool {
        self != Self::Threads
    }

    /// Whether cuts within recoveries are looked for, one within the other.
    fn is_about_cuts(self) -> bool {
        use FaultClass as C;
        matches!(
            self,
            C::Lost
                | C::Torn512
                | C::Torn4096
                | C::Garbage
                | C::Recycled
                | C::NewBlocks
                | C::Sizes
                | C::Names
                | C::Rough
                | C::Recovery
        )
    }

    fn row(self) -> Row {
        match self {
            Self::Lost => Row { pick: Pick::Writes, ..PLAIN },
            Self::Torn512 => PLAIN,
            Self::Recovery => Row { glance: Effort { samples: 1, all_of: 1, deep: 2 }, ..PLAIN },
            Self::Torn4096 => Row { set: |seed, variant| small(seed, variant, 4096), ..PLAIN },
            Self::Garbage => Row {
                set: |seed, variant| {
                    small(seed, variant, 512);
                    // Only padded logs survive garbage in a sector that is rewritten.
                    variant.disk.garbage_at_crash = true;
                    change(variant, |options| options.pad_groups(true));
                },
                pick: Pick::Garbage,
                ..PLAIN
            },
            Self::Recycled => Row {
                draw: |seed| recycling_history(seed, 2 * LENGTH),
                set: |seed, variant| {
                    small(seed, variant, 512);
                    variant.disk.new_blocks = NewBlocks::Stale;
                    change(variant, |options| {
                        options.segment_bytes(SEGMENT_BYTES).free_segments_max(3)
                    });
                },
                ..PLAIN
            },
            Self::NewBlocks => Row { set: new_blocks, ..PLAIN },
            Self::Sizes => Row { pick: Pick::Sizes, ..PLAIN },
            Self::Names => Row {
                set: |seed, variant| {
                    small(seed, variant, 512);
                    let orders = [DirectoryOrder::Any, DirectoryOrder::Prefix];
                    variant.disk.directory_order = orders[(seed % 2) as usize];
                },
                pick: Pick::Names,
                ..PLAIN
            },
            Self::Rough => Row {
                draw: |seed| rough(seed, 16),
                set: |seed, variant| {
                    if seed.is_multiple_of(3) {
                        variant.redraws();
                    }
                },
                glance: Effort { samples: 1, all_of: 1, deep: 0 },
                ..PLAIN
            },
            Self::Killed => Row {
                draw: |seed| history(seed, 16),
                set: |_, variant| variant.redraws(),
                walks: |_| vec![Trial::new(Wrong::Kills)],
                ..PLAIN
            },
            Self::Readers => Row {
                draw: with_a_failing_sync,
                set: |_, _| {},
                walks: |_| {
                    let wrong = Wrong::Fails { retries: false };
                    vec![Trial { cuts: Cuts::Never, ..Trial::new(wrong) }]
                },
                ..PLAIN
            },
            Self::Misdirected => Row {
                draw: closing,
                end: promise,
                walks: |unit| {
                    vec![Trial::at_each_place(Wrong::Lies(Lie::Lost), misdirected(unit.seed))]
                },
                ..PLAIN
            },
            Self::Lying => Row { draw: closing, end: promise, walks: lies, ..PLAIN },
            Self::Rot => Row {
                draw: closing,
                end: promise,
                walks: |unit| {
                    let samples = if unit.look == Look::Glance { 10 } else { 200 };
                    let effort = Some(Effort { samples, all_of: 0, deep: 0 });
                    let damaged = |pick| Trial {
                        effort,
                        cuts: Cuts::AtEnd,
                        pick: Some(pick),
                        ..Trial::new(Wrong::Nothing)
                    };
                    // What shows a loss may be in the ruined piece, too: the caller knows more.
                    let ruined = Trial { expects: true, ..damaged(Pick::Ruin) };
                    vec![damaged(Pick::Rot), ruined]
                },
                ..PLAIN
            },
            Self::SyncError => Row { end: calm, walks: sync_errors, ..PLAIN },
            Self::Errors => Row {
                end: calm,
                set: |seed, variant| {
                    small(seed, variant, 512);
                    change(variant, |options| {
                        options.segment_bytes(SEGMENT_BYTES).pad_groups(false)
                    });
                },
                walks: errors,
                ..PLAIN
            },
            Self::Faults => {
                Row { draw: letting_go, end: calm, set: |_, _| {}, walks: faults, ..PLAIN }
            }
            Self::Full => {
                Row { draw: filling, end: room_again, set: full, walks: full_walks, ..PLAIN }
            }
            Self::Threads => Row { set: |_, _| {}, walks: |_| Vec::new(), ..PLAIN },
        }
    }
}

fn change(variant: &mut Variant, how: impl FnOnce(inkstone::Options) -> inkstone::Options) {
    variant.log.options = how(variant.log.options.clone());
}

/// No garbage, sectors of this size, and readers that read memory, files or both.
fn small(seed: u64, variant: &mut Variant, sector_bytes: usize) {
    variant.disk.garbage_at_crash = false;
    variant.disk.sector_bytes = sector_bytes;
    let tail_bytes = [0, 32 << 10, 4 << 20][(seed % 3) as usize];
    change(variant, |options| options.tail_bytes(tail_bytes));
}

fn new_blocks(seed: u64, variant: &mut Variant) {
    small(seed, variant, 512);
    let shown = [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale];
    variant.disk.new_blocks = shown[(seed % 3) as usize];
    let ways = [Preparation::Zeros, Preparation::Fallocate];
    change(variant, |options| options.preparation(ways[(seed / 3 % 2) as usize]));
}

/// On a disk that gets full.
fn room_bytes(seed: u64) -> u64 {
    SEGMENT_BYTES * (2 + seed % 3) + 4096 * (seed % 16)
}

/// With padding, four openings of a full disk use up the room that a segment reserves for control
/// groups: then there are none.
fn is_padded(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

fn full(seed: u64, variant: &mut Variant) {
    variant.disk.garbage_at_crash = false;
    variant.disk.capacity_bytes = Some(room_bytes(seed));
    change(variant, |options| options.segment_bytes(SEGMENT_BYTES).pad_groups(is_padded(seed)));
}

/// Everything must work again when nothing fails any more.
fn calm() -> Vec<Step> {
    vec![
        Step::Calm,
        Step::Do(Op::Append(100)),
        Step::End(End::Kill),
        Step::Do(Op::Append(200)),
        Step::End(End::Close),
    ]
}

/// A close has records to lose that nobody waited for.
fn letting_go(seed: u64) -> Vec<Step> {
    let steps = history(seed, 24).into_iter().flat_map(|step| match step {
        Step::End(End::Close | End::Drop) => {
            vec![Step::Do(Op::LetGo(5000)), Step::End(End::Close)]
        }
        other => vec![other],
    });
    steps.collect()
}

fn filling(seed: u64) -> Vec<Step> {
    let mut steps = history(seed, 30);
    steps.retain(|step| !is_padded(seed) || !matches!(step, Step::End(_)));
    steps
}

/// After everything is truncated there is room again, without reopening the log.
fn room_again() -> Vec<Step> {
    let mut steps = vec![Step::Calm, Step::Do(Op::TruncateBefore(255))];
    for _ in 0..3 {
        steps.push(Step::Do(Op::Append(RECORD_BYTES_MAX)));
        steps.push(Step::Do(Op::TruncateBefore(255)));
    }
    steps.into_iter().chain(calm()).collect()
}

/// Each life is closed.
fn closing(seed: u64) -> Vec<Step> {
    let steps = history(seed, LENGTH).into_iter().map(|step| match step {
        Step::End(_) => Step::End(End::Close),
        other => other,
    });
    steps.collect()
}

/// A record is appended at last: the promise shows what is missing below.
fn promise() -> Vec<Step> {
    vec![Step::Do(Op::Append(333)), Step::End(End::Close)]
}

/// One sync fails somewhere.
fn with_a_failing_sync(seed: u64) -> Vec<Step> {
    let mut steps = history(seed, 24);
    let at = fastrand::Rng::with_seed(seed ^ 0x7265_6164_6572_7321).usize(..steps.len());
    steps.insert(at, Step::FailSync);
    steps
}

fn misdirected(seed: u64) -> impl Fn(u64) -> Fault {
    move |nth| {
        let mut rng = fastrand::Rng::with_seed(seed ^ nth);
        let file = rng.bool().then(|| format!("{:020}.ink", rng.u64(1..4)));
        let offset = rng.u64(..14) * 4096;
        Fault::new(Effect::Misdirected { file, offset }).on(OperationKind::Write)
    }
}

/// One write after the other is lost. Two more are about the last write, which nothing shows that
/// comes later: a caller knows of a record; and a second truncation shows the first.
fn lies(unit: &Unit) -> Vec<Trial> {
    let lost = |_| Fault::new(Effect::LostWrite).on(OperationKind::Write);
    let mut rng = fastrand::Rng::with_seed(unit.seed);
    let a_few = (0..rng.usize(2..7)).map(|_| Step::Do(Op::Append(rng.usize(..9700))));
    let a_few: Vec<_> = a_few.collect();
    let with = |last: Vec<Step>| [a_few.clone(), last].concat();
    let kill = Step::End(End::Kill);
    let cut = || Step::Do(Op::TruncateBefore(1));
    let cuts = Cuts::Never;
    vec![
        Trial::at_each_place(Wrong::Lies(Lie::Lost), lost),
        Trial {
            steps: Some(with(vec![Step::Lie, Step::Do(Op::Append(8)), kill.clone()])),
            expects: true,
            cuts,
            ..Trial::new(Wrong::Lies(Lie::Damaged))
        },
        Trial {
            steps: Some(with(vec![Step::Lie, cut(), cut(), kill])),
            cuts,
            ..Trial::new(Wrong::Lies(Lie::Lost))
        },
    ]
}

fn sync_fails(after: AfterEffect) -> Fault {
    Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync)
}

fn sync_errors(_: &Unit) -> Vec<Trial> {
    let retries = Wrong::Fails { retries: true };
    vec![
        Trial::at_each_place(retries, |_| sync_fails(AfterEffect::KeepsNew)),
        Trial::at_each_place(retries, |_| sync_fails(AfterEffect::RevertsToOld)),
        // No log can save what such a sync has lost.
        Trial::at_each_place(Wrong::Lies(Lie::Anything), |_| sync_fails(AfterEffect::ReportsLater)),
    ]
}

fn errors(_: &Unit) -> Vec<Trial> {
    let plans = [
        Fault::new(Effect::Error(errno::ENOSPC)),
        Fault::new(Effect::Error(errno::EIO)),
        Fault::new(Effect::ShortThenError(700, errno::EIO)).on(OperationKind::Write),
        Fault::new(Effect::Short(700)).on(OperationKind::Write),
        Fault::new(Effect::Short(700)).on(OperationKind::Read),
    ];
    let wrong = Wrong::Fails { retries: true };
    let trial = |fault: Fault| Trial::at_each_place(wrong, move |_| fault.clone());
    plans.into_iter().map(trial).collect()
}

/// Faults by rate; or by plan, where a failed operation is retried at once, or not.
fn faults(unit: &Unit) -> Vec<Trial> {
    let mut rng = fastrand::Rng::with_seed(unit.seed ^ 0x6661_756C_7473_2121);
    let after = [AfterEffect::KeepsNew, AfterEffect::RevertsToOld][rng.usize(..2)];
    let effort = Some(LITTLE);
    if rng.u8(..3) == 0 {
        let rates = FaultRates {
            read_error_ppm: 5_000,
            write_error_ppm: 20_000,
            sync_error_ppm: 20_000,
            directory_error_ppm: 10_000,
            no_space_ppm: 20_000,
            short_ppm: 100_000,
        };
        let wrong = Wrong::Fails { retries: false };
        return vec![Trial { faults: Faults::Rates(rates, after), effort, ..Trial::new(wrong) }];
    }
    let retries = rng.bool();
    let fault = |turn: u64| {
        let fault = match rng.u8(..4) {
            0 | 1 => sync_fails(after),
            2 => Fault::new(Effect::ShortThenError(700, errno::EIO)).on(OperationKind::Write),
            _ => Fault::new(Effect::Error(errno::EIO)),
        };
        fault.nth(20 * turn + rng.u64(1..40))
    };
    let planned = Faults::Planned((0..if retries { 1 } else { 4 }).map(fault).collect());
    vec![Trial { faults: planned, effort, ..Trial::new(Wrong::Fails { retries }) }]
}

/// A full disk; and a budget on a disk with enough room.
fn full_walks(unit: &Unit) -> Vec<Trial> {
    let mut steps = Vec::new();
    for number in 0..12 {
        steps.extend([Step::Do(Op::Prepare), Step::Do(Op::Append(20_000))]);
        if number % 4 == 3 {
            steps.push(Step::Do(Op::TruncateBefore(255)));
        }
    }
    let budget_bytes = Some(room_bytes(unit.seed));
    let effort = Some(LITTLE);
    vec![
        Trial { effort, ..Trial::new(Wrong::Full) },
        Trial { steps: Some(steps), budget_bytes, cuts: Cuts::Never, ..Trial::new(Wrong::Full) },
    ]
}

/// How much of a seed is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Cuts with up to this many items are checked completely, and a fault comes at every place.
    Whole(usize),
    /// A few states of each cut, and one place: many seeds show soon whether a log makes a mistake.
    Glance,
}

/// One seed of one class.
#[derive(Debug, Clone)]
pub struct Unit {
    pub class: FaultClass,
    pub seed: u64,
    pub look: Look,
    pub mistake: Option<Mistake>,
    /// Ends it early when it is set.
    pub stop: Arc<AtomicBool>,
}

impl Unit {
    /// What is done.
    pub fn history(&self) -> Vec<Step> {
        (self.class.row().draw)(self.seed)
    }

    /// The log and its disk.
    pub fn variant(&self) -> Variant {
        let mut variant = variant(self.seed);
        (self.class.row().set)(self.seed, &mut variant);
        variant.log.mistake = self.mistake;
        variant
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn way(&self, row: &Row, trial: &Trial) -> Way {
        let effort = match (self.class, self.look) {
            (_, Look::Glance) => row.glance,
            (FaultClass::Recovery, Look::Whole(_)) => Effort { samples: 2, all_of: 2, deep: 2 },
            (_, Look::Whole(all_of)) => Effort { samples: 12, all_of, deep: 0 },
        };
        let is_about_cuts = self.class.is_about_cuts();
        Way {
            wrong: trial.wrong,
            cuts: trial.cuts,
            pick: trial.pick.unwrap_or(row.pick),
            depth: if is_about_cuts && self.look != Look::Glance { 3 } else { 1 },
            budget_bytes: trial.budget_bytes,
            ..Way::new(trial.effort.unwrap_or(effort))
        }
    }

    /// Runs these of its steps. What was checked counts even when a promise is broken.
    pub fn run(&self, steps: &[Step]) -> (Tally, Result<(), Broken>) {
        let mut tally = Tally::default();
        let row = self.class.row();
        let mut result = Ok(());
        for trial in (row.walks)(self) {
            result = result.and_then(|()| self.walks(&row, &trial, steps, &mut tally));
        }
        if self.class == FaultClass::Threads {
            result = self.threads(&row, &mut tally);
        }
        (tally, result)
    }

    fn threads(&self, row: &Row, tally: &mut Tally) -> Result<(), Broken> {
        let samples = if self.look == Look::Glance { 2 } else { 4 };
        let effort = Some(Effort { samples, all_of: 0, deep: 0 });
        let way = self.way(row, &Trial { effort, ..Trial::new(Wrong::Nothing) });
        let mut walk = threads::run(self.seed, &self.variant(), way)?;
        walk.stop = Arc::clone(&self.stop);
        let result = prove(&mut walk, &mut |_, _| {});
        tally.add(&walk.tally);
        result
    }

    fn walks(
        &self,
        row: &Row,
        trial: &Trial,
        steps: &[Step],
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let Faults::EachPlace(fault) = &trial.faults else {
            return self.walk(row, trial, None, steps, tally).map(drop);
        };
        let is_lie = matches!(trial.wrong, Wrong::Lies(_));
        let is_one = self.look == Look::Glance && !is_lie;
        let first = if is_one { fastrand::Rng::with_seed(self.seed).u64(1..60) } else { 1 };
        for nth in first.. {
            let has_met = self
                .walk(row, trial, Some(fault(nth).nth(nth)), steps, tally)
                .map_err(|broken| broken.at(format_args!("the fault is number {nth}")))?;
            if is_one || !has_met || self.is_stopped() {
                break;
            }
            tally.states += u64::from(is_lie);
        }
        Ok(())
    }

    /// One walk; whether its disk has failed.
    fn walk(
        &self,
        row: &Row,
        trial: &Trial,
        fault: Option<Fault>,
        steps: &[Step],
        tally: &mut Tally,
    ) -> Result<bool, Broken> {
        let mut variant = self.variant();
        variant.log.expects = trial.expects;
        if let Some(bytes) = trial.budget_bytes {
            variant.disk.capacity_bytes = None;
            change(&mut variant, |options| options.disk_budget_bytes(bytes));
        }
        if let Faults::Rates(rates, after) = &trial.faults {
            variant.disk.rates = *rates;
            variant.disk.after_effect = Some(*after);
        }
        let disk = SimDisk::new(self.seed, variant.disk);
        match &trial.faults {
            Faults::Planned(faults) => faults.iter().for_each(|fault| disk.inject(fault.clone())),
            _ => fault.into_iter().for_each(|fault| disk.inject(fault)),
        }
        if self.class == FaultClass::Recycled {
            stale::leave_old_files(&disk, &variant.log, self.seed)
                .map_err(|why| Broken::new("old-files", why))?;
        }
        let beside = (self.class == FaultClass::Readers)
            .then(|| Readers::beside(&mut variant.log, self.seed));
        let steps = match &trial.steps {
            Some(steps) => steps.clone(),
            None => [steps, &(row.end)()].concat(),
        };
        let way = self.way(row, trial);
        let mut walk = Walk::new(variant.log, disk, new_past(), steps, way, self.seed);
        walk.stop = Arc::clone(&self.stop);
        walk.beside = beside.map(|readers| Box::new(readers) as _);
        let mut beneath = 0;
        let looks_beneath = self.class == FaultClass::Recycled;
        let mut see = |state: &State<LogSubject>, shown: &Shown| {
            beneath += u64::from(looks_beneath && has_old_bytes(&state.disk, shown));
        };
        let result = prove(&mut walk, &mut see);
        walk.tally.beneath += beneath;
        walk.tally.states +=
            u64::from(trial.cuts == Cuts::Never && self.class != FaultClass::Readers);
        tally.add(&walk.tally);
        result.map(|()| !walk.disk.history().is_empty())
    }
}

/// Whether the last segment has old bytes after the log's end, beyond what an opening writes there.
fn has_old_bytes(found: &SimDisk, shown: &Shown) -> bool {
    let Some(end) = shown.end else { return false };
    let name = format!("{:020}.ink", end.segment.get());
    let Ok(file) = found.directory(PATH).open(&name, &OpenFile::existing().read_only()) else {
        return false;
    };
    let Ok(len) = file.len_bytes() else { return false };
    let from = (end.byte / 4096 + 3) * 4096;
    let mut bytes = vec![0; len.saturating_sub(from) as usize];
    file.read_at(&mut bytes, from).is_ok() && bytes.iter().any(|&byte| byte != 0)
}
