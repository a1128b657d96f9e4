//! A text log written by many threads (E9): the text log writer compared with the standard library.
//!
//! *Owns*: the list of ways, how the time is shared out, the finding. *May not touch*: how a line
//! is written (`ways`, and the appender's own crate), the rounds.

mod bill;
mod buffers;
mod load;
mod practice;
mod ways;

use std::time::{Duration, Instant};

use inkstone_io::NamedChoice as _;

use crate::finding::place_words;
use crate::progress::Progress;
use crate::result::{Finding, Relative, Verdict};
use crate::site::Site;
use crate::stage::{CellError, Session};
use crate::table::numbers::{sig3, time};

use super::ExperimentResult;
use super::definition::{Experiment, OwnCommand, Scene, Setting, SettingValue, Size};
use super::rounds::{Frame, Pace, Row, measure};
use super::words::{compared, figure_of, median_of, row};
use bill::Synced;
use load::{Lines, Load, Writers};
use ways::{FILE_BYTES, LINE_BYTES, Way};

pub(crate) use buffers::Buffers;

/// What to measure.
#[derive(Debug, Clone)]
pub struct TextPlan {
    /// The most lines of a turn without a pace, of all threads together.
    pub lines: u64,
    /// The longest turn with a pace.
    pub paced: Duration,
    /// Numbers of threads; each is an experiment of its own, without a pace and with one.
    pub threads: Vec<usize>,
    /// Whether to trace the block layer too, if that is possible.
    pub bill: bool,
}

impl Default for TextPlan {
    fn default() -> Self {
        Self { lines: 1_000_000, paced: Duration::from_secs(1), threads: vec![1, 4], bill: true }
    }
}

impl Experiment for TextPlan {
    fn name(&self) -> &'static str {
        "text"
    }

    /// Published are 10,000,000 lines per turn, as in `bench/appender`, which compares other
    /// crates. The quick tier has no time for one thread by itself, nor for the bill.
    fn sized(size: Size) -> Self {
        let usual = Self::default();
        match size {
            Size::Published => Self { lines: 10_000_000, ..usual },
            Size::Quick => Self { lines: 200_000, threads: vec![4], bill: false, ..usual },
            Size::Twins => Self { bill: false, ..usual },
            Size::Usual | Size::Standard | Size::Full | Size::Claims => usual,
        }
    }

    fn command(&self) -> Option<OwnCommand> {
        Some(OwnCommand {
            help: "Text lines from several threads: the text log writer beside a locked file and a locked buffer (E9)",
            subject: "A text log",
            seconds: 18,
            weight: if self.bill { 5.0 } else { 3.0 },
        })
    }

    fn settings(&mut self) -> Vec<Setting<'_>> {
        vec![Setting {
            name: "lines",
            help: "At most this many lines in a turn without a pace [default: 1000000]",
            value: SettingValue::Number(&mut self.lines, 1000, 1_000_000_000),
        }]
    }

    /// Room for the lines of one turn, and for files that are kept.
    fn room_needed_bytes(&self) -> u64 {
        self.lines * LINE_BYTES as u64 + 4 * FILE_BYTES
    }

    fn rows(&self) -> usize {
        let bill = if self.bill { 2 * bill::ROWS } else { 0 };
        2 * self.threads.len() * Way::ALL.len() + bill
    }

    fn is_of_memory(&self) -> bool {
        true
    }

    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let lines = Lines::new(pace.seed);
        let bill_weight = if self.bill { 2.0 * BILL_WEIGHT } else { 0.0 };
        let mut rest = self.threads.len() as f64 * (UNPACED_WEIGHT + PACED_WEIGHT) + bill_weight;
        let begin = Instant::now();
        let mut part = |weight: f64| {
            let share = weight / rest;
            rest -= weight;
            let left = pace.budget.map(|budget| budget.saturating_sub(begin.elapsed()));
            Pace { budget: left.map(|left| left.mul_f64(share)), ..*pace }
        };
        let mut found = Vec::new();
        for &threads in &self.threads {
            let load = Load::Unpaced { lines: self.lines };
            found.push(one(site, session, &lines, load, threads, &part(UNPACED_WEIGHT), progress));
        }
        for &threads in &self.threads {
            let load = Load::Paced { at_most: self.paced };
            let mut pace = part(PACED_WEIGHT);
            pace.budget = pace.budget.map(|budget| budget.mul_f64(PACED_MEASURED));
            found.push(one(site, session, &lines, load, threads, &pace, progress));
        }
        match &site.trace {
            _ if !self.bill => {}
            Ok(()) => {
                for synced in Synced::ALL {
                    found.push(bill::bill(
                        site,
                        session,
                        &lines,
                        synced,
                        &part(BILL_WEIGHT),
                        progress,
                    ));
                }
            }
            Err(reason) => {
                let said = format!(
                    "the cost at the block layer is missing, because the block layer could not be traced: {reason}"
                );
                found.iter_mut().take(1).for_each(|first| first.notes.push(said.clone()));
            }
        }
        // Ctrl-C leaves what was measured until then.
        found.retain(|one| {
            one.rows.iter().any(|row| !row.samples.is_empty() || row.invalid.is_some())
        });
        Ok(found)
    }
}

