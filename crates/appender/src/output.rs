//! The file that lines go to: opening it, opening it again, rotating it, syncing it.
//!
//! *Owns*: the current file and its place among the rotated ones. *May not touch*: buffers, locks; compressing
//! ([`crate::janitor`]), and which files go ([`crate::retention`]).

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inkstone_io::{AppendFacts, AppendFile, Directory as _, Error, OsDirectory, Owner, Result};

use crate::buffer::Place;
use crate::content::ends_within_line;
use crate::disk::{Disk, LogFile};
use crate::event::{Cause, Event, Events};
use crate::folder::Folder;
use crate::janitor::Janitor;
use crate::names;
use crate::options::Rotation;
use crate::retention::{Retention, rotated_files};
use crate::time::{self, Clock};

/// After a rotation that failed, lines go on into the old file for this long.
const ROTATE_AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct Output {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) name: String,
    pub(crate) rotation: Rotation,
    /// Names are to be durable too.
    pub(crate) is_durable: bool,
    pub(crate) events: Events,
    pub(crate) janitor: Janitor,
    pub(crate) retention: Arc<Retention>,
    pub(crate) clock: Clock,
    pub(crate) file: Option<Box<dyn LogFile>>,
    /// When the next file is due by time.
    pub(crate) boundary: Option<SystemTime>,
    pub(crate) not_before: Option<Instant>,
    /// When the last rotated file was, and which of that second.
    pub(crate) last: (u64, u32),
    pub(crate) rotations: u64,
    /// Whose the file is, for the next one.
    pub(crate) owner: Option<Owner>,
    /// The event that a link is not rotated was sent.
    pub(crate) is_link_told: bool,
    pub(crate) failing: Failing,
    /// The file that this log has written to last, and where it ended then.
    pub(crate) written_to: Option<Place>,
    /// The file that had no name any more when it was given up.
    pub(crate) lost: Option<(u64, u64)>,
    /// Something was written since the last sync.
    pub(crate) is_dirty: bool,
    /// A sync that failed on the way to another file.
    pub(crate) failed_sync: Option<Error>,
}

/// What failed when it was last done.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    rotating: Cause,
    giving: Cause,
    reserving: Cause,
    giving_back: Cause,
    removing_next: Cause,
    /// Not that, but the limit that ends files early.
    limit: Cause,
}

impl Output {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// The file, opened if it is not, and its facts. One that has lost its last name (its directory was removed, say) is
    /// given up: what is written to it would be lost.
    pub(crate) fn ready(&mut self) -> Result<AppendFacts> {
        if let Some(file) = &self.file {
            let facts = file.facts()?;
            if facts.names > 0 {
                return Ok(facts);
            }
            self.lost = Some(who(facts));
            self.file = None;
        }
        if self.folder.get().is_removed() {
            self.folder.look_again();
        }
        let directory = self.folder.get();
        self.put_next(&directory)?;
        let file = self.disk.open(&directory, &self.name)?;
        let facts = file.facts()?;
        match directory.look(&self.name).ok().flatten() {
            Some(named) if who(named.facts) == who(facts) => self.owner = Some(named.owner),
            // Of a link nothing is taken over.
            Some(named) if named.is_link => self.owner = None,
            // Nor of a file that has just been put there: the next one is like the one before.
            _ => {}
        }
        if self.is_durable {
            directory.sync()?;
        }
        // What an earlier process has reserved stays: a living one may be appending there, and giving back is not safe beside it.
        if let Some(bytes) = self.rotation.ahead_bytes() {
            self.events.tell_failure(&mut self.failing.reserving, &file.reserve(bytes));
        }
        self.file = Some(file);
        Ok(facts)
    }

    /// Puts a file with the owner of the one before it where there is none. Where that fails the file is opened all the same, and is
    /// then as new files are; but not where room is all that it wants.
    fn put_next(&mut self, directory: &OsDirectory) -> Result<()> {
        let Some(owner) = self.owner else { return Ok(()) };
        if !directory.look(&self.name).is_ok_and(|named| named.is_none()) {
            return Ok(());
        }
        match self.put_like(directory, owner) {
            Err(error) if error.is_full() => return Err(error),
            // Somebody has put one there by now.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.take_back_next(directory),
            Err(error) if self.is_next_taken(directory) => {
                self.events.tell_failure(&mut self.failing.giving, &Err(error));
            }
            // The opening reports why.
            _ => {}
        }
        Ok(())
    }

