//! The frame of every measurement: ways side by side, in rounds, each round in another random
//! order, within a budget of time.
//!
//! *Owns*: the order of turns, what happens to a way that fails, the comparison with the baseline,
//! facts in place of rounds. *May not touch*: what a way does in its turn.

use std::time::{Duration, Instant};

use inkstone_host::{Usage, monotonic_ns};

use crate::device;
use crate::finding::finding;
use crate::histogram::Recorder;
use crate::progress::Progress;
use crate::result::{Figure, Place, Round, Table, Unit, Way, figure};
use crate::site::Site;
use crate::stage::{Session, WayError};
use crate::stats::{median, relative_of_several};
use crate::writing::Writing;

/// Fewer rounds than this show no difference.
pub const ROUNDS_MIN: u32 = 5;

/// How often and how long.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rounds; every way has a turn in each.
    pub rounds: u32,
    /// The time for all turns together, including their preparation; `None`: as long as it takes.
    pub budget: Option<Duration>,
}

/// The share of a way's budget that is measured; the rest brings the file into its state.
const MEASURED_SHARE: f64 = 0.6;
/// A shorter turn would measure the clock.
const TURN_MIN: Duration = Duration::from_millis(10);
/// When this multiple of the budget is used up, the rounds end even if there are fewer than an
/// interval needs.
const BUDGETS_MAX: f64 = 1.25;

impl Pace {
    /// The measured time of one turn, with this many ways.
    pub(crate) fn turn(&self, ways: usize) -> Duration {
        let turns = f64::from(self.rounds.max(1)) * ways.max(1) as f64;
        self.budget
            .map_or(Duration::MAX, |budget| budget.mul_f64(MEASURED_SHARE / turns).max(TURN_MIN))
    }
}

/// When turns are taken, and when they end.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    /// Rounds; every way has a turn in each.
    pub rounds: u32,
    /// Whether each round has another random order, so that no way always runs after the same one.
    pub is_random: bool,
    /// How long a turn may be measured.
    pub time: Duration,
    /// No round begins after this much time, once this many are done.
    pub until: Option<(Duration, u32)>,
    /// No turn begins after this much time.
    pub cut_off: Option<Duration>,
}

/// One turn of one way.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// The place, and the user's wish to stop.
    pub session: &'a Session<'a>,
    /// How long it may be measured.
    pub time: Duration,
}

impl Turn<'_> {
    /// When a turn that begins at `begin_ns` ends.
    pub(crate) fn end_ns(&self, begin_ns: u64) -> u64 {
        begin_ns.saturating_add(u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Carries out one operation after the other until the turn's time is over, at least one and at
    /// most so many, each with its number; returns how many there were, and when the last had
    /// ended.
    pub(crate) fn repeat(
        &self,
        most: u64,
        latency: &mut Recorder,
        mut operation: impl FnMut(u64) -> Result<(), WayError>,
    ) -> Result<(u64, u64), WayError> {
        let (mut done, mut start_ns) = (0, monotonic_ns());
        let end_ns = self.end_ns(start_ns);
        while done < most && (done == 0 || start_ns < end_ns) {
            self.session.check()?;
            operation(done)?;
            let now_ns = monotonic_ns();
            latency.record(now_ns - start_ns);
            (done, start_ns) = (done + 1, now_ns);
        }
        Ok((done, start_ns))
    }
}

/// The result of a turn.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Operations, or bytes: what the table's unit counts.
    pub amount: u64,
    /// Their time.
    pub total_ns: u64,
    /// Further figures; the way's figure is the median over its turns.
    pub figures: Vec<Figure>,
}

impl Sample {
    /// So much in this time.
    pub fn of(amount: u64, total_ns: u64) -> Self {
        Self { amount, total_ns, ..Self::default() }
    }

    /// The same with further figures.
    pub fn with(self, figures: Vec<Figure>) -> Self {
        Self { figures, ..self }
    }
}

/// What a way does.
pub trait TakesTurns {
    /// Takes its turn.
    ///
    /// # Errors
    /// The way ends then, with this reason.
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError>;

    /// What it counts after all timed rounds, if it does.
    ///
    /// # Errors
    /// The way ends then, with this reason.
    fn count(&mut self, _: &Session<'_>, _: &mut Progress) -> Result<(), WayError> {
        Ok(())
    }

    /// Adds to the way what all turns together showed, and notes for the table.
    fn finish(&mut self, _way: &mut Way, _notes: &mut Vec<String>) {}
}

