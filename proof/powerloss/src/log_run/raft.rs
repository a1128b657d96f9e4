//! A raft log as what is written: its writer, and what may be found at each moment of a recording
//! of it.
//!
//! *Owns*: the calls of a history, their lines, reading them. *May not touch*: what a call means
//! (`crate::raft`), disks, recordings.
//!
//! Writer and reader draw the same calls from the seed. After each the writer says how many of the
//! calls since the last opening are certain: `done 7 3`. After a kill it says too which call was
//! the last one that is found, and what of `save_committed`: `done 7 0 2 5 1`, the second call, 5
//! is committed (`-` nothing), and the last that was said is known.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use inkstone_io::OsDirectory;
use inkstone_raft::{Options, RaftLog};
use inkstone_sim::survival::{Past, Thing as _};

use super::spec::Spec;
use crate::raft::history::{Draw, carry_out};
use crate::raft::model::{Model, Op};
use crate::words::{DONE, InStep, OPENED, OPENING, START};
use inkstone_subject::mistake::open_raft_in;

/// One thing that the writer does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Call(Op),
    /// Close it, and open it again.
    Reopen,
    /// End as a killed process does, and open it again.
    Kill,
}

/// What a raft log may hold, followed through a history.
pub(crate) struct Story {
    draw: Draw,
    /// What it held after each call since the last opening.
    pub(crate) past: Past<Model>,
}

impl Story {
    pub(crate) fn new(spec: &Spec) -> Self {
        let rng = fastrand::Rng::with_seed(spec.seed ^ 0x7261_6674_2020_6C67);
        Self { draw: Draw { rng }, past: Past::new(Model::new()) }
    }

    pub(crate) fn begin(&mut self) -> Step {
        let Self { draw, past } = self;
        let step = match draw.rng.u32(..14) {
            0 => Step::Kill,
            1 => Step::Reopen,
            _ => Step::Call(draw.allowed(past.now())),
        };
        match &step {
            Step::Call(op) => past.push(past.now().after(op)),
            Step::Reopen => past.push(past.now().closed()),
            Step::Kill => {}
        }
        step
    }

    /// The step has ended, as its line says.
    pub(crate) fn end(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ').skip(1);
        let calls = words.next()?.parse().ok().filter(|calls| *calls <= self.past.calls())?;
        self.past.is_certain(calls);
        if let Some(found) = words.next() {
            let mut model = self.past.states().get(found.parse::<usize>().ok()?)?.clone();
            model.committed = match words.next()? {
                "-" => None,
                index => Some(index.parse().ok()?),
            };
            if words.next()? == "0" {
                model.said.clone_from(&model.said_recorded);
            }
            self.past = Past::new(model.closed());
        }
        Some(())
    }
}

/// The options of a raft log on such a log.
pub(crate) fn options(log: inkstone::Options) -> Options {
    Options::new().log(log).memory_bytes(3000)
}

fn open(spec: &Spec, directory: &Path) -> Result<RaftLog, String> {
    let directory = OsDirectory::create(directory).map_err(|error| error.to_string())?;
    open_raft_in(directory, spec.options(spec.has_threads()), options, spec.mistake)
        .map_err(|error| format!("the raft log does not open: {error}"))
}

pub(crate) fn write(
    spec: &Spec,
    directory: &Path,
    recorder: &mut InStep<'_, impl BufRead>,
) -> Result<(), String> {
    recorder.say(OPENING)?;
    let mut raft = open(spec, directory)?;
    let mut story = Story::new(spec);
    check(&raft, story.past.now())?;
    recorder.say(OPENED)?;
    for number in 0..spec.length {
        recorder.say(&format!("{START} {number}"))?;
        let certain = Arc::new(AtomicUsize::new(0));
        let step = story.begin();
        let broken = |why: String| format!("operation {number}, {step:?}: {why}");
        let line = match &step {
            Step::Call(op) => call(&raft, op, &story, &certain).map_err(broken)?,
            Step::Reopen => {
                raft.close().map_err(|error| broken(format!("it does not close: {error}")))?;
                drop(raft);
                raft = open(spec, directory).map_err(broken)?;
                check(&raft, story.past.now()).map_err(broken)?;
                story.past.calls().to_string()
            }
            Step::Kill => {
                raft.abandon();
                raft = open(spec, directory).map_err(broken)?;
                killed(&raft, &story).map_err(broken)?
            }
        };
        let line = format!("{number} {line}");
        story.end(&line).ok_or_else(|| broken(format!("{line:?} cannot be")))?;
        recorder.say(&format!("{DONE} {line}"))?;
    }
    Ok(())
}

/// Makes a call; the line says how many calls are certain then.
fn call(
    raft: &RaftLog,
    op: &Op,
    story: &Story,
    certain: &Arc<AtomicUsize>,
) -> Result<String, String> {
    let last = story.past.calls();
    let told = Arc::clone(certain);
    let callback = move |result: inkstone_raft::Result<()>| {
        if result.is_ok() {
            told.fetch_max(last, Ordering::AcqRel);
        }
    };
    carry_out(raft, op, callback).map_err(|error| format!("the call fails: {error}"))?;
    check(raft, story.past.now())?;
    let is_durable = !matches!(op, Op::Append(_) | Op::TruncateThen(_) | Op::Commit(_));
    Ok(if is_durable { last } else { certain.load(Ordering::Acquire) }.to_string())
}

/// What is found after a kill is what some call has led to.
fn killed(raft: &RaftLog, story: &Story) -> Result<String, String> {
    let shown = Model::of(raft)?;
    let found = story.past.states().iter().rposition(|model| model.may_be_shown_as(&shown));
    let found = found.ok_or_else(|| format!("killed, it shows {}", shown.brief()))?;
    let committed = shown.committed.map_or_else(|| "-".to_string(), |index| index.to_string());
    Ok(format!("0 {found} {committed} {}", u8::from(story.past.states()[found].said == shown.said)))
}

fn check(raft: &RaftLog, model: &Model) -> Result<(), String> {
    let shown = Model::of(raft)?;
    if model.is_shown_as(&shown) && model.is_committed_as(&shown) {
        return Ok(());
    }
    Err(format!("it shows {} instead of {}", shown.brief(), model.brief()))
}

#[cfg(test)]
mod tests {
    use super::super::spec::Kind;
    use super::super::writer;
    use super::*;
    use crate::kernel::machine::FsKind;
    use crate::words::{GO, Way};

    /// What the writer says is what a reader of its lines follows: both end with the same raft log.
    #[test]
    fn a_reader_of_the_lines_follows_the_writer() {
        for seed in 0..12 {
            let made = tempfile::tempdir().expect("a directory");
            let directory = made.path().join("log");
            let (kind, way) = (FsKind::Ext4, Way::BufferedFdatasync);
            let spec = Spec { kind, way, seed, length: 60, mistake: None, subject: Kind::Raft };
            let mut output = Vec::new();
            let answers = format!("{GO}\n").repeat(1000);
            let written = writer::write(&spec, &directory, answers.as_bytes(), &mut output);
            written.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            let said = String::from_utf8(output).expect("text");
            let mut story = Story::new(&spec);
            let mut steps = 0;
            for line in said.lines() {
                match line.split_once(' ') {
                    Some((START, _)) => {
                        story.begin();
                    }
                    Some((DONE, rest)) => {
                        story.end(rest).unwrap_or_else(|| panic!("seed {seed}: {line}"));
                        steps += 1;
                    }
                    _ => {}
                }
            }
            assert_eq!((steps, said.lines().last()), (60, Some("end")), "seed {seed}");
        }
    }
}
