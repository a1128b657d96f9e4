//! Recording one run of a strategy.
//!
//! *Owns*: the new file system below it, a mark at each acknowledgement, and what a kill of the
//! process alone leaves. *May not touch*: what the process does; how the recording is used.

use std::sync::atomic::AtomicBool;

use super::content::{Left, look};
use super::trial::Trial;
use super::writer::{ACK, DIRECTORY, READY};
use crate::kernel::disk::Disk;
use crate::kernel::image::Image;
use crate::kernel::machine::{FsKind, Machine};
use crate::kernel::record::{Program, Writer};
use crate::kernel::recording::{Entry, Recording};
use crate::kernel::writer::words::{END, FAILED};

/// A new file system, and the recording of its creation: every run on it begins here.
#[derive(Debug, Clone)]
pub struct Made {
    kind: FsKind,
    image: Image,
    recording: Recording,
}

/// One run, as recorded.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// From mkfs on.
    pub recording: Recording,
    /// What a kill of the process left, while the machine kept running.
    pub after_kill: Left,
}

impl Made {
    /// Makes a file system.
    ///
    /// # Errors
    /// What mkfs says.
    pub fn new(machine: &Machine, kind: FsKind) -> Result<Self, String> {
        let disk = Disk::new(&kind.to_string(), Image::new(kind.disk_bytes()));
        disk.record();
        machine.make(&disk, kind)?;
        Ok(Self { kind, image: disk.image(), recording: disk.take_recording() })
    }

    /// Records a run on a copy of it.
    ///
    /// # Errors
    /// It could not be mounted, or the writer failed.
    pub fn record(
        &self,
        machine: &Machine,
        trial: &Trial,
        program: &Program,
        stop: &AtomicBool,
    ) -> Result<Recorded, String> {
        let disk = Disk::new(&self.kind.to_string(), self.image.clone());
        disk.record();
        disk.mark(&trial.to_string());
        let running = machine.boot(&disk, self.kind)?;
        let directory = machine.target().join(DIRECTORY);
        let mut writer = Writer::start(program, &directory, trial)?;
        loop {
            let line = writer.line(stop)?;
            disk.mark(&line);
            if let Some(why) = line.strip_prefix(FAILED) {
                return Err(format!("the writer: {}", why.trim_start()));
            }
            if line == END {
                break;
            }
            writer.go()?;
        }
        let mut recording = self.recording.clone();
        recording.entries.extend(disk.take_recording().entries);
        drop(writer);
        let after_kill = look(trial, &directory, trial.steps);
        running.shut_down()?;
        Ok(Recorded { recording, after_kill: after_kill? })
    }
}

/// Where a recording's run begins, and what it is.
///
/// # Errors
/// Another program's recording.
pub fn trial_of(recording: &Recording) -> Result<Trial, String> {
    let marks = recording.entries.iter().filter_map(|entry| match entry {
        Entry::Mark(text) => Some(text.as_str()),
        _ => None,
    });
    let mut trials = marks.filter_map(|text| text.parse().ok());
    trials.next().ok_or_else(|| "no mark says which strategy was recorded".into())
}

/// After how many entries each acknowledgement was given. The first entry of the list is where the
/// writer was ready, with nothing acknowledged.
///
/// # Errors
/// A mark is missing.
pub fn acknowledgements(recording: &Recording, steps: usize) -> Result<Vec<usize>, String> {
    let place = |text: String| {
        let at = recording.entries.iter().position(|entry| *entry == Entry::Mark(text.clone()));
        at.map(|at| at + 1).ok_or_else(|| format!("the recording has no mark {text:?}"))
    };
    let mut places = vec![place(READY.to_string())?];
    for step in 1..=steps {
        places.push(place(format!("{ACK} {step}"))?);
    }
    Ok(places)
}