    fn put_like(&mut self, directory: &OsDirectory, owner: Owner) -> Result<()> {
        let next = names::next(&self.name);
        // It may have been made ahead.
        let given = AppendFile::take_private(directory, &next)?.give_to(owner);
        self.events.tell_failure(&mut self.failing.giving, &given);
        directory.rename_new(&next, &self.name)
    }

    /// The next file, under the name that it has until the one before is out of its place.
    fn make_next(&self, directory: &OsDirectory) -> Result<()> {
        match AppendFile::take_private(directory, &names::next(&self.name)) {
            Err(error) if !self.is_next_taken(directory) => Err(error),
            _ => Ok(()),
        }
    }

    /// Something of somebody else's has that name, and is no reason not to rotate.
    fn is_next_taken(&self, directory: &OsDirectory) -> bool {
        directory.look(&names::next(&self.name)).is_ok_and(|named| named.is_some())
    }

    /// The next file is not needed now.
    fn take_back_next(&mut self, directory: &OsDirectory) {
        if self.rotation.ahead_bytes().is_none() {
            self.remove_next(directory);
        }
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

    /// Ends the line that somebody else, or an earlier process, has left unfinished at the end of the file, so that what is written next
    /// begins a line; true if there was one. Asked where the file does not end as this log has left it.
    pub(crate) fn end_others_line(&mut self, facts: AppendFacts) -> Result<bool> {
        let here = Place { device: facts.device, inode: facts.inode, offset: facts.len_bytes };
        let is_others = self.written_to.replace(here) != Some(here);
        let is_within = is_others && ends_within_line(&self.folder.get(), &self.name, facts);
        if is_within && let Err(error) = self.append(b"\n") {
            // To be asked again.
            self.written_to = None;
            return Err(error);
        }
        Ok(is_within)
    }

    /// Whose the newest rotated file is: that of the next one where a process was killed before it was there. Only where nobody else
    /// could have put a file of that name.
    pub(crate) fn newest_owner(&self, directory: &OsDirectory) -> Option<Owner> {
        if !directory.is_closed_to_others().unwrap_or(false) {
            return None;
        }
        let files = rotated_files(directory, &self.name).unwrap_or_default();
        let whole = files.iter().filter(|rotated| !rotated.is_part()).map(|rotated| rotated.name(&self.name));
        let named = whole.filter_map(|name| directory.look(&name).ok().flatten());
        named.filter(|named| !named.is_link).map(|named| named.owner).next()
    }

    /// The file made ahead is of no use any more.
    pub(crate) fn remove_next(&mut self, directory: &OsDirectory) {
        let removed = AppendFile::remove_private(directory, &names::next(&self.name));
        self.events.tell_failure(&mut self.failing.removing_next, &removed);
    }

    /// The file is opened again before the next buffer: under its name there may be another.
    pub(crate) fn reopen(&mut self) {
        if self.file.is_some() {
            self.give_back();
            // Who moved the file away may take it for finished: its lines must be durable first.
            self.sync_quietly();
        }
        if let Some(file) = self.file.take() {
            // What was moved away has what was written to it; what was removed does not.
            if !file.facts().is_ok_and(|facts| facts.names > 0) {
                self.lost = self.written_to.map(|place| (place.device, place.inode));
            }
        }
        self.folder.look_again();
    }

    /// Gives back what was reserved for the file and is not used.
    fn give_back(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.rotation.ahead_bytes().is_some()) {
            self.events.tell_failure(&mut self.failing.giving_back, &file.give_back());
        }
    }

    pub(crate) fn sync_quietly(&mut self) {
        if self.is_durable
            && let Err(error) = self.sync()
        {
            // The next sync tells it.
            self.failed_sync = Some(error);
            self.is_dirty = true;
        }
    }

