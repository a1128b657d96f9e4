//! The current file: opening, reopening, rotating and syncing it.
//!
//! *Owns*: the current file and its place among the rotated ones. *May not touch*: buffers, locks;
//! compressing ([`janitor`](crate::janitor)), and which files are removed
//! ([`rotated`](crate::rotated)).

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inkstone_io::{
    AppendFacts, AppendFile, Directory as _, Error, Named, OsDirectory, Owner, Result,
};

use crate::disk::{Disk, LogFile, Place, last_byte};
use crate::event::{Event, Events};
use crate::folder::{Alone, Folder, is_others};
use crate::janitor::Janitor;
use crate::options::Rotation;
use crate::rotated::{self, Retention, Rotated};
use crate::time::{self, Clock};

/// After a failed rotation, lines go to the old file for this long.
const ROTATE_AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct Output {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) name: String,
    rotation: Rotation,
    /// Names must be durable too.
    pub(crate) is_durable: bool,
    pub(crate) events: Events,
    pub(crate) janitor: Janitor,
    pub(crate) retention: Arc<Retention>,
    pub(crate) clock: Clock,
    /// Keeps other writers away.
    pub(crate) alone: Alone,
    file: Option<Box<dyn LogFile>>,
    /// When the next file is due by time.
    boundary: Option<SystemTime>,
    not_before: Option<Instant>,
    pub(crate) last: Rotated,
    pub(crate) rotations: u64,
    /// The owner of the file, for the next one.
    owner: Option<Owner>,
    /// The file that this log last wrote to, and where it ended then.
    written_to: Option<Place>,
    /// Something was written since the last sync.
    pub(crate) is_dirty: bool,
    /// A sync that failed on the way to another file.
    pub(crate) failed_sync: Option<Error>,
}

