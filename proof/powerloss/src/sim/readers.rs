//! Readers beside a writer, while a history runs: what they see was appended there, is durable and
//! is not truncated; and no second writer can open the log.
//!
//! *Owns*: who reads, and what each must see. *May not touch*: crashes; what the operations mean
//! (`history.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone::{Cursor, Error, Event, Log, Lsn, Reader, SealedSegment};
use inkstone_sim::{AfterEffect, Effect, Fault, OperationKind, SimDisk, errno};

use super::explore::{PATH, open, open_and_check};
use super::variant::Variant;
use crate::history::{Op, carry_out, plan};
use crate::mistake::build_in;
use crate::model::{Allowed, Model, Record};

/// How many segments the archiver holds at a time.
const HELD_MAX: usize = 2;

/// A sealed segment that an archiver holds, with its bytes when it was sealed.
type Held = Arc<Mutex<Vec<(SealedSegment, Option<Vec<u8>>)>>>;

/// A log in use, and its readers.
pub(crate) struct Readers {
    /// How many rounds of checks were made.
    pub(crate) looks: u64,
    disk: SimDisk,
    variant: Variant,
    rng: fastrand::Rng,
    model: Model,
    log: Option<Log>,
    /// A reader that continues through truncations at both ends, and is mostly behind.
    slow: Option<Cursor>,
    held: Held,
}

impl Readers {
    pub(crate) fn begin(seed: u64, mut variant: Variant) -> Result<Self, String> {
        let held = Held::default();
        let ears = Arc::clone(&held);
        variant.options = variant.options.listener(move |event| {
            if let Event::SegmentSealed(sealed) = event {
                lock(&ears).push((sealed.clone(), None));
            }
        });
        let disk = SimDisk::new(seed, variant.disk);
        let rng = fastrand::Rng::with_seed(seed ^ 0x7265_6164_6572_7321);
        let model = Model::new();
        let mut readers = Self { looks: 0, disk, variant, rng, model, log: None, slow: None, held };
        readers.open_again(&Model::new().allowed(), 0)?;
        Ok(readers)
    }