    /// Makes all that was written durable. A failure is not tried again: the next sync is about what comes after.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.is_dirty) else { return Ok(()) };
        self.is_dirty = false;
        file.sync()
    }

    /// Another file was appended to, and nobody will sync it later.
    pub(crate) fn sync_other(&mut self, file: &dyn LogFile) {
        if self.is_durable
            && let Err(error) = file.sync()
        {
            self.failed_sync = Some(error);
        }
    }

    /// When something is to be done though nobody writes.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let boundary = self.boundary?;
        let left = boundary.duration_since(self.clock.now()).unwrap_or(Duration::ZERO);
        let pause = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        Some(left.max(pause))
    }

    /// A boundary further away than one period was set by a clock that was ahead: it is set anew.
    fn is_past_boundary(&mut self) -> bool {
        let (Some(every), Some(boundary)) = (self.rotation.every, self.boundary) else { return false };
        let now = self.clock.now();
        if boundary.duration_since(now).is_ok_and(|left| left > every) {
            self.set_boundary();
            return false;
        }
        now >= boundary
    }

    /// Begins a new file if it is time for one, also when nobody writes.
    pub(crate) fn rotate_by_time(&mut self) {
        if !self.is_past_boundary() {
            return;
        }
        match self.ready() {
            Ok(facts) => self.rotate_if_due(facts, 0),
            // Tried again with the next line; by then the file may be there.
            Err(_) => self.not_before = Some(Instant::now() + ROTATE_AGAIN_AFTER),
        }
    }

    /// The start: a new file is begun if one is due. `is_old`: the file was of an earlier period when it was first looked at.
    pub(crate) fn begin(&mut self, facts: AppendFacts, is_old: bool) {
        self.set_boundary();
        if is_old {
            // Past, until the file is another.
            self.boundary = Some(UNIX_EPOCH);
        }
        if self.rotation.at_start && facts.len_bytes > 0 {
            self.rotate_or_tell(facts, is_old);
        } else {
            self.rotate_if_due(facts, 0);
        }
        self.sync_quietly();
    }

    /// Begins a new file before a buffer of so many bytes, if the old one is due. A failure is reported, and lines go on into
    /// the old one.
    pub(crate) fn rotate_if_due(&mut self, facts: AppendFacts, bytes: u64) {
        let is_past = self.is_past_boundary();
        let is_full = bytes > 0 && self.rotation.bytes.is_some_and(|most| facts.len_bytes + bytes > most);
        if (is_past || is_full) && !self.is_too_soon() {
            self.rotate_or_tell(facts, is_past);
        }
    }

    fn is_too_soon(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// The file may grow no more, while others may (`ulimit -f`).
    pub(crate) fn is_limit(error: &Error) -> bool {
        error.kind() == ErrorKind::FileTooLarge
    }

    /// Begins a new file where this one may grow no more, if files are rotated at all; false if there is none. Told once, as files are
    /// smaller than somebody meant them to be.
    pub(crate) fn end_at_limit(&mut self, error: &Error, facts: AppendFacts) -> bool {
        if self.rotation == Rotation::new() || facts.len_bytes == 0 || self.is_too_soon() {
            return false;
        }
        self.rotate_or_tell(facts, false);
        let is_another = |now: AppendFacts| who(now) != who(facts);
        let is_done = self.file.as_ref().is_some_and(|file| file.facts().is_ok_and(is_another));
        if is_done {
            self.events.tell_failure(&mut self.failing.limit, &Err(error.clone()));
        }
        is_done
    }

    fn rotate_or_tell(&mut self, facts: AppendFacts, is_past: bool) {
        if facts.len_bytes > 0 {
            let rotated = self.rotate(facts);
            self.events.tell_failure(&mut self.failing.rotating, &rotated);
            if rotated.is_err() {
                self.not_before = Some(Instant::now() + ROTATE_AGAIN_AFTER);
                return;
            }
        }
        if is_past {
            self.set_boundary();
        }
    }

    pub(crate) fn set_boundary(&mut self) {
        // One that no clock will ever show is none.
        let now = self.clock.now();
        self.boundary = self.rotation.every.and_then(|every| {
            UNIX_EPOCH.checked_add(period_of(now, every)).and_then(|begin| begin.checked_add(every))
        });
    }

    /// Whether a file last written then belongs to an earlier period.
    pub(crate) fn is_of_earlier(&self, modified: SystemTime) -> bool {
        self.rotation
            .every
            .is_some_and(|every| period_of(modified, every) < period_of(self.clock.now(), every))
    }

    /// The current file gets its last name, and the next one is opened.
    pub(crate) fn rotate(&mut self, facts: AppendFacts) -> Result<()> {
        self.sync_quietly();
        let directory = self.folder.get();
        let named = directory.look(&self.name).ok().flatten();
        if let Some(named) = named
            && who(named.facts) == who(facts)
        {
            self.owner = Some(named.owner);
            self.make_room(&directory, Some(facts.len_bytes));
            // All that wants room comes before the rename: behind it lines would have no file.
            self.make_next(&directory)?;
            // Before it has its last name: a kill in between would leave the room there for good.
            self.give_back();
            let renamed = self.rename_away(&directory);
            if renamed.is_err() {
                self.take_back_next(&directory);
            }
            let name = renamed?;
            // One that is above a limit by itself.
            self.make_room(&directory, None);
            self.rotations += 1;
            self.events.tell(&Event::Rotated { to: &name });
            self.janitor.rotated();
        }
        if named.is_some_and(|named| named.is_link) {
            // Renaming it would move the link. An opening goes by what it leads to.
            self.not_before = Some(Instant::now() + ROTATE_AGAIN_AFTER);
            if !std::mem::replace(&mut self.is_link_told, true) {
                let error = Error::invalid("rotate", self.path(), "a symbolic link was put there");
                let error =
                    error.advise("lines go to its target, and files are not rotated until the log is closed and opened again");
                self.events.tell(&Event::HousekeepingFailed(&error));
            }
        }
        // Else somebody else has moved it, or put another there: it is opened by its name.
        self.file = None;
        self.ready().map(drop)
    }

    pub(crate) fn make_room(&self, directory: &OsDirectory, arriving: Option<u64>) {
        self.retention.make_room(directory, arriving);
    }

    /// Gives the file a name that no file has or had, compressed or not.
    fn rename_away(&mut self, directory: &OsDirectory) -> Result<String> {
        // A clock that went back gives no name before those that are there.
        let now = time::seconds(self.clock.now());
        let mut place = if now > self.last.0 { Some((now, 0)) } else { names::after(self.last) };
        while let Some((seconds, number)) = place {
            let name = names::plain(&self.name, seconds, number);
            let taken = |extension: &str| {
                directory.look(&format!("{name}.{extension}")).is_ok_and(|named| named.is_some())
            };
            let renamed = if taken("gz") || taken("zst") {
                None
            } else {
                match directory.rename_new(&self.name, &name) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                    answer => Some(answer),
                }
            };
            if let Some(answer) = renamed {
                answer?;
                self.last = (seconds, number);
                return Ok(name);
            }
            place = names::after((seconds, number));
        }
        let (seconds, number) = self.last;
        let last = names::plain(&self.name, seconds, number);
        // It may be gone by the next time.
        self.last = newest(directory, &self.name);
        let error = Error::invalid("rotate", self.path(), format!("there is no name after {last}"));
        Err(error.advise("lines still go to the same file; remove or rename the files of that time"))
    }

    /// The end: what was reserved is given back, the file made ahead is taken away.
    pub(crate) fn finish(&mut self) {
        self.give_back();
        self.janitor.stop();
        if self.rotation.ahead_bytes().is_some() {
            self.remove_next(&self.folder.get());
        }
    }
}

/// The newest rotated file, so that the next one is named behind it.
pub(crate) fn newest(directory: &OsDirectory, log: &str) -> (u64, u32) {
    let names = directory.list().unwrap_or_default();
    let rotated = names.iter().filter_map(|name| names::parse(log, name));
    let places = rotated.map(|rotated| (rotated.seconds, rotated.number));
    // Behind the last name that there is nothing can be named: that one is somebody's, and no reason to end rotation.
    places.filter(|place| names::after(*place).is_some()).max().unwrap_or((0, 0))
}

/// Which file it is.
fn who(facts: AppendFacts) -> (u64, u64) {
    (facts.device, facts.inode)
}

/// The beginning of the period that `time` lies in, since 1970.
fn period_of(time: SystemTime, every: Duration) -> Duration {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let every = every.as_secs().max(1);
    Duration::from_secs(since - since % every)
}