impl Output {
    pub(crate) fn new(
        disk: Box<dyn Disk>,
        folder: Arc<Folder>,
        retention: Arc<Retention>,
        options: (Rotation, bool, Clock, Events),
    ) -> Self {
        let (rotation, is_durable, clock, events) = options;
        Self {
            disk,
            name: folder.log().to_owned(),
            folder,
            rotation,
            is_durable,
            events,
            janitor: Janitor::default(),
            retention,
            clock,
            alone: Alone::default(),
            file: None,
            boundary: None,
            not_before: None,
            last: (0, 0),
            rotations: 0,
            owner: None,
            written_to: None,
            is_dirty: false,
            failed_sync: None,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Opens the file if it is not open, and returns its facts. Closes a file that has lost its
    /// last name (with its directory, say): lines written to it would be lost.
    pub(crate) fn ready(&mut self) -> Result<AppendFacts> {
        if let Some(file) = &self.file {
            let facts = file.facts()?;
            if facts.names > 0 {
                return Ok(facts);
            }
            self.file = None;
        }
        if self.folder.get().is_removed() {
            self.folder.look_again();
        }
        let directory = self.folder.get();
        let opened = self.put_next(&directory).and_then(|()| self.open_alone(&directory));
        if opened.as_ref().is_err_and(is_others) {
            // Another writer is not to wait for this one.
            self.alone.let_next_go();
        }
        let (file, facts) = opened?;
        match directory.look(&self.name).ok().flatten() {
            Some(named) if is_same(named.facts, facts) => self.owner = Some(named.owner),
            // That of a file that another process has just put there is not taken over: the next
            // file is like the previous one.
            _ => {}
        }
        if self.is_durable {
            directory.sync()?;
        }
        self.file = Some(file);
        Ok(facts)
    }

    /// Opens the file of the log's name and sees to it that no other writer has it.
    fn open_alone(&mut self, directory: &OsDirectory) -> Result<(Box<dyn LogFile>, AppendFacts)> {
        loop {
            let file = self.disk.open(directory, &self.name)?;
            let facts = file.facts()?;
            // Taken only now, it is opened again: another writer may have rotated the file before
            // it released the lock.
            let is_ours = self.alone.has(Place::end_of(facts).file());
            if is_ours || !self.alone.take(directory, &self.name, &self.events)? {
                return Ok((file, facts));
            }
        }
    }

    /// Sees to a missing file: gives its name to the next one, where a rotation has made that, or a
    /// killed one. Otherwise creates it with the owner of the previous one. If that fails the file
    /// is opened anyway, with the default owner; but not if only room is missing.
    fn put_next(&mut self, directory: &OsDirectory) -> Result<()> {
        if !directory.look(&self.name).is_ok_and(|named| named.is_none()) {
            return Ok(());
        }
        // Another writer may be between the two renames of a rotation.
        let next = rotated::next(&self.name);
        let is_plain = match self.alone.take_next(directory, &next, &self.name) {
            Err(error) if is_others(&error) => return Err(error),
            taken => taken.is_ok(),
        };
        // Other users may have put something else there.
        let named = directory.look(&next).ok().flatten().map(|named| named.facts);
        let is_next = named.is_some_and(|facts| (facts.names, facts.len_bytes) == (1, 0));
        let put = match self.owner {
            _ if is_plain && is_next => directory.rename_new(&next, &self.name),
            Some(owner) => self.make_like(directory, &self.name, owner),
            None => Ok(()),
        };
        match put {
            Err(error) if error.is_full() => Err(error),
            // Another process has created one by now, or the opening reports why.
            _ => Ok(()),
        }
    }

    /// Creates a file of this owner; the name must be free.
    fn make_like(&self, directory: &OsDirectory, name: &str, owner: Owner) -> Result<()> {
        let given = AppendFile::create_private(directory, name)?.give_to(owner);
        self.events.tell_failure("give", &given);
        Ok(())
    }

    /// Creates the next file, under a temporary name until the current one is renamed.
    fn make_next(&mut self, directory: &OsDirectory, owner: Owner) -> Result<()> {
        let next = rotated::next(&self.name);
        // Whatever is there is none of this rotation's, and is not given away.
        rotated::remove(directory, &next)?;
        self.make_like(directory, &next, owner)?;
        self.alone.take_next(directory, &next, &self.name)
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(file) = &self.file else {
            return Err(Error::invalid("append", self.path(), "the file is not open"));
        };
        let count = file.append(bytes)?;
        self.is_dirty = true;
        if let Some(written_to) = &mut self.written_to {
            written_to.offset += count as u64;
        }
        Ok(count)
    }

    /// Ends a line that another process left unfinished at the end of the file, so that the next
    /// bytes begin a line; true if there was one. Checks only if the file does not end where this
    /// log left it. If the file cannot be found: yes, since an extra empty line is better than two
    /// lines in one. If it may not be read: no.
    pub(crate) fn end_others_line(&mut self, facts: AppendFacts) -> Result<bool> {
        let here = Place::end_of(facts);
        if self.written_to.replace(here) == Some(here) {
            return Ok(false);
        }
        let is_within = match last_byte(&self.folder.get(), &self.name, facts) {
            Ok(last) => last.is_some_and(|last| last != b'\n'),
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if is_within && let Err(error) = self.append(b"\n") {
            // To be checked again.
            self.written_to = None;
            return Err(error);
        }
        Ok(is_within)
    }

    /// Has [`Output::end_others_line`] look at the end of the file again.
    pub(crate) fn forget_where_it_ended(&mut self) {
        self.written_to = None;
    }

    /// The file as it was left, before anything changes it.
    pub(crate) fn look_before(&mut self, directory: &OsDirectory) -> Result<Option<Named>> {
        let seen = directory.look(&self.name)?;
        self.owner = seen.map(|named| named.owner);
        Ok(seen)
    }

    /// Removes the next file, which no rotation uses any more.
    pub(crate) fn remove_next(&mut self, directory: &OsDirectory) {
        let removed = rotated::remove(directory, &rotated::next(&self.name));
        self.alone.let_next_go();
        self.events.tell_failure("remove the next", &removed);
    }

    /// Has the file reopened before the next buffer: another may have its name.
    pub(crate) fn reopen(&mut self) {
        if self.file.is_some() {
            // The process that moved the file may regard it as finished: its lines must be durable
            // first.
            self.sync_quietly();
        }
        self.file = None;
        self.folder.look_again();
    }

    pub(crate) fn sync_quietly(&mut self) {
        if self.is_durable
            && let Err(error) = self.sync()
        {
            // The next sync reports it.
            self.failed_sync = Some(error);
            self.is_dirty = true;
        }
    }

    /// Makes everything written durable. A failed sync is not retried: the next one is for later
    /// lines.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.is_dirty) else { return Ok(()) };
        self.is_dirty = false;
        file.sync()
    }

    /// When something is due even if no lines come.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let boundary = self.boundary?;
        let left = boundary.duration_since(self.clock.now()).unwrap_or(Duration::ZERO);
        let pause = self
            .not_before
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        Some(left.max(pause))
    }

    /// A boundary more than one period away was set by a clock that was ahead: it is set again.
    fn is_past_boundary(&mut self) -> bool {
        let (Some(every), Some(boundary)) = (self.rotation.every, self.boundary) else {
            return false;
        };
        let now = self.clock.now();
        if boundary.duration_since(now).is_ok_and(|left| left > every) {
            self.set_boundary();
            return false;
        }
        now >= boundary
    }

    /// Starts a new file if it is time for one, also if no lines come.
    pub(crate) fn rotate_by_time(&mut self) {
        if !self.is_past_boundary() {
            return;
        }
        match self.ready() {
            Ok(facts) => self.rotate_if_due(facts, 0),
            // The next line tries again; by then the file may exist.
            Err(_) => self.not_before = Some(Instant::now() + ROTATE_AGAIN_AFTER),
        }
    }

    /// At the start: starts a new file if one is due. `is_old`: the file belonged to an earlier
    /// period when it was first examined.
    pub(crate) fn begin(&mut self, facts: AppendFacts, is_old: bool) {
        self.set_boundary();
        if is_old {
            // In the past, until there is a new file.
            self.boundary = Some(UNIX_EPOCH);
        }
        self.rotate_if_due(facts, 0);
        self.sync_quietly();
    }

    /// Starts a new file before a buffer of this many bytes, if one is due. A failure is reported,
    /// and lines go to the old file.
    pub(crate) fn rotate_if_due(&mut self, facts: AppendFacts, bytes: u64) {
        if self.is_due(facts, bytes) {
            let is_past = self.is_past_boundary();
            self.rotate_or_tell(facts, is_past);
        }
    }

    /// Whether a new file is due before so many bytes.
    pub(crate) fn is_due(&mut self, facts: AppendFacts, bytes: u64) -> bool {
        let is_full =
            bytes > 0 && self.rotation.bytes.is_some_and(|most| facts.len_bytes + bytes > most);
        (self.is_past_boundary() || is_full) && !self.is_too_soon()
    }

    fn is_too_soon(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    fn rotate_or_tell(&mut self, facts: AppendFacts, is_past: bool) {
        if facts.len_bytes > 0 {
            let rotated = self.rotate(facts);
            self.events.tell_failure("rotate", &rotated);
            if rotated.is_err() {
                self.not_before = Some(Instant::now() + ROTATE_AGAIN_AFTER);
                return;
            }
        }
        if is_past {
            self.set_boundary();
        }
    }

    fn set_boundary(&mut self) {
        self.boundary = self.next_boundary(self.clock.now());
    }

    /// When the period of this time ends; a boundary that no clock can show is none.
    fn next_boundary(&self, time: SystemTime) -> Option<SystemTime> {
        time::end_of_period(time, self.rotation.every?)
    }

    /// Whether a file with this modification time belongs to an earlier period.
    pub(crate) fn is_of_earlier(&self, modified: SystemTime) -> bool {
        self.next_boundary(modified).is_some_and(|end| end <= self.clock.now())
    }

    /// Renames the current file to its final name, and opens the next one.
    fn rotate(&mut self, facts: AppendFacts) -> Result<()> {
        // A line that a kill has left there is ended in its own file, if there is room.
        let _ = self.end_others_line(facts);
        self.sync_quietly();
        let directory = self.folder.get();
        let named = directory.look(&self.name).ok().flatten();
        if let Some(named) = named
            && is_same(named.facts, facts)
        {
            self.owner = Some(named.owner);
            self.retention.make_room(&directory, true);
            // Everything that needs room comes before the rename: after it a failure would leave
            // lines without a file.
            let made = self.make_next(&directory, named.owner);
            let renamed = made.and_then(|()| self.rename_away(&directory));
            if renamed.is_err() {
                self.remove_next(&directory);
            }
            let name = renamed?;
            self.rotations += 1;
            self.retention.add(&directory, self.last);
            self.events.tell(&Event::Rotated { to: &name });
            self.janitor.rotated();
        }
        // Otherwise another process has moved it or put another there: it is opened by its name.
        self.file = None;
        self.ready().map(drop)
    }

    /// Renames the file to a name that no file has or had, compressed or not.
    fn rename_away(&mut self, directory: &OsDirectory) -> Result<String> {
        // A clock that went back must not give a name before the existing ones.
        let now = time::digits(time::seconds(self.clock.now()));
        let mut next = if now > self.last.0 { (now, 0) } else { rotated::after(self.last) };
        loop {
            let name = rotated::plain(&self.name, next);
            if directory.look(&format!("{name}.gz"))?.is_none() {
                match directory.rename_new(&self.name, &name) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    renamed => {
                        renamed?;
                        self.last = next;
                        return Ok(name);
                    }
                }
            }
            next = rotated::after(next);
        }
    }
}

fn is_same(one: AppendFacts, other: AppendFacts) -> bool {
    Place::end_of(one).is_in(other)
}
