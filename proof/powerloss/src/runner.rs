//! The one runner: the writers of a lab, one after the other, crashed on a medium, and what the lab
//! says of each state.
//!
//! *Owns*: the rounds, the counts, what is kept of a broken promise, the result. *May not
//! touch*: what a writer does, how a crash is made, what is right.
//!
//! A round: the lab starts its writer where the medium says and hears it; the medium takes the
//! process away and shows what is left, each state a directory; the lab judges each. A medium
//! supplies the place, the states and, where it has one, the recording from which each state can be
//! made again. A lab supplies the writer, the judge and the words:
//!
//! | lab | writer | medium | the judge compares with |
//! |---|---|---|---|
//! | [`crate::any`] | any command | killed, power cut | the lines that it printed |
//! | [`crate::kill`] | a log in use ([`crate::in_use`]) | killed | what its calls were promised |
//! | [`crate::faults`] | the same | power cut, after the disk has failed | the same |
//! | [`crate::log_run`] | the same, with one history | power cut | the same |
//!
//! [`crate::check`] knows of no promise: it counts what it sees by itself.
//!
//! On the simulated disk there is neither a process nor a path: [`crate::sim`] has its own turns.

use std::fmt::{self, Display, Formatter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::medium::{Choice, Medium, RunError, State};
use crate::result::{RunResult, Violation};

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) enough: Enough,
    /// After so many violations the rest would show the same.
    pub(crate) violations_max: usize,
    /// Where the recording of a broken promise is kept.
    pub(crate) keep_in: Option<PathBuf>,
}

/// How long a lab goes on.
#[derive(Debug, Clone, Copy)]
pub enum Enough {
    Rounds(u64),
    /// No state is begun later than this after the start.
    Time(Duration),
}

impl Display for Enough {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounds(rounds) => write!(f, "{rounds}"),
            Self::Time(time) => write!(f, "{time:?}"),
        }
    }
}

/// What a writer did until its crash.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Which states are shown; `None`: none, since the writer itself broke a promise.
    pub(crate) choice: Option<Choice>,
    /// Promises that were broken before the crash.
    pub(crate) broken: Vec<String>,
}

/// What is crashed, and what must hold then.
pub(crate) trait Lab<M: Medium> {
    /// Starts the writer of a round, counted from 0, and hears it until it is to be crashed or has
    /// ended.
    fn write(&mut self, round: u64, medium: &mut M, stop: &AtomicBool)
    -> Result<Written, RunError>;

    /// The inner error is a broken promise.
    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError>;

    /// What is known to be wrong before anything was crashed, in words.
    fn warning(&self) -> Option<String> {
        None
    }

    /// The round in words.
    fn words(&self) -> String;

    /// The command that shows a broken promise again, if no recording was kept.
    fn again(&self) -> String;
}

/// The command that shows a state of a recording.
pub(crate) fn replay(recording: &Path, place: Option<&str>) -> String {
    match place {
        Some(place) => format!("inkstone powerloss replay {} {place}", recording.display()),
        None => format!("inkstone powerloss show {}", recording.display()),
    }
}

/// Runs a plan on a medium and adds to its result.
pub(crate) fn run<M: Medium, L: Lab<M>>(
    plan: &Plan,
    medium: &mut M,
    lab: &mut L,
    result: &mut RunResult,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    let (rounds, time) = match plan.enough {
        Enough::Rounds(rounds) => (rounds, None),
        Enough::Time(time) => (u64::MAX, Some(time)),
    };
    let began = Instant::now();
    let is_late = || time.is_some_and(|time| began.elapsed() >= time);
    for number in 0..rounds {
        let is_enough = result.violations.len() >= plan.violations_max;
        if stop.load(Ordering::Relaxed) || is_enough {
            result.not_run.push(format!("stopped after {number} rounds of {}", plan.enough));
            break;
        }
        if is_late() {
            break;
        }
        let written = match lab.write(number, medium, stop) {
            Err(_) if stop.load(Ordering::Relaxed) => continue,
            written => written?,
        };
        if let Some(warning) = lab.warning() {
            progress(&warning);
        }
        let mut broken: Vec<_> = written.broken.into_iter().map(|why| (why, None)).collect();
        if let Some(choice) = written.choice {
            let shown = medium.states(&choice, &mut |state| {
                let judged = lab.judge(state)?;
                result.count(state.class, 1);
                broken.extend(judged.err().map(|why| (why, state.place)));
                let count = result.violations.len() + broken.len();
                let is_enough = count >= plan.violations_max || is_late();
                let is_over = is_enough || stop.load(Ordering::Relaxed);
                Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            });
            match shown {
                Err(_) if stop.load(Ordering::Relaxed) => {}
                shown => shown?,
            }
        }
        let mut kept = None;
        for (mut what, place) in broken {
            what = format!("{}: {what}", lab.words());
            if let (None, Some(parent), Some(recording)) =
                (&kept, &plan.keep_in, medium.recording())
            {
                let name = format!("powerloss-{}", lab.words().replace([' ', ','], "-"));
                match recording.save_in(parent, &name) {
                    Ok(path) => kept = Some(path),
                    Err(why) => what += &format!("; the recording could not be kept: {why}"),
                }
            }
            let place = place.map(|place| place.to_string());
            let command = kept.as_deref().map(|kept| replay(kept, place.as_deref()));
            let command = command.unwrap_or_else(|| lab.again());
            result.violations.push(Violation { what, command });
        }
        let (done, states) = (number + 1, result.states());
        progress(&format!("{}: {done} rounds of {}, {states} states", lab.words(), plan.enough));
    }
    Ok(())
}