impl<F: FnMut(&Turn<'_>) -> Result<Sample, WayError>> TakesTurns for F {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        self(turn)
    }
}

/// A way that is nothing but its turns.
pub(crate) fn each<F: FnMut(&Turn<'_>) -> Result<Sample, WayError>>(turn: F) -> F {
    turn
}

/// A way whose operations are timed one by one, over all its turns.
pub(crate) struct Timed<F> {
    turn: F,
    latency: Recorder,
}

/// A way that records the time of each operation in its turn.
pub(crate) fn timed<F>(turn: F) -> Timed<F>
where
    F: FnMut(&Turn<'_>, &mut Recorder) -> Result<Sample, WayError>,
{
    Timed { turn, latency: Recorder::new() }
}

impl<F: FnMut(&Turn<'_>, &mut Recorder) -> Result<Sample, WayError>> TakesTurns for Timed<F> {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        (self.turn)(turn, &mut self.latency)
    }

    fn finish(&mut self, way: &mut Way, _: &mut Vec<String>) {
        way.latency = (self.latency.count() > 0).then(|| self.latency.finish());
    }
}

/// A way on its way through the rounds.
pub struct Running<'a> {
    pub(crate) way: Way,
    work: Option<Box<dyn TakesTurns + 'a>>,
    figures: Vec<Figure>,
}

impl<'a> Running<'a> {
    /// A way that needs no preparation.
    pub(crate) fn of<W: TakesTurns + 'a>(name: impl Into<String>, work: W) -> Self {
        Self::new(name, Ok(work))
    }

    /// A way; if its work could not be prepared, it has the reason instead.
    pub fn new<W: TakesTurns + 'a>(name: impl Into<String>, work: Result<W, WayError>) -> Self {
        let mut way = Way { name: name.into(), ..Way::default() };
        let work = match work {
            Ok(work) => Some(Box::new(work) as Box<dyn TakesTurns + 'a>),
            Err(error) => {
                way.missing = Some(error.reason());
                None
            }
        };
        Self { way, work, figures: Vec::new() }
    }

    /// A row that is worked out once, in place of rounds; one that cannot be has the reason.
    ///
    /// # Errors
    /// The user's wish to stop.
    pub(crate) fn facts(
        name: impl Into<String>,
        found: Result<Facts, WayError>,
    ) -> Result<Self, WayError> {
        let mut way = Way { name: name.into(), ..Way::default() };
        match found {
            Ok(Facts { figures, words }) => (way.figures, way.facts) = (figures, words),
            Err(WayError::Interrupted) => return Err(WayError::Interrupted),
            Err(why) => way.missing = Some(why.reason()),
        }
        Ok(Self { way, work: None, figures: Vec::new() })
    }

    fn take(&mut self, number: u32, turn: u32, sample: Sample) {
        let Sample { amount: commits, total_ns, figures } = sample;
        self.way.rounds.push(Round { number, turn, commits, total_ns });
        self.figures.extend(figures);
    }

    fn fail(&mut self, error: &WayError) {
        self.way.missing = Some(error.reason());
        self.way.rounds.clear();
        self.work = None;
    }

    /// Each figure as the median over the turns.
    fn figures(&self) -> Vec<Figure> {
        let mut all: Vec<Figure> = Vec::new();
        for Figure { name, unit, .. } in &self.figures {
            if all.iter().any(|known| known.name == *name) {
                continue;
            }
            let of_it = self.figures.iter().filter(|figure| figure.name == *name);
            let values: Vec<f64> = of_it.map(|figure| figure.value).collect();
            // The clock of CPU time ticks slowly: in a short turn it may not have moved, but over
            // all turns it has.
            let is_cpu = *unit == Unit::NsPerOp;
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let value = if is_cpu { mean } else { median(&values).unwrap_or(mean) };
            if !(is_cpu && value == 0.0) {
                all.push(figure(name, *unit, value));
            }
        }
        all
    }
}

/// One place with its ways.
pub struct SideBySide<'a> {
    /// The place.
    pub session: &'a Session<'a>,
    /// Its ways.
    pub ways: Vec<Running<'a>>,
}

