//! The result of a run of the lab: the contract between measuring and showing. Tables, pages and
//! exports read only this.
//!
//! *Owns*: the tables, units and schema version; `bill` has the record of a bill. *May not touch*:
//! how it is measured or printed. Every duration is in nanoseconds (`_ns`), every size in bytes. A
//! figure that was not measured is `None` or missing, never 0.

mod bill;

use serde::{Deserialize, Serialize};

pub use bill::*;

/// Raised whenever the meaning or the name of a field changes.
pub const SCHEMA_VERSION: u32 = 8;

/// The result of one invocation of the lab.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LabResult {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of Inkstone.
    pub inkstone_version: String,
    /// The command line, to repeat it.
    pub command: String,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Whether it was ended early (Ctrl-C): then the rest was measured before that.
    pub interrupted: bool,
    /// The machine.
    pub machine: Machine,
    /// Which of several directories should carry a log, in words.
    pub sentence: Option<String>,
    /// These directories, best first; those where nothing is durable last.
    pub disks: Vec<Disk>,
    /// Ways measured side by side, a table for each place and question.
    pub tables: Vec<Table>,
    /// The answers to statements, in the order of the experiments.
    pub statements: Vec<Answer>,
    /// What a reader should know before believing the rest.
    pub warnings: Vec<Warning>,
}

impl LabResult {
    /// Whether anything was measured or answered.
    pub fn has_content(&self) -> bool {
        self.tables.iter().any(Table::has_content)
            || self.statements.iter().any(|answer| answer.verdict != Judged::NotRun)
    }

    /// The whole result on one line.
    ///
    /// # Errors
    /// When serde cannot write it; with these types that does not happen.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self).map(|json| json + "\n")
    }

    /// Reads what [`LabResult::to_json`] wrote.
    ///
    /// # Errors
    /// The reason, in words: it is not JSON, not a result, or of another version.
    pub fn from_json(json: &str) -> Result<Self, String> {
        let told: serde_json::Value =
            serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
        let Some(found) = told["schema_version"].as_u64() else {
            return Err("it is not a result of the lab: it has no schema_version".into());
        };
        if found != u64::from(SCHEMA_VERSION) {
            let by = told["inkstone_version"].as_str().unwrap_or("a version that it does not name");
            return Err(format!(
                "its schema_version is {found}, but this inkstone reads {SCHEMA_VERSION}: use the \
                 inkstone that measured it ({by})"
            ));
        }
        serde_json::from_str(json)
            .map_err(|error| format!("it is not a result of the lab: {error}"))
    }
}

/// The machine that the lab ran on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// How many CPUs this process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Whether it runs as root.
    pub root: bool,
    /// Why the block layer could not be traced; `None` where it can.
    pub trace_refused: Option<String>,
}

/// Where the files of a run are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Place {
    /// Its name in tables: `.`, or `ext4, direct loop`.
    pub name: String,
    /// The directory.
    pub directory: String,
    /// File system: `ext4`.
    pub file_system: String,
    /// Mount options, as the kernel prints them.
    pub mount_options: String,
    /// ext4: whether it has a journal. `None` elsewhere, or if unknown.
    pub journal: Option<bool>,
    /// Whether an overwrite goes to another place: `no`, `shared extents only`, `always`.
    pub copy_on_write: String,
    /// The block device's name: `vda`. `None` where there is none (tmpfs, network).
    pub device: Option<String>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Whether the device has FUA.
    pub fua: Option<bool>,
    /// I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Model of the device, where sysfs has one.
    pub model: Option<String>,
    /// Offset alignment for O_DIRECT in bytes; 0 = no O_DIRECT; `None` = unknown.
    pub direct_align_bytes: Option<u32>,
    /// The largest write that does not tear if it asks for that, in bytes; 0 = none; `None` =
    /// unknown.
    pub atomic_write_bytes: Option<u32>,
    /// For a loop device: its backing file and whether it is opened directly.
    pub loop_backing: Option<String>,
    /// The place below a loop device.
    pub host: Option<Box<Place>>,
}

/// Ways measured side by side in one place, in rounds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Table {
    /// Short name, unique in one place: `quick`, `e1-removed`, `read-random-cold`.
    pub name: String,
    /// What it shows, in one line for people.
    pub title: String,
    /// Where.
    pub place: Place,
    /// What is compared: a rate (more is better) or a time (less is better).
    pub unit: Unit,
    /// Name of the way that the others are compared with.
    pub baseline: Option<String>,
    /// Planned rounds.
    pub rounds: u32,
    /// Whether the order of ways was random in each round.
    pub random_order: bool,
    /// The ways, in the planned order.
    pub ways: Vec<Way>,
    /// What it means, in words.
    pub finding: Option<Finding>,
    /// What a reader should know about it: what could not be checked, missing rights.
    pub notes: Vec<String>,
}

impl Table {
    /// Whether anything was measured.
    pub fn has_content(&self) -> bool {
        self.ways.iter().any(Way::is_measured)
    }

