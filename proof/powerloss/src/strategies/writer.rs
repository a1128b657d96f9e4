//! The process that writes: the steps of a strategy on the mounted file system, in step with the
//! recorder.
//!
//! *Owns*: making the calls, and acknowledging. *May not touch*: disks, recordings.
//!
//! It prints a line after each step and waits for an answer: by then the recorder has put a mark
//! into the recording. After every third step it syncs a file that is not part of the strategy, as
//! other programs on a machine do. A file system then commits what it has gathered, which reveals
//! what a strategy left in the wrong order.

use std::fs;
use std::io::{BufRead, Write};
use std::path::Path;

use inkstone_host::LabFile;
use inkstone_io::{
    Access, AlignedBuf, Directory, File, OpenFile, OsDirectory, Preparation, SyncKind,
};

use super::content::{DATA, NEW, bytes_of, file_of};
use super::plain::{Act, BLOCK_BYTES, Before, Plan, Shape, Trial};
use crate::words::Teller;

/// The writer is ready for its first step: what a strategy takes for granted is durable.
pub(crate) const READY: &str = "ready";
/// `ack 3`: the third step is acknowledged.
pub(crate) const ACK: &str = "ack";
const BYSTANDER: &str = "bystander";
const BYSTANDER_EVERY: usize = 3;

/// Does what `trial` says in `directory`, which is created.
pub(crate) fn write(
    trial: &Trial,
    directory: &Path,
    input: impl BufRead,
    output: &mut (dyn Write + Send),
) -> Result<(), String> {
    let mut recorder = Teller::in_step(input, output);
    // The files are still open at the last line: its reader may kill the process, and no orderly
    // end flushes a buffer in it.
    let (_open, done) = match steps(trial, directory, &mut recorder) {
        Ok(open) => (Some(open), Ok(())),
        Err(why) => (None, Err(why)),
    };
    recorder.end(done)
}

fn steps(
    trial: &Trial,
    path: &Path,
    recorder: &mut Teller<'_, impl BufRead>,
) -> Result<Stepper, String> {
    let failed = |error: inkstone_io::Error| error.to_string();
    let directory = OsDirectory::create(path).map_err(failed)?;
    let stepper = Stepper::new(*trial, directory).map_err(failed)?;
    recorder.say(READY)?;
    for step in 1..=trial.steps {
        stepper.step(step).map_err(|error| format!("step {step}: {error}"))?;
        recorder.say(&format!("{ACK} {step}"))?;
        if step % BYSTANDER_EVERY == 0 {
            bystander(path, step).map_err(|error| format!("the bystander: {error}"))?;
        }
    }
    Ok(stepper)
}

fn bystander(directory: &Path, step: usize) -> std::io::Result<()> {
    let parent = directory.parent().unwrap_or(directory);
    let mut file = fs::File::create(parent.join(BYSTANDER))?;
    writeln!(file, "after step {step}")?;
    file.sync_all()
}

struct Stepper {
    trial: Trial,
    plan: Plan,
    directory: OsDirectory,
    file: Option<LabFile>,
}

impl Stepper {
    fn new(trial: Trial, directory: OsDirectory) -> inkstone_io::Result<Self> {
        let plan = trial.strategy.plan();
        let mut stepper = Self { trial, plan, directory, file: None };
        match plan.shape {
            Shape::Slots | Shape::Batches | Shape::Size => stepper.file = Some(stepper.prepared()?),
            Shape::Replaced => stepper.durable_file(&stepper.bytes(0))?,
            Shape::Files => {}
        }
        Ok(stepper)
    }

    fn bytes(&self, step: usize) -> Vec<u8> {
        bytes_of(self.trial.seed, step, self.plan.record_bytes())
    }

    /// Creates a file with these bytes, durable with its name.
    fn durable_file(&self, bytes: &[u8]) -> inkstone_io::Result<()> {
        let file = self.directory.open(DATA, &OpenFile::new_file())?;
        file.write_at(bytes, 0)?;
        file.sync(SyncKind::All)?;
        self.directory.sync()
    }