/// Shares of the budget for each number of threads, without a pace and with one. Tails need more
/// lines than rates. Time that a part does not use goes to the later parts, and time beyond its
/// share is taken from them.
const UNPACED_WEIGHT: f64 = 0.16;
const PACED_WEIGHT: f64 = 0.27;
const BILL_WEIGHT: f64 = 0.07;
/// A turn with a pace needs hardly any preparation, so it gets more measured time than the rounds
/// would plan.
const PACED_MEASURED: f64 = 1.2;
const BASELINE: Way = Way::Buffered;

fn one(
    site: &Site,
    session: &Session<'_>,
    lines: &Lines,
    load: Load,
    threads: usize,
    pace: &Pace,
    progress: &mut Progress,
) -> ExperimentResult {
    let rows = Way::ALL.iter().map(|&way| {
        let writers = Writers::new(way, load, threads, lines);
        Row::new(way.name(), way.series(), None, Ok(writers))
    });
    let by = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
    let frame = Frame {
        name: "text",
        title: match load {
            Load::Unpaced { .. } => {
                format!(
                    "Text lines of {LINE_BYTES} B by {by}, as fast as they go, until all are in the file"
                )
            }
            Load::Paced { .. } => {
                format!(
                    "Text lines of {LINE_BYTES} B by {by}, 100,000 a second each: how long one write takes"
                )
            }
        },
        x_name: None,
        unit: match load {
            Load::Unpaced { .. } => "lines/s",
            Load::Paced { .. } => "ns, p99.9 of a write",
        },
        baseline: BASELINE.name().into(),
    };
    let mut found = measure(site, session, pace, &frame, rows.collect(), progress);
    found.name = load.name(threads);
    found.notes = notes(load);
    found.finding = finding(&found, load, &by);
    found
}

fn notes(load: Load) -> Vec<String> {
    let memory = "memory: how much the process had grown by the last line; \"in files of\": the file is rotated at that size; \"article 1\": its last four files are \
     kept, and a line may begin in one and end in the next";
    let load = match load {
        Load::Unpaced { .. } => {
            "a turn ends when every line is in the file and it is closed; the CPU time is that of the whole process until then"
        }
        Load::Paced { .. } => {
            "each thread writes a burst of 100 lines every millisecond, and each write is timed; a round's value is its 99.9th \
             percentile, and the latencies are of all rounds; pace kept: the share of bursts that came in time"
        }
    };
    vec![load.into(), memory.into()]
}

fn finding(found: &ExperimentResult, load: Load, by: &str) -> Option<Finding> {
    let ours = row(found, Way::Log.name())?;
    let value = median_of(ours)?;
    let lost: f64 = found.rows.iter().filter_map(|row| figure_of(row, "lines lost")).sum();
    let lost = if lost > 0.0 { format!("; {} lines were lost", sig3(lost)) } else { String::new() };
    let sentence = match load {
        Load::Unpaced { .. } => format!(
            "With {by}, the text log takes {} M lines a second on {}, until all are in the file: {}{lost}.",
            sig3(value / 1e6),
            place_words(&found.place),
            compared(ours.relative.as_ref(), BASELINE.name()),
        ),
        Load::Paced { .. } => format!(
            "With {by} at 100,000 lines a second each, 999 of 1,000 writes to the text log take at most {} here: {}{lost}.",
            time(value),
            tail_words(ours.relative.as_ref()),
        ),
    };
    Some(Finding { sentence, naive: Some(BASELINE.name().into()), ..Finding::default() })
}

fn tail_words(relative: Option<&Relative>) -> String {
    let base = BASELINE.name();
    let said = |relative: &Relative, how: &str| {
        let (speedup, interval) = (sig3(relative.speedup), relative.interval_words());
        format!("{speedup} times as {how} as with `{base}` ({interval})")
    };
    match relative {
        Some(shorter) if shorter.verdict == Verdict::Faster => said(shorter, "short"),
        Some(longer) if longer.verdict == Verdict::Slower => said(&longer.turned(), "long"),
        Some(few) if few.verdict == Verdict::Unknown => said(few, "short"),
        Some(same) if same.verdict == Verdict::Tie => {
            format!("a tie with `{base}` in these rounds")
        }
        _ => format!("not told from `{base}` in these rounds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_shorter_or_longer_and_not_both() {
        let relative = |speedup, verdict| {
            Relative::with_interval(speedup, (speedup * 0.8, speedup * 1.25), verdict)
        };
        let shorter = tail_words(Some(&relative(10.0, Verdict::Faster)));
        assert_eq!(shorter, "10.0 times as short as with `Mutex<BufWriter>` (95%: 8.00 to 12.50)");
        let longer = tail_words(Some(&relative(0.5, Verdict::Slower)));
        assert_eq!(longer, "2.00 times as long as with `Mutex<BufWriter>` (95%: 1.60 to 2.50)");
        assert!(tail_words(Some(&relative(1.1, Verdict::Tie))).starts_with("a tie with"));
    }
}
