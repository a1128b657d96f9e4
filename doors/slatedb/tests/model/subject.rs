//! SlateDB's log as a subject of the power-loss lab.
//!
//! *Owns*: calling the traits, and writing down what they answer and show. *May not touch*: what a
//! call means (`database.rs`), judging that (`inkstone_subject::states`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inkstone_slatedb::{DatabaseWal, Seen, Wals, Writer};
use inkstone_subject::states::Op;
use inkstone_subject::states::past::Past;
use inkstone_subject::states::words::{Answer, Calls, Flaw, Shown, Told};
use inkstone_subject::{Directories, End, Subject, When};
use slatedb::object_store::{memory::InMemory, path::Path};
use slatedb::wal::{WalAdmin, WalError, WalEvent, WalFileRange, WalGc, WalReader, WalWriter};

use super::database::{Call, Database, Rows};
use crate::support::{
    Batch, Manifest, Objects, ProcessPlace, batches, drain, now, parts, read, row, small,
};

/// SlateDB's log. Another database may have begun one at the same place, and have written nothing.
#[derive(Debug, Clone)]
pub(crate) struct SlateSubject {
    pub(crate) is_second: bool,
}

/// Why a call is not done.
enum Failed {
    By(WalError),
    /// It is done, or fails, in a way that it must not.
    Wrong(String),
}

impl From<WalError> for Failed {
    fn from(error: WalError) -> Self {
        Self::By(error)
    }
}

type Done = Result<(), Failed>;

/// Hears whether a batch is durable.
type Tell = Box<dyn FnOnce(Result<(), ()>) + Send>;

/// What a writer has told.
#[derive(Default)]
struct Heard {
    /// The batches that are not durable by that: each id, and whom to tell.
    waiting: VecDeque<(u64, Tell)>,
    last: u64,
    /// Each end, with its reason.
    ends: Vec<WalError>,
}

impl Heard {
    /// What is wrong with the end of a writer of which a close has succeeded or not.
    fn wrong_end(&self, is_closed: bool) -> Option<String> {
        let is_right = match &self.ends[..] {
            [reason] => matches!(reason, WalError::Closed) == is_closed,
            _ => false,
        };
        let ends = &self.ends;
        (!is_right).then(|| format!("closed: {is_closed}, and it told these ends: {ends:?}"))
    }
}

/// A process with a writer.
pub(crate) struct Open {
    directories: Directories,
    place: Arc<ProcessPlace>,
    objects: Arc<Objects>,
    wals: Wals,
    wal: DatabaseWal,
    writer: RefCell<Writer>,
    epoch: Cell<u64>,
    last: Cell<u64>,
    /// A writer was fenced whose last batches failed.
    is_over: Cell<bool>,
    heard: Arc<Mutex<Heard>>,
    calls: Calls,
    replayed: Vec<Batch>,
}