    fn prepared(&self) -> inkstone_io::Result<LabFile> {
        let Plan { before, access, durability, .. } = self.plan;
        let len_bytes = (self.plan.record_bytes() * self.trial.steps) as u64;
        let old = if before == Before::Written {
            self.bytes(0).repeat(self.trial.steps)
        } else {
            Vec::new()
        };
        self.durable_file(&old)?;
        let how = OpenFile::existing().access(access).durability(durability);
        let file = LabFile::open_in(&self.directory, DATA, &how)?;
        match before {
            Before::Empty | Before::Written => {}
            Before::Fallocated => file.prepare(Preparation::Fallocate, len_bytes)?,
            Before::Sparse => file.set_len(len_bytes)?,
            Before::SparseSynced => {
                file.set_len(len_bytes)?;
                file.sync(SyncKind::All)?;
            }
        }
        if access == Access::Mmap {
            file.map(len_bytes)?;
        }
        Ok(file)
    }

    fn step(&self, step: usize) -> Result<(), String> {
        let failed = |error: inkstone_io::Error| error.to_string();
        let new = OpenFile::new_file();
        let (mut own, offset) = match self.plan.shape {
            Shape::Files => {
                (Some(LabFile::open_in(&self.directory, &file_of(step), &new).map_err(failed)?), 0)
            }
            Shape::Replaced => {
                (Some(LabFile::open_in(&self.directory, NEW, &new).map_err(failed)?), 0)
            }
            Shape::Slots | Shape::Batches | Shape::Size => {
                (None, ((step - 1) * self.plan.record_bytes()) as u64)
            }
        };
        // O_DIRECT needs aligned memory; the others take it too.
        let mut bytes = AlignedBuf::zeroed(self.plan.record_bytes());
        bytes.copy_from_slice(&self.bytes(step));
        for act in self.plan.acts {
            match act {
                Act::Rename => {
                    drop(own.take());
                    self.directory.rename(NEW, DATA).map_err(failed)?;
                }
                Act::SyncDirectory => self.directory.sync().map_err(failed)?,
                _ => {
                    let file = own.as_ref().or(self.file.as_ref()).ok_or("no file is open")?;
                    match (act, self.plan.shape) {
                        (Act::Write, Shape::Batches) => blocks(file, &bytes, offset),
                        _ => call(*act, file, &bytes, offset),
                    }
                    .map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}

/// Writes each block by a write of its own.
fn blocks(file: &LabFile, bytes: &[u8], offset: u64) -> inkstone_io::Result<()> {
    let places = (offset..).step_by(BLOCK_BYTES);
    bytes.chunks(BLOCK_BYTES).zip(places).try_for_each(|(block, place)| file.write_at(block, place))
}

/// Makes one call on a file.
fn call(act: Act, file: &LabFile, bytes: &[u8], offset: u64) -> inkstone_io::Result<()> {
    match act {
        Act::Write => file.write_at(bytes, offset),
        Act::WriteDsync => file.write_dsync(bytes, offset),
        Act::Grow => file.set_len(offset + bytes.len() as u64),
        Act::Fflush => file.flush_buffered(),
        Act::WriteBack => file.write_back(offset, bytes.len() as u64),
        Act::Fdatasync => file.sync(SyncKind::Data),
        Act::Fsync => file.sync(SyncKind::All),
        Act::Msync => file.sync_mapped(offset, bytes.len()),
        // These concern the directory, not the file.
        Act::Rename | Act::SyncDirectory => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use inkstone_io::NamedChoice;

    use super::super::content::{Left, look};
    use super::super::plain::Plain;
    use super::*;
    use crate::kernel::machine::FsKind;
    use crate::words::GO;

    #[test]
    fn without_a_crash_every_strategy_has_done_all_its_steps() {
        for &strategy in Plain::ALL {
            let made = tempfile::tempdir().expect("a directory");
            let directory = made.path().join("log");
            let trial = Trial { kind: FsKind::Ext4, strategy, seed: 3, steps: 4 };
            let mut output = Vec::new();
            write(&trial, &directory, format!("{GO}\n").repeat(6).as_bytes(), &mut output)
                .expect("it goes");
            let said = String::from_utf8(output).expect("text");
            assert_eq!(said, "ready\nack 1\nack 2\nack 3\nack 4\nend\n", "{strategy}");
            assert_eq!(look(&trial, &directory, 4), Ok(Left::default()), "{strategy}");
            // The fifth step was not done: the check must notice.
            let more = Trial { steps: 5, ..trial };
            let beyond = look(&more, &directory, 5).expect("read");
            assert_eq!(beyond.missing(), 1, "{strategy}");
            fs::remove_dir_all(&directory).expect("removed");
            let why =
                write(&trial, &directory, &b"go\n"[..], &mut Vec::new()).expect_err("no answer");
            assert!(why.contains("recorder has ended"), "{strategy}: {why}");
        }
    }
}
