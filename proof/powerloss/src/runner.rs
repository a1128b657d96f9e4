//! The one runner: the writers of a lab, one after the other, crashed on a medium, and what the lab
//! says of each state.
//!
//! *Owns*: the rounds, the counts, what is kept of a broken promise, the certificate. *May not
//! touch*: what a writer does, how a crash is made, what is right.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::certificate::{Certificate, Violation};
use crate::kernel::machine::Machine;
use crate::kernel::states::{Cut, Kept, exactly};
use crate::medium::{Choice, Judge, Medium, RunError, State};

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Writers that are crashed.
    pub rounds: u64,
    /// After so many violations the rest would show the same.
    pub violations_max: usize,
    /// Where the recording of a broken promise is kept.
    pub keep_in: Option<PathBuf>,
}

/// What a writer did until its crash.
#[derive(Debug, Default)]
pub struct Written {
    /// Which states are shown; `None`: none, since the writer itself broke a promise.
    pub choice: Option<Choice>,
    /// Promises that were broken before the crash.
    pub broken: Vec<String>,
}

/// What is said of a state.
#[derive(Debug)]
pub enum Verdict {
    /// Every promise held.
    Held,
    /// One was broken, in this state, or in one with these units of the cut.
    Broken(String, Option<Kept>),
    /// Whatever it is, no more states are wanted.
    Enough,
}

impl From<Result<(), String>> for Verdict {
    fn from(judged: Result<(), String>) -> Self {
        judged.map_or_else(|why| Self::Broken(why, None), |()| Self::Held)
    }
}

/// What is crashed, and what must hold then.
pub trait Lab<M: Medium> {
    /// Starts the writer of a round, counted from 0, and hears it until it is to be crashed or has
    /// ended.
    fn write(&mut self, round: u64, medium: &mut M, stop: &AtomicBool)
    -> Result<Written, RunError>;

    /// Judges a state.
    fn judge(&mut self, state: &State<'_>) -> Result<Verdict, RunError>;

    /// Judges what follows from the state that was judged last, when it is not mounted any more.
    fn after(&mut self, _: &Machine, _: &Cut, _: &[bool]) -> Result<Verdict, RunError> {
        Ok(Verdict::Held)
    }

    /// What a state is whose file system does not come up.
    fn is_dead(&mut self, _: &State<'_>, why: String) -> Verdict {
        Verdict::Broken(why, None)
    }

    /// Under which name the last state counts, if not under the medium's.
    fn class(&self) -> Option<String> {
        None
    }

    /// The round in words.
    fn words(&self) -> String;

    /// The command that shows a broken promise again, in a recording that was kept or by itself.
    fn again(&self, kept: Option<&Path>, place: Option<&str>) -> String;

    /// A round is over: a line for people.
    fn is_over(&mut self, _: &mut M) -> Option<String> {
        None
    }
}

/// The command that shows a state of a recording.
pub fn replay(recording: &Path, place: Option<&str>) -> String {
    match place {
        Some(place) => format!("inkstone powerloss replay {} {place}", recording.display()),
        None => format!("inkstone powerloss show {}", recording.display()),
    }
}

/// Judges the states of one round.
struct Round<'a, L> {
    lab: &'a mut L,
    certificate: &'a mut Certificate,
    violations_max: usize,
    stop: &'a AtomicBool,
    /// Broken promises, each with the place of its state.
    broken: Vec<(String, Option<String>)>,
}

impl<L> Round<'_, L> {
    fn take(&mut self, place: Option<&(usize, String)>, verdict: Verdict) -> ControlFlow<()> {
        match verdict {
            Verdict::Held => {}
            Verdict::Enough => return ControlFlow::Break(()),
            Verdict::Broken(why, kept) => {
                let place = place.map(|(entry, subset)| {
                    let subset = kept.map_or_else(|| subset.clone(), |kept| exactly(&kept));
                    format!("--entry {entry} --subset {subset}")
                });
                self.broken.push((why, place));
            }
        }
        let count = self.certificate.violations.len() + self.broken.len();
        if count >= self.violations_max || self.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl<M: Medium, L: Lab<M>> Judge for (Round<'_, L>, std::marker::PhantomData<M>) {
    fn judge(&mut self, state: &State<'_>) -> Result<ControlFlow<()>, RunError> {
        let round = &mut self.0;
        let verdict = round.lab.judge(state)?;
        let class = round.lab.class().unwrap_or_else(|| state.class.to_owned());
        round.certificate.count(&class, 1);
        Ok(round.take(state.place.as_ref(), verdict))
    }

    fn after(
        &mut self,
        machine: &Machine,
        cut: &Cut,
        kept: &[bool],
    ) -> Result<ControlFlow<()>, RunError> {
        let verdict = self.0.lab.after(machine, cut, kept)?;
        Ok(self.0.take(Some(&(cut.entry, exactly(kept))), verdict))
    }

    fn is_dead(&mut self, state: &State<'_>, why: String) -> Result<ControlFlow<()>, RunError> {
        let round = &mut self.0;
        round.certificate.count(state.class, 1);
        let verdict = round.lab.is_dead(state, why);
        Ok(round.take(state.place.as_ref(), verdict))
    }
}

/// Runs a plan on a medium and adds to its certificate.
pub fn run<M: Medium, L: Lab<M>>(
    plan: &Plan,
    medium: &mut M,
    lab: &mut L,
    certificate: &mut Certificate,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    for number in 0..plan.rounds {
        let is_enough = certificate.violations.len() >= plan.violations_max;
        if stop.load(Ordering::Relaxed) || is_enough {
            let left = plan.rounds - number;
            certificate.not_run.push(format!("{left} of {} rounds: stopped", plan.rounds));
            break;
        }
        let written = match lab.write(number, medium, stop) {
            Err(_) if stop.load(Ordering::Relaxed) => continue,
            written => written?,
        };
        let violations_max = plan.violations_max;
        let broken = written.broken.into_iter().map(|why| (why, None)).collect();
        let round = Round { lab, certificate, violations_max, stop, broken };
        let mut round = (round, std::marker::PhantomData::<M>);
        if let Some(choice) = written.choice {
            medium.states(&choice, &mut round)?;
        }
        let broken = round.0.broken;
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
            let command = lab.again(kept.as_deref(), place.as_deref());
            certificate.violations.push(Violation { what, command });
        }
        lab.is_over(medium).iter().for_each(|line| progress(line));
    }
    Ok(())
}