/// Runs the rounds: each in all places, one after the other. What was measured before an error or
/// Ctrl-C is kept; returns whether the rounds came to their end.
pub fn take_turns(turns: &Turns, places: &mut [SideBySide<'_>], progress: &mut Progress) -> bool {
    let mut random = fastrand::Rng::new();
    let begin = Instant::now();
    let mut whither: Vec<usize> = (0..places.len()).collect();
    let mut order: Vec<usize> = (0..places.first().map_or(0, |one| one.ways.len())).collect();
    for number in 0..turns.rounds {
        // A round that has begun is finished, unless it is far too slow: otherwise some ways would
        // have fewer rounds to compare.
        if turns.until.is_some_and(|(until, least)| number >= least && begin.elapsed() >= until) {
            break;
        }
        random.shuffle(&mut whither);
        for &place in &whither {
            let SideBySide { session, ways } = &mut places[place];
            if turns.is_random {
                random.shuffle(&mut order);
            }
            for (turn, &index) in order.iter().enumerate() {
                let is_over = turns.cut_off.is_some_and(|cut_off| begin.elapsed() > cut_off);
                if is_over || session.check().is_err() {
                    return false;
                }
                let one = &mut ways[index];
                progress.step(&format!(
                    "round {} of {}: {}",
                    number + 1,
                    turns.rounds,
                    one.way.name
                ));
                let time = turns.time;
                let Some(work) = &mut one.work else { continue };
                match work.turn(&Turn { session, time }) {
                    Ok(sample) => one.take(number, turn as u32, sample),
                    Err(WayError::Interrupted) => return false,
                    Err(error) => one.fail(&error),
                }
            }
        }
    }
    true
}

impl SideBySide<'_> {
    /// What the ways count after all timed rounds.
    pub fn count(&mut self, progress: &mut Progress) {
        for one in &mut self.ways {
            let Some(work) = &mut one.work else { continue };
            match work.count(self.session, progress) {
                Ok(()) => {}
                Err(WayError::Interrupted) => return,
                Err(error) => one.fail(&error),
            }
        }
    }

    /// The table of these ways, each compared with the baseline.
    pub fn table(self, frame: Frame, place: &Place, turns: &Turns) -> Table {
        let measured = self.ways.iter().filter(|one| !one.way.rounds.is_empty());
        let base = measured.clone().find(|one| one.way.name == frame.baseline);
        let base = base.map(|one| (one.way.name.clone(), one.way.rounds.clone()));
        let is_asked = |way: &Way| way.name != frame.baseline && is_alike(way, &frame.baseline);
        // A reader looks at all ways: their intervals hold together.
        let questions = measured.filter(|one| is_asked(&one.way)).count();
        let mut table = Table {
            name: frame.name.into(),
            title: frame.title.clone(),
            place: place.clone(),
            unit: frame.unit,
            rounds: turns.rounds,
            random_order: turns.is_random,
            ..Table::default()
        };
        for mut one in self.ways {
            let figures = one.figures();
            one.way.figures.extend(figures);
            if let Some(work) = one.work.as_mut().filter(|_| !one.way.rounds.is_empty()) {
                work.finish(&mut one.way, &mut table.notes);
            }
            let rounds = &one.way.rounds;
            if let Some((_, base)) = base.as_ref().filter(|_| is_asked(&one.way)) {
                one.way.relative = relative_of_several(base, rounds, questions);
            }
            if rounds.is_empty() && !one.way.is_measured() && one.way.missing.is_none() {
                one.way.missing = Some(NOT_RUN.into());
            }
            table.ways.push(one.way);
        }
        table.baseline = base.map(|(name, _)| name);
        table.finding = finding(&table);
        table.notes.extend(device::notes(&table));
        table
    }
}

/// Whether a way does the baseline's load: a small write beside a large one says nothing.
fn is_alike(way: &Way, baseline: &str) -> bool {
    let bytes = |name: &str| Writing::named(name).map(|writing| writing.write_bytes);
    match (bytes(&way.name), bytes(baseline)) {
        (Ok(one), Ok(other)) if way.file_bytes.is_some() => one == other,
        _ => true,
    }
}

/// Why a way has no figures if nothing went wrong with it.
const NOT_RUN: &str = "not run: the run ended before";

/// The texts and the baseline of a table.
pub struct Frame<'a> {
    /// [`Table::name`].
    pub name: &'a str,
    /// [`Table::title`].
    pub title: String,
    /// [`Table::unit`].
    pub unit: Unit,
    /// Name of the way that the others are compared with.
    pub baseline: String,
}

