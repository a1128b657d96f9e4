//! A text log written by many threads (E9): the text log writer compared with the standard library.
//!
//! *Owns*: the list of ways, how the time is shared out, the finding. *May not touch*: how a line is written
//! (`ways`, and the appender's own crate), the rounds.

mod bill;
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

use super::Experiment;
use super::rounds::{Frame, Pace, Row, measure, steps_of};
use super::words::{compared, figure_of, median_of, row};
use bill::Synced;
use load::{Lines, Load, Writers};
use ways::{FILE_BYTES, LINE_BYTES, Way};

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

impl TextPlan {
    /// 10,000,000 lines per turn, as in `bench/appender`, which compares other crates.
    pub fn published() -> Self {
        Self { lines: 10_000_000, ..Self::default() }
    }

    /// Room for the lines of one turn, and for what is reserved ahead of them.
    pub(crate) fn room_needed_bytes(&self) -> u64 {
        self.lines * LINE_BYTES as u64 + 4 * FILE_BYTES
    }

    pub(crate) fn steps(&self, pace: &Pace) -> u64 {
        let bill = if self.bill { 2 * steps_of(pace, bill::ROWS) } else { 0 };
        2 * self.threads.len() as u64 * steps_of(pace, Way::ALL.len()) + bill
    }
}

/// Shares of the budget for each number of threads, without a pace and with one. Tails need more lines than rates. Time that a part
/// does not use goes to the later parts, and time beyond its share is taken from them.
const UNPACED_WEIGHT: f64 = 0.16;
const PACED_WEIGHT: f64 = 0.27;
const BILL_WEIGHT: f64 = 0.07;
/// A turn with a pace needs hardly any preparation, so it gets more measured time than the rounds would plan.
const PACED_MEASURED: f64 = 1.2;
const BASELINE: Way = Way::Buffered;

/// Measures without and with a pace, by one thread and by four; then the cost of allocating ahead at the block layer.
pub(crate) fn text(
    site: &Site,
    session: &Session<'_>,
    plan: &TextPlan,
    pace: &Pace,
    progress: &mut Progress,
) -> Result<Vec<Experiment>, CellError> {
    let lines = Lines::new(pace.seed);
    let bill_weight = if plan.bill { 2.0 * BILL_WEIGHT } else { 0.0 };
    let mut rest = plan.threads.len() as f64 * (UNPACED_WEIGHT + PACED_WEIGHT) + bill_weight;
    let begin = Instant::now();
    let mut part = |weight: f64| {
        let share = weight / rest;
        rest -= weight;
        let left = pace.budget.map(|budget| budget.saturating_sub(begin.elapsed()));
        Pace { budget: left.map(|left| left.mul_f64(share)), ..*pace }
    };
    let mut found = Vec::new();
    for &threads in &plan.threads {
        let load = Load::Unpaced { lines: plan.lines };
        found.push(one(site, session, &lines, load, threads, &part(UNPACED_WEIGHT), progress));
    }
    for &threads in &plan.threads {
        let load = Load::Paced { at_most: plan.paced };
        let mut pace = part(PACED_WEIGHT);
        pace.budget = pace.budget.map(|budget| budget.mul_f64(PACED_MEASURED));
        found.push(one(site, session, &lines, load, threads, &pace, progress));
    }
    match &site.trace {
        _ if !plan.bill => {}
        Ok(()) => {
            for synced in Synced::ALL {
                found.push(bill::bill(site, session, &lines, synced, &part(BILL_WEIGHT), progress));
            }
        }
        Err(reason) => {
            let said = format!(
                "the cost of allocating ahead is missing, because the block layer could not be traced: {reason}"
            );
            found.iter_mut().take(1).for_each(|first| first.notes.push(said.clone()));
        }
    }
    session.check()?;
    Ok(found)
}

fn one(
    site: &Site,
    session: &Session<'_>,
    lines: &Lines,
    load: Load,
    threads: usize,
    pace: &Pace,
    progress: &mut Progress,
) -> Experiment {
    let rows = Way::ALL.iter().map(|&way| {
        let writers = Writers::new(way, load, threads, lines);
        Row::new(way.name(), way.series(), None, Ok(writers))
    });
    let by = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
    let frame = Frame {
        name: "text",
        title: match load {
            Load::Unpaced { .. } => {
                format!("Text lines of {LINE_BYTES} B by {by}, as fast as they go, until all are in the file")
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
    let memory = "memory: how much the process had grown by the last line; \"in files of\": the file is rotated at that size; \
     \"ahead\": the next file is created and its blocks reserved beforehand; \"article 1\": its last four files are \
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

fn finding(found: &Experiment, load: Load, by: &str) -> Option<Finding> {
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
        _ => format!("a tie with `{base}` in these rounds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_shorter_or_longer_and_not_both() {
        let relative =
            |speedup, verdict| Relative::with_interval(speedup, (speedup * 0.8, speedup * 1.25), verdict);
        let shorter = tail_words(Some(&relative(10.0, Verdict::Faster)));
        assert_eq!(shorter, "10.0 times as short as with `Mutex<BufWriter>` (95%: 8.00 to 12.50)");
        let longer = tail_words(Some(&relative(0.5, Verdict::Slower)));
        assert_eq!(longer, "2.00 times as long as with `Mutex<BufWriter>` (95%: 1.60 to 2.50)");
        assert!(tail_words(Some(&relative(1.1, Verdict::Tie))).starts_with("a tie with"));
    }
}