/// A manifest that says this.
fn seen(tree_has: u64, known: u64, epoch: u64) -> Seen {
    Seen { epoch, replay_after: tree_has, next_id: known + 1 }
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> WalError {
    WalError::Unavailable(Arc::new(error))
}

/// Hears what a writer tells, from the oldest batch on.
fn hear(writer: &Writer, heard: &Arc<Mutex<Heard>>) {
    let heard = Arc::clone(heard);
    let hear = move |event| {
        let mut heard = heard.lock().unwrap();
        match event {
            WalEvent::WalFlushed(status) => {
                let last = status.last_flushed_wal_id;
                // A panic here poisons what is heard, and so ends the test.
                assert!(last >= heard.last && heard.ends.is_empty(), "told out of order");
                heard.last = last;
                while heard.waiting.front().is_some_and(|(id, _)| *id <= last) {
                    let (_, tell) = heard.waiting.pop_front().unwrap();
                    tell(Ok(()));
                }
            }
            WalEvent::WalClosed(status) => {
                heard.ends.push(status.closed_reason.unwrap());
                heard.waiting.drain(..).for_each(|(_, tell)| tell(Err(())));
            }
        }
    };
    writer.observer().subscribe(Arc::new(hear)).unwrap();
}

/// What a log has, by a reader.
fn rows_of(wal: &DatabaseWal) -> Result<Rows, WalError> {
    let last = now(wal.last_wal_file_id(0))?;
    // The first id that can be read is after `before`, and at most `first`.
    let (mut before, mut first) = (0, last + 1);
    while before + 1 < first {
        let middle = before.midpoint(first);
        match read(wal, middle, middle + 1) {
            Ok(_) => first = middle,
            Err(WalError::WalTruncated(id)) if id == middle => before = middle,
            Err(error) => return Err(error),
        }
    }
    Ok(Rows { first, batches: read(wal, first, last + 1)? })
}

impl Open {
    fn begin(directories: &Directories, is_second: bool) -> Result<Self, WalError> {
        let objects = Objects::kept_in(directories("/objects")).map_err(unavailable)?;
        let place = ProcessPlace::of(Arc::clone(directories));
        let wals = Wals::in_place(place.clone(), objects.clone(), small());
        if is_second && objects.is_empty() {
            let other = Wals::in_place(place.clone(), Objects::of(InMemory::new()), small());
            now(other.of("main").begin(&mut Manifest(seen(0, 0, 1))))?;
        }
        let wal = wals.of("main");
        let (tree_has, known) = objects.manifest()?;
        let (writer, mut rows) = now(wal.begin(&mut Manifest(seen(tree_has, known, 1))))?;
        let replayed = batches(drain(&mut rows)?);
        let last = writer.status().map_or(0, |status| status.last_flushed_wal_id);
        let heard = Arc::default();
        hear(&writer, &heard);
        Ok(Self {
            directories: Arc::clone(directories),
            place,
            objects,
            wals,
            wal,
            writer: RefCell::new(writer),
            epoch: Cell::new(1),
            last: Cell::new(last),
            is_over: Cell::new(false),
            heard,
            calls: Calls::default(),
            replayed,
        })
    }

    /// Another process beside this one.
    fn beside(&self) -> Wals {
        let place = ProcessPlace::of(Arc::clone(&self.directories));
        Wals::in_place(place, self.objects.clone(), small())
    }

    /// The last id that was appended.
    fn last(&self) -> u64 {
        self.last.get()
    }

    /// The manifest of the next writer.
    fn next(&self) -> Result<Manifest, WalError> {
        let (tree_has, known) = self.objects.manifest()?;
        Ok(Manifest(seen(tree_has, known, self.epoch.get() + 1)))
    }

    fn append(&self, batch: &Batch) -> Result<(), WalError> {
        now(self.writer.borrow_mut().append(batch))
    }

    /// Appends, so that `callback` comes with what the writer tells.
    fn append_and_hear(
        &self,
        batch: &Batch,
        callback: impl FnOnce(Result<(), ()>) + Send + 'static,
    ) -> Result<(), WalError> {
        let id = self.last() + 1;
        // Before the append, which may tell by itself.
        self.heard.lock().unwrap().waiting.push_back((id, Box::new(callback)));
        let appended = self.append(batch);
        match appended {
            Ok(()) => self.last.set(id),
            Err(_) => self.heard.lock().unwrap().waiting.retain(|(waits, _)| *waits != id),
        }
        appended
    }

    fn flush(&self) -> Done {
        let mut writer = self.writer.borrow_mut();
        let (id, completion) = parts(now(writer.flush())?);
        now(completion)?;
        let status = writer.status().map_err(|status| Failed::Wrong(format!("{status:?}")))?;
        let is_last = id.is_none_or(|id| id == self.last());
        if !is_last || status.last_flushed_wal_id < self.last() || status.estimated_bytes != 0 {
            return Err(Failed::Wrong(format!("flushed up to {id:?}, and {status:?}")));
        }
        Ok(())
    }

    /// The old writer is fenced, says so, and has told so once.
    fn fence(&self) -> Done {
        let (writer, mut rows) = now(self.wal.begin(&mut self.next()?))?;
        let replayed = batches(drain(&mut rows)?);
        self.epoch.set(self.epoch.get() + 1);
        let mut old = self.writer.replace(writer);
        let answers = [now(old.append(&[row(1, u64::MAX, 9)])).err(), now(old.flush()).err()];
        // Or that it could not make its last batches durable.
        let is_told = |answer: &WalError| match answer {
            WalError::Unavailable(why) => why.to_string().contains("poisoned"),
            answer => matches!(answer, WalError::Fenced),
        };
        if !answers.iter().all(|answer| answer.as_ref().is_some_and(is_told)) {
            return Err(Failed::Wrong(format!("the fenced writer answers {answers:?}")));
        }
        let ends = std::mem::take(&mut self.heard.lock().unwrap().ends);
        if ends.len() != 1 || !ends.iter().all(is_told) {
            return Err(Failed::Wrong(format!("the fenced writer told these ends: {ends:?}")));
        }
        if let Some(WalError::Unavailable(why)) = ends.first() {
            // Batches have failed, and the judge knows one writer in each life.
            self.is_over.set(true);
            return Err(WalError::Unavailable(Arc::clone(why)).into());
        }
        hear(&self.writer.borrow(), &self.heard);
        let (tree_has, _) = self.objects.manifest()?;
        let log = rows_of(&self.wal)?;
        if replayed != log.between((tree_has + 1).max(log.first), log.last()) {
            return Err(Failed::Wrong(format!("replays {replayed:?}, and reads {log:?}")));
        }
        Ok(())
    }

    /// A writer in another process has to wait, and a deletion does not take the log away.
    fn wait(&self) -> Done {
        let wals = self.beside();
        let begun = now(wals.of("main").begin(&mut self.next()?)).map(drop);
        let deleted = now(wals.delete_wal(&Path::from("main"), false)).map(drop);
        for (answer, said) in [(begun, "another process"), (deleted, "has the log open")] {
            match answer {
                Err(WalError::Unavailable(why)) if why.to_string().contains(said) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => return Err(Failed::Wrong(format!("done, where {said}"))),
            }
        }
        Ok(())
    }

    /// Another database gets no log, sees no row, and takes none away, in this process and in
    /// another one.
    fn meddle(&self, begins_anew: bool) -> Done {
        let wrong = |what: String| Err(Failed::Wrong(format!("another database {what}")));
        let objects = Objects::of(InMemory::new());
        for place in [Arc::clone(&self.place), ProcessPlace::of(Arc::clone(&self.directories))] {
            let wals = Wals::in_place(place, objects.clone(), small());
            let wal = wals.of("main");
            let wal = if begins_anew { wal.begin_anew() } else { wal };
            if now(wal.begin(&mut Manifest(seen(0, 0, 9)))).is_ok() {
                return wrong("begins".into());
            }
            match read(&wal, 1, u64::MAX) {
                Ok(rows) => return wrong(format!("reads {rows:?}")),
                Err(WalError::WalTruncated(1) | WalError::DataError(_)) => {}
                Err(error) => return Err(error.into()),
            }
            if now(wal.clone_range(0, 1, &wals.of("stolen"))).is_ok() {
                return wrong("clones a row".into());
            }
            if now(wals.delete_wal(&Path::from("main"), false)).is_ok() {
                return wrong("deletes the log".into());
            }
            let all = WalFileRange(Bound::Included(u64::MAX), Bound::Unbounded);
            let _ = now(wal.collect(vec![all], Duration::ZERO, false));
        }
        Ok(())
    }

    fn collect(&self, older: Option<u64>, is_dry: bool) -> Done {
        let (tree_has, _) = self.objects.manifest()?;
        let mut ranges = vec![WalFileRange(Bound::Included(tree_has), Bound::Unbounded)];
        if let Some(older) = older {
            ranges.insert(0, WalFileRange(Bound::Excluded(older), Bound::Excluded(tree_has)));
        }
        Ok(now(self.wal.collect(ranges, Duration::ZERO, is_dry))?)
    }

    fn clone_it(&self) -> Done {
        self.flush()?;
        let (tree_has, known) = self.objects.manifest()?;
        let clone = self.wals.of("clone");
        let make = || now(self.wal.clone_range(tree_has, known, &clone));
        match make() {
            // A clone without rows is there already, and looks like none.
            Err(WalError::DataError(_)) => {
                now(self.wals.delete_wal(&Path::from("clone"), false))?;
                make()?;
            }
            made => made?,
        }
        // Asked for twice, it is made once.
        make()?;
        // It begins as a database of its own.
        let (mut writer, mut rows) = now(clone.begin(&mut Manifest(seen(tree_has, known, 1))))?;
        drain(&mut rows)?;
        Ok(now(writer.close())?)
    }

    fn delete(&self) -> Done {
        self.flush()?;
        let delete = |is_dry| now(self.wals.delete_wal(&Path::from("clone"), is_dry));
        let [dry, gone, again] = [delete(true)?, delete(false)?, delete(false)?];
        if dry != gone || !again.is_empty() {
            let what = format!("dry {dry:?}, deleted {gone:?}, then {again:?}");
            return Err(Failed::Wrong(what));
        }
        Ok(())
    }

    /// A reader in another process sees what this one does. The last batches are not published
    /// there yet, since no thread of the writer's does that here.
    fn read_beside(&self) -> Done {
        let [there, here] = [self.beside().of("main"), self.wal.clone()].map(|wal| rows_of(&wal));
        let (there, here) = (there?, here?);
        if there.first != here.first || !here.batches.starts_with(&there.batches) {
            return Err(Failed::Wrong(format!("a reader beside has {there:?}, and not {here:?}")));
        }
        Ok(())
    }

    /// All that there is.
    fn show(&self) -> Result<Database, WalError> {
        let (tree_has, known) = self.objects.manifest()?;
        let clone = match rows_of(&self.wals.of("clone")) {
            Err(WalError::Unavailable(why)) if why.to_string().contains("is not finished") => {
                Rows::none()
            }
            rows => rows?,
        };
        Ok(Database { tree_has, known, log: rows_of(&self.wal)?, clone })
    }

    fn shown(&self) -> Result<Database, Flaw> {
        self.show().map_err(|error| Flaw::Unread(error.to_string()))
    }

    fn answer(&self, done: Done) -> Answer {
        let done = match done {
            Err(Failed::Wrong(what)) => return Answer::Neither(what),
            Err(Failed::By(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        let status = self.writer.borrow().status().err().map(|status| format!("{status:?}"));
        let said = done.as_ref().err().map(ToString::to_string);
        let is_poisoned = |said: &String| {
            // The log, and not the one of a clone.
            let is_main = said.contains("/wal/main") && said.contains("poisoned");
            is_main || self.objects.is_away() || self.is_over.get()
        };
        let poison = status.or(said.filter(is_poisoned));
        Answer::of(done, poison, |error| match error {
            WalError::DataError(_) => Answer::Corrupt(error.to_string()),
            _ => Answer::Refused(error.to_string()),
        })
    }
}

impl Subject for SlateSubject {
    type Op = Op;
    type Live = Open;
    type Past = Past<Database>;

    fn plan(&self, past: &Past<Database>, op: &Op) -> Call {
        let now = past.now();
        let seq = now.log.last() + 1;
        let append = |rows: u64, bytes, flushes| Call::Append {
            batch: (0..rows).map(|key| row(key + seq, seq, bytes)).collect(),
            flushes,
        };
        let seed = match op {
            Op::Draw(seed) => seed,
            Op::Fill(_) => return append(1, 14_000, true),
            Op::Probe => return append(1, 8, true),
        };
        let mut random = fastrand::Rng::with_seed(*seed);
        match random.u8(..32) {
            0..9 => append(random.u64(1..4), random.usize(..200), false),
            9 => append(random.u64(1..4), 9000, false),
            10..16 => Call::Flush,
            16..19 => Call::Manifest { has_all: random.u8(..3) > 0 },
            19..23 if now.log.first < now.tree_has => {
                let older = random.u64(now.log.first..now.tree_has);
                match random.u8(..4) {
                    0 => Call::LookAtCollect,
                    1 => Call::Collect { older: Some(older), lowest: older + 1 },
                    _ => Call::Collect { older: None, lowest: now.tree_has },
                }
            }
            19..23 => Call::LookAtCollect,
            23..26 => Call::Fence,
            26 => Call::Wait,
            27 => Call::Meddle { begins_anew: random.bool() },
            28 => Call::Beside,
            _ if now.clone == Rows::none() => Call::Clone,
            _ => Call::Delete,
        }
    }

    fn probe(&self) -> Op {
        Op::Probe
    }

    fn ending(&self, end: End) -> Option<Call> {
        (end == End::Close).then_some(Call::Close)
    }

    fn open(
        &self,
        directories: &Directories,
        _: Option<&Past<Database>>,
    ) -> Result<Open, Shown<Database>> {
        Open::begin(directories, self.is_second).map_err(|error| {
            let words = error.to_string();
            Shown::Opened(Err(match error {
                WalError::DataError(_) => Flaw::Corrupt(words),
                _ => Flaw::Shut(words),
            }))
        })
    }

    fn apply(&self, open: &Open, call: &Call) -> Told<Database> {
        let callback = open.calls.next();
        let done = match call {
            Call::Append { batch, flushes } => match open.append_and_hear(batch, callback) {
                Ok(()) if *flushes => open.flush(),
                appended => appended.map_err(Failed::By),
            },
            Call::Flush => open.flush(),
            Call::Manifest { has_all } => open.flush().and_then(|()| {
                let last = open.last();
                let (tree_has, _) = open.objects.manifest()?;
                Ok(open.objects.set_manifest(if *has_all { last } else { tree_has }, last)?)
            }),
            Call::Collect { older, .. } => open.collect(*older, false),
            Call::LookAtCollect => open.collect(None, true),
            Call::Fence => open.fence(),
            Call::Wait => open.wait(),
            Call::Meddle { begins_anew } => open.meddle(*begins_anew),
            Call::Beside => open.read_beside(),
            Call::Clone => open.clone_it(),
            Call::Delete => open.delete(),
            Call::Close => Ok(()),
        };
        let answer = open.answer(done);
        Told { called: open.calls.called(), ..Told::new(answer) }
    }

    fn end(&self, open: Open, end: End) -> Told<Database> {
        let mut writer = open.writer.into_inner();
        let answer = match end {
            End::Close => {
                let closed = now(writer.close());
                let wrong = open.heard.lock().unwrap().wrong_end(closed.is_ok());
                match (wrong, closed) {
                    (Some(what), _) => Answer::Neither(what),
                    (None, Err(error)) => Answer::Poisoned(format!("it does not close: {error}")),
                    (None, Ok(())) => Answer::Done,
                }
            }
            End::Drop => Answer::Done,
            End::Kill => {
                writer.abandon();
                return Told::new(Answer::Done);
            }
        };
        drop(writer);
        Told { called: open.calls.called(), ..Told::new(answer) }
    }

    fn read(&self, open: &Open, when: When) -> Shown<Database> {
        match when {
            When::Opened => Shown::Opened(open.shown().and_then(|shown| {
                let Database { tree_has, log, .. } = &shown;
                let expected = log.between((tree_has + 1).max(log.first), log.last());
                if open.replayed != expected {
                    let what = format!("replays {:?}, and reads {expected:?}", open.replayed);
                    return Err(Flaw::Unread(what));
                }
                Ok(shown)
            })),
            When::InUse => match open.writer.borrow().status() {
                Ok(status) if status.buffered_wal_entries_count == 0 => Shown::InUse(open.shown()),
                Ok(status) => match now(open.wal.last_wal_file_id(0)) {
                    Ok(last) if last != status.last_flushed_wal_id => {
                        let what = format!("last id {last}, and {status:?}");
                        Shown::InUse(Err(Flaw::Unread(what)))
                    }
                    _ => Shown::Nothing,
                },
                Err(_) => Shown::Nothing,
            },
            When::Poisoned => {
                let mut answers = Vec::new();
                if open.objects.is_away() || open.is_over.get() {
                    // The writer itself is sound.
                    return Shown::Poisoned(answers);
                }
                if open.append(&vec![row(1, u64::MAX, 9)]).is_ok() {
                    answers.push("append: Ok".to_owned());
                }
                // A batch that will not be durable ends the writer by itself.
                if !open.heard.lock().unwrap().waiting.is_empty() {
                    answers.push("no end, and batches wait".to_owned());
                }
                Shown::Poisoned(answers)
            }
        }
    }
}