    /// Runs a history. One sync fails somewhere: that writer stays open, poisoned, until the next
    /// one comes.
    pub(crate) fn all(&mut self, operations: &[Op]) -> Result<(), String> {
        let failing = self.rng.usize(..operations.len().max(1));
        for (number, operation) in operations.iter().enumerate() {
            if number == failing {
                let effect = Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew);
                self.disk.inject(Fault::new(effect).on(OperationKind::Sync));
            }
            self.step(operation).map_err(|why| format!("{number} {operation:?}: {why}"))?;
        }
        Ok(())
    }

    fn step(&mut self, operation: &Op) -> Result<(), String> {
        let plan = plan(operation, &self.model);
        let numbers = plan.after.numbers;
        if matches!(operation, Op::Reopen | Op::Drop | Op::Kill) {
            return self.open_again(&plan.during, numbers);
        }
        let failures = self.disk.history().len();
        if let Err(error) = carry_out(self.log(), operation, &plan) {
            if self.disk.history().len() == failures {
                return Err(format!("the call fails: {error}"));
            }
            self.look_beside(&plan.during)?;
            return self.open_again(&plan.during, numbers);
        }
        let is_cut = plan.after.last() < self.model.last();
        self.model = plan.after;
        self.model.acked = self.log().durable().get();
        self.look(is_cut)
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("it is open between operations")
    }

    /// The process is killed, and the next one opens the log.
    fn open_again(&mut self, allowed: &Allowed, numbers: u32) -> Result<(), String> {
        self.disk.clear_faults();
        let next = self.slow.take().map_or(Lsn::FIRST, |slow| slow.next_lsn());
        if let Some(log) = self.log.take() {
            log.abandon();
        }
        lock(&self.held).clear();
        let (log, shown) = open_and_check(&self.disk, &self.variant, allowed)?;
        self.model = Model::found(allowed, shown, numbers);
        self.slow = Some(log.reader().from(Lsn::new(next.get().min(shown.last + 1))));
        self.log = Some(log);
        self.look(false)
    }

    fn look(&mut self, is_cut: bool) -> Result<(), String> {
        self.read_on(is_cut).map_err(|why| format!("a slow reader: {why}"))?;
        self.ask_for_what_is_not_there()?;
        self.look_beside(&self.model.allowed())?;
        match open(&self.disk, &self.variant) {
            Err(Error::Locked { .. }) => {}
            Err(error) => return Err(format!("a second writer gets the error: {error}")),
            Ok(_) => return Err("a second writer opens the log".into()),
        }
        self.look_at_what_is_held()?;
        self.looks += 1;
        Ok(())
    }

    /// The slow reader reads a few more records.
    fn read_on(&mut self, mut is_cut: bool) -> Result<(), String> {
        let (first, last, durable) = (self.model.first, self.model.last(), self.model.acked);
        let Some(slow) = &mut self.slow else { return Ok(()) };
        for _ in 0..self.rng.usize(1..3) {
            let at = slow.next_lsn().get();
            let is_beyond = std::mem::take(&mut is_cut) && at > last + 1;
            match slow.next() {
                Err(Error::TruncatedAfter { last: told, .. })
                    if is_beyond && told.get() == last => {}
                Err(Error::TruncatedBefore { first: told, .. })
                    if at < first && told.get() == first =>
                {
                    slow.seek(told);
                }
                Ok(None) if at > durable && !is_beyond => {}
                Ok(Some(record)) if !is_beyond && (first..=durable).contains(&at) => {
                    let is_it = record.lsn.get() == at
                        && self.model.records[at as usize - 1].payload() == record.bytes;
                    if !is_it {
                        return Err(format!("LSN {} instead of {at}, or other bytes", record.lsn));
                    }
                }
                other => return Err(format!("at {at} of {first}..={durable} it gets {other:?}")),
            }
        }
        Ok(())
    }

    fn ask_for_what_is_not_there(&self) -> Result<(), String> {
        let (first, durable) = (self.model.first, self.model.acked);
        let reader = self.log().reader();
        match reader.get(Lsn::new(durable + 1)) {
            Err(Error::NotYet { .. }) => {}
            other => {
                return Err(format!("a read of the record after the watermark gives: {other:?}"));
            }
        }
        match reader.get(Lsn::new(first.max(2) - 1)) {
            Err(Error::TruncatedBefore { .. }) => Ok(()),
            _ if first == 1 => Ok(()),
            other => Err(format!("a read of a truncated record gives: {other:?}")),
        }
    }

    /// Opens the log for reading while the writer is open.
    fn look_beside(&self, allowed: &Allowed) -> Result<(), String> {
        let directory = Arc::new(self.disk.directory(PATH));
        let options = build_in(self.variant.options.clone(), self.variant.mistake);
        let reader = Reader::open_in(directory, options)
            .map_err(|error| format!("a reader beside the writer: {error}"))?;
        let (durable, known) = (reader.durable(), self.log().durable());
        if durable > known {
            return Err(format!(
                "a reader beside the writer shows LSN {durable}, but only {known} is durable"
            ));
        }
        let records = reader.records(reader.first());
        for (next, record) in (reader.first().get()..).zip(records) {
            let record =
                record.map_err(|error| format!("beside the writer, LSN {next}: {error}"))?;
            let wanted = allowed.at(next).map(Record::payload);
            if record.lsn.get() != next || wanted != Some(&record.bytes[..]) {
                return Err(format!("beside the writer, LSN {} instead of {next}", record.lsn));
            }
        }
        Ok(())
    }

    /// An archiver holds the first segments that were sealed: their files stay as they are.
    fn look_at_what_is_held(&self) -> Result<(), String> {
        let image = self.disk.image();
        let mut held = lock(&self.held);
        held.truncate(HELD_MAX);
        for (sealed, bytes) in held.iter_mut() {
            let now = image.iter().find(|(path, _)| *path == sealed.path).map(|(_, bytes)| bytes);
            match (bytes, now) {
                (Some(bytes), Some(now)) if bytes == now => {}
                (bytes @ None, Some(now)) => *bytes = Some(now.clone()),
                _ => {
                    return Err(format!(
                        "{} is held, but its file was recycled",
                        sealed.path.display()
                    ));
                }
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