/// Where ways are measured.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a session is none")]
pub struct Scene<'a> {
    /// The place.
    pub site: &'a Site,
    /// Its directory, and the user's wish to stop.
    pub session: &'a Session<'a>,
}

/// A row of facts: its figures, and what it says of each, in words.
pub(crate) struct Facts {
    pub(crate) figures: Vec<Figure>,
    pub(crate) words: Vec<(String, String)>,
}

/// The rows of a table in a place.
type Rows = dyn for<'a> Fn(&Scene<'a>) -> Result<Vec<Running<'a>>, WayError>;

/// A table of ways that are not commits into one file, side by side: reads, pools, logs, facts. The
/// first is the one that the others are compared with.
pub struct Trial {
    /// Its name.
    pub name: &'static str,
    title: String,
    unit: Unit,
    /// Bytes of disk that it needs at the same time.
    pub room_bytes: u64,
    /// Seconds that it takes unless another time is given.
    pub seconds: f64,
    notes: Vec<String>,
    rows: Box<Rows>,
}

impl Trial {
    /// Rows that need this much room and time. `rows` may fail only where none of them can run.
    pub(crate) fn new(
        (name, title): (&'static str, impl Into<String>),
        unit: Unit,
        (room_bytes, seconds): (u64, f64),
        rows: impl for<'a> Fn(&Scene<'a>) -> Result<Vec<Running<'a>>, WayError> + 'static,
    ) -> Self {
        let (title, notes) = (title.into(), Vec::new());
        Self { name, title, unit, room_bytes, seconds, notes, rows: Box::new(rows) }
    }

    /// With this line below its table.
    pub(crate) fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Runs the rounds of all rows. Their files are left to the caller.
    ///
    /// # Errors
    /// A failure of all rows: the file could not be created, or the user wants to stop before there
    /// is any result.
    pub fn measure(
        &self,
        scene: &Scene<'_>,
        pace: &Pace,
        progress: &mut Progress,
    ) -> Result<Table, WayError> {
        let ways = (self.rows)(scene)?;
        let has_rounds = ways.iter().any(|one| one.work.is_some());
        let turns = Turns {
            rounds: if has_rounds { pace.rounds } else { 0 },
            is_random: true,
            time: pace.turn(ways.len()),
            until: pace.budget.map(|budget| (budget, 0)),
            cut_off: pace.budget.map(|budget| budget.mul_f64(BUDGETS_MAX)),
        };
        let (name, title, unit) = (self.name, self.title.clone(), self.unit);
        let base = ways.first().filter(|_| ways.len() > 1);
        let baseline = base.map(|one| one.way.name.clone()).unwrap_or_default();
        let mut ground = SideBySide { session: scene.session, ways };
        if take_turns(&turns, std::slice::from_mut(&mut ground), progress) {
            ground.count(progress);
        }
        let frame = Frame { name, title, unit, baseline };
        let mut table = ground.table(frame, &scene.site.place, &turns);
        table.notes.extend(self.notes.iter().cloned());
        Ok(table)
    }
}

impl std::fmt::Debug for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trial").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the process used for each of so many operations.
pub(crate) fn usage_figures(usage: &Usage, operations: u64) -> Vec<Figure> {
    let per = |value: u64| value as f64 / operations.max(1) as f64;
    vec![
        figure("context switches", Unit::PerOp, per(usage.switches)),
        figure("system time", Unit::NsPerOp, per(usage.system_ns)),
        figure("user time", Unit::NsPerOp, per(usage.user_ns)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that ticks every 4 ms shows 0 for a short turn. Over all turns together it shows a
    /// time, or there is no figure.
    #[test]
    fn cpu_time_that_the_clock_did_not_see_is_not_zero() {
        let of = |values: [f64; 3]| {
            let figures = values.map(|value| figure("user time", Unit::NsPerOp, value)).to_vec();
            Running { way: Way::default(), work: None, figures }.figures()
        };
        assert_eq!(of([0.0, 0.0, 0.0]), []);
        assert_eq!(of([0.0, 0.0, 600.0]), [figure("user time", Unit::NsPerOp, 200.0)]);
    }

    #[test]
    fn a_turn_is_a_part_of_the_budget() {
        let pace = Pace { rounds: 5, budget: Some(Duration::from_secs(10)) };
        assert_eq!(pace.turn(6), Duration::from_millis(200));
        assert_eq!(pace.turn(10_000), TURN_MIN);
        assert_eq!(Pace { budget: None, ..pace }.turn(6), Duration::MAX);
    }
}