    /// The way of this name.
    pub fn way(&self, name: &str) -> Option<&Way> {
        self.ways.iter().find(|way| way.name == name)
    }
}

/// One way of doing something.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Way {
    /// Its name, unique in the table: `reuse fdatasync`, `pool, 8 threads`.
    pub name: String,
    /// Bytes of its file, if it is a way of writing one: then its name says which
    /// (`crate::writing::Writing::named`).
    pub file_bytes: Option<u64>,
    /// Why there are no figures, in words.
    pub missing: Option<String>,
    /// Each round, in the order it ran.
    pub rounds: Vec<Round>,
    /// Compared with the baseline, paired by round: above 1 is more per second, or less time.
    /// `None` for the baseline, and for a write of another size.
    pub relative: Option<Relative>,
    /// Times of single operations, if they were timed one by one. Of a commit: from before the
    /// write to the acknowledgement.
    pub latency: Option<Histogram>,
    /// Further counts and times, per operation unless the unit says otherwise.
    pub figures: Vec<Figure>,
    /// Facts in words: (what, the fact). A way that is no work has facts and no rounds.
    pub facts: Vec<(String, String)>,
    /// The requests to the device per commit, from a separate round that is not timed.
    pub bill: Option<Bill>,
    /// Why there is no bill although the requests were traced: the trace contradicts what the way
    /// did (see `bar`).
    pub no_bill: Option<String>,
    /// Bills of further passes, to know how much a count varies.
    pub recounts: Vec<Bill>,
    /// Whether the observed flushes cover the acknowledgements.
    pub durable: Option<DurableFinding>,
}

impl Way {
    /// Whether it has any round, or facts in place of rounds.
    pub fn is_measured(&self) -> bool {
        self.missing.is_none() && !(self.rounds.is_empty() && self.facts.is_empty())
    }

    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }
}

/// A further figure of a way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// `context switches`, `system time`, `resident before`.
    pub name: String,
    /// `per operation`, `ns per operation`, `%`, `bytes/s`, `lines`.
    pub unit: Unit,
    /// The value.
    pub value: f64,
}

/// A figure.
pub fn figure(name: &str, unit: Unit, value: f64) -> Figure {
    Figure { name: name.into(), unit, value }
}

/// One round of one way.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Round {
    /// Which round of the run.
    pub number: u32,
    /// The way's position in that round's order.
    pub turn: u32,
    /// Commits acknowledged, or other operations.
    pub commits: u64,
    /// Their time. Of commits: from before the first write to the last acknowledgement and the
    /// closing sync.
    pub total_ns: u64,
}

impl Round {
    /// Nanoseconds per commit.
    pub fn per_commit_ns(&self) -> f64 {
        self.total_ns as f64 / self.commits.max(1) as f64
    }

    /// Whether it has a time per commit.
    pub fn is_usable(&self) -> bool {
        self.commits > 0 && self.total_ns > 0
    }

    /// Its value in this unit.
    pub fn value(&self, unit: Unit) -> f64 {
        match unit.is_time() {
            true => self.per_commit_ns(),
            false => self.commits as f64 * 1e9 / self.total_ns.max(1) as f64,
        }
    }
}

/// How a way compares with the baseline.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Relative {
    /// Time per operation of the baseline divided by this way's, paired by round: above 1 is
    /// faster.
    pub speedup: f64,
    /// Lower end of its 95% interval; `None` if there were too few rounds.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Relative {
    /// A comparison with enough rounds for an interval.
    pub fn with_interval(speedup: f64, (low, high): (f64, f64), verdict: Verdict) -> Self {
        Self { speedup, low: Some(low), high: Some(high), verdict }
    }

    /// With fewer rounds: the speedup alone, without a verdict.
    pub fn without_interval(speedup: f64) -> Self {
        Self { speedup, low: None, high: None, verdict: Verdict::Unknown }
    }

    /// The interval, if there are rounds enough for one.
    pub fn interval(&self) -> Option<(f64, f64)> {
        if self.verdict == Verdict::Unknown { None } else { self.low.zip(self.high) }
    }

    /// `1.20 [1.10..1.30]`, `1.01 [0.98..1.04] tie`, `1.15 (few rounds)`.
    pub fn words(&self) -> String {
        let speedup = self.speedup;
        match self.interval() {
            None => format!("{speedup:.2} (few rounds)"),
            Some((low, high)) => {
                format!("{speedup:.2} [{low:.2}..{high:.2}]{}", self.verdict.mark())
            }
        }
    }

    /// `95%: 1.10 to 1.30`, or why there is no interval.
    pub(crate) fn interval_words(&self) -> String {
        match self.interval() {
            Some((low, high)) => format!("95%: {low:.2} to {high:.2}"),
            None => FEW_ROUNDS.into(),
        }
    }

    /// The inverse comparison.
    pub(crate) fn turned(&self) -> Self {
        let turn = |end: Option<f64>| end.map(|end| 1.0 / end);
        let verdict = match self.verdict {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            other => other,
        };
        Self { speedup: 1.0 / self.speedup, low: turn(self.high), high: turn(self.low), verdict }
    }
}

/// Shown in place of an interval.
pub(crate) const FEW_ROUNDS: &str = "too few rounds for an interval";

/// Whether two ways differ: only when the interval is clear of 1 *and* the effect is at least 3%
/// (`stats::verdict` is the rule).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Takes less time.
    Faster,
    /// Takes more time.
    Slower,
    /// The whole interval is within 10% of 1: one is as good as the other.
    Tie,
    /// The interval allows more than one of these.
    CannotTell,
    /// Too few rounds for an interval.
    Unknown,
}

impl Verdict {
    /// Follows a figure in a table: empty where the figure itself says it.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Faster | Self::Slower => "",
            Self::Tie => " tie",
            Self::CannotTell => " cannot tell",
            Self::Unknown => " ?",
        }
    }
}

/// How long single operations took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Values recorded.
    pub count: u64,
    /// Largest.
    pub max_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
}

/// The lab's conclusion.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Finding {
    /// What the rounds show, each comparison of two ways that differ in one thing; or why they show
    /// nothing.
    pub sentence: String,
    /// Why, if the bills show it: what a commit costs at the device, before and after.
    pub why: Option<String>,
    /// The way to take: the plainest of those that nothing is shown to be faster than.
    pub best: Option<String>,
}

/// A warning for the reader, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A stable short name: `device-busy`.
    pub name: String,
    /// The problem.
    pub text: String,
    /// What to do.
    pub cure: String,
}

/// The verdict on a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judged {
    /// The whole interval is in the band.
    Confirmed,
    /// The whole interval is outside of it.
    Refuted,
    /// An end of the band is inside the interval: no answer.
    CannotTell,
    /// There is no figure; the answer has the reason.
    NotRun,
}

impl Judged {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::CannotTell => "cannot tell",
            Self::NotRun => "not run",
        }
    }
}

/// A statement of an article or a thread, and its answer here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// The statement's name.
    pub id: String,
    /// What was said.
    pub statement: String,
    /// Where it was said.
    pub source: String,
    /// The address of that, if it has one.
    pub link: Option<String>,
    /// The band in which the figure must lie, in words.
    pub band: String,
    /// The answer.
    pub verdict: Judged,
    /// The figure behind the answer.
    pub found: Option<Found>,
    /// Why it did not run; with a figure, why there is no answer.
    pub reason: Option<String>,
}

/// A figure with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The centre.
    pub value: f64,
    /// Lower end of the 95% interval; for a count, the count itself.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Its unit: `times`, `flushes a commit`.
    pub unit: String,
    /// What was compared, by names of ways.
    pub of: String,
    /// The file system, and the place if it is not the directory.
    pub place: String,
}

/// One of several directories that may carry a log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Disk {
    /// As the user gave it.
    pub directory: String,
    /// Its block device, if there is one.
    pub device: Option<String>,
    /// Why it must not carry a log, whatever its speed; or why nothing was measured.
    pub refused: Option<String>,
    /// Its fastest durable way.
    pub best: Option<String>,
    /// The median time of a commit in that way, in nanoseconds.
    pub per_commit_ns: Option<f64>,
    /// The best disk's way compared with this one's, paired by round: below 1, this one is slower.
    /// `None` for the best.
    pub relative: Option<Relative>,
}

macro_rules! units {
    ($($unit:ident = $name:literal;)*) => {
        /// The unit of a figure.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each is named by its text")]
        pub enum Unit {
            #[default]
            $(#[serde(rename = $name)] $unit,)*
        }

        impl Unit {
            /// As results and tables name it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$unit => $name,)* }
            }
        }
    };
}

units! {
    OperationsPerS = "operations/s";
    BytesPerS = "bytes/s";
    LinesPerS = "lines/s";
    CommitsPerS = "commits/s";
    NsPerCommit = "ns per commit";
    CallsPerS = "calls/s";
    Facts = "facts";
    Records = "records";
    TailNs = "ns, p99.9 of a write";
    Ns = "ns";
    NsPerOp = "ns per operation";
    PerOp = "per operation";
    PerSecond = "per second";
    PerFlush = "per flush";
    Bytes = "bytes";
    Blocks = "blocks";
    Calls = "calls";
    Percent = "%";
}

impl Unit {
    /// Whether it is a time in nanoseconds: less is better.
    pub fn is_time(self) -> bool {
        matches!(self, Self::TailNs | Self::Ns | Self::NsPerCommit | Self::NsPerOp)
    }

    /// Whether it counts bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::BytesPerS | Self::Bytes)
    }

    /// Whether it is a count for each of something.
    pub fn is_per(self) -> bool {
        matches!(self, Self::PerOp | Self::PerSecond | Self::PerFlush)
    }
}
