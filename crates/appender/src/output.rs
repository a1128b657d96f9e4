//! The file that lines go to: opening it, opening it again, rotating it, syncing it.
//!
//! *Owns*: the current file and its place among the rotated ones. *May not touch*: buffers, locks; compressing
//! ([`crate::janitor`]), and which files go ([`crate::retention`]).

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inkstone_io::{AppendFacts, AppendFile, Directory as _, Error, OsDirectory, Owner, Result};

use crate::disk::{Disk, LogFile};
use crate::event::{Event, Events};
use crate::folder::Folder;
use crate::janitor::Janitor;
use crate::names;
use crate::options::Rotation;
use crate::recover::{Target, ends_within_line};
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
    pub(crate) is_owner_told: bool,
    /// The event that a link is not rotated was sent.
    pub(crate) is_link_told: bool,
    /// The file that this log has written to last.
    pub(crate) last_written: Option<(u64, u64)>,
    /// Something was written since the last sync.
    pub(crate) is_dirty: bool,
    /// A sync that failed on the way to another file.
    pub(crate) failed_sync: Option<Error>,
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
            self.file = None;
        }
        if self.folder.get().is_removed() {
            self.folder.look_again();
        }
        let directory = self.folder.get();
        self.put_next(&directory);
        let file = self.disk.open(&directory, &self.name)?;
        let facts = file.facts()?;
        // Of a link nothing is taken over, nor of a file that has just been put there.
        let named = directory.look(&self.name).ok().flatten().filter(|named| !named.is_link);
        self.owner = named.filter(|named| who(named.facts) == who(facts)).map(|named| named.owner);
        if self.is_durable {
            directory.sync()?;
        }
        // What an earlier process has reserved stays: a living one may be appending there, and giving back is not safe beside it.
        if let Some(bytes) = self.rotation.ahead_bytes() {
            self.tell_unless(file.reserve(bytes));
        }
        self.file = Some(file);
        Ok(facts)
    }

    /// Puts a file with the owner of the one before it where there is none. A failure is reported once; the file is opened
    /// all the same, and is then as new files are.
    fn put_next(&mut self, directory: &OsDirectory) {
        let Some(owner) = self.owner else { return };
        if !directory.look(&self.name).is_ok_and(|named| named.is_none()) {
            return;
        }
        let next = names::next(&self.name);
        // It may have been made ahead. Where it cannot be made, the opening reports why.
        let Ok(file) = AppendFile::take_private(directory, &next) else { return };
        let given = file.give_to(owner);
        let done = match directory.rename_new(&next, &self.name) {
            // Somebody has put one there by now.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => given,
            renamed => renamed.and(given),
        };
        if let Err(error) = done
            && !std::mem::replace(&mut self.is_owner_told, true)
        {
            self.events.tell(&Event::HousekeepingFailed(&error));
        }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(file) = &self.file else {
            return Err(Error::invalid("append", self.path(), "the file is not open"));
        };
        let count = file.append(bytes)?;
        self.is_dirty = true;
        Ok(count)
    }

    /// Ends the line that somebody else has left unfinished at the end of the file, or an earlier process, so that what is written next
    /// begins a line; true if there was one. Asked once for each file, and where somebody else wrote in between (`is_cut`).
    pub(crate) fn end_others_line(&mut self, facts: AppendFacts, is_cut: bool) -> Result<bool> {
        let is_others = is_cut || self.last_written != Some(who(facts));
        let is_within = is_others && ends_within_line(&self.folder.get(), &self.name, facts);
        if is_within {
            self.append(b"\n")?;
        }
        self.last_written = Some(who(facts));
        Ok(is_within)
    }

    /// The log, as recovery needs it.
    pub(crate) fn target<'a>(&'a self, directory: &'a Arc<OsDirectory>) -> Target<'a> {
        Target { directory, name: &self.name, disk: &*self.disk, is_durable: self.is_durable }
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
    pub(crate) fn remove_next(&self, directory: &OsDirectory) {
        self.tell_unless(AppendFile::remove_private(directory, &names::next(&self.name)));
    }

    /// The file is opened again before the next buffer: under its name there may be another.
    pub(crate) fn reopen(&mut self) {
        if self.file.is_some() {
            self.give_back();
            // Who moved the file away may take it for finished: its lines must be durable first.
            self.sync_quietly();
            self.file = None;
        }
        self.folder.look_again();
    }

    /// Gives back what was reserved for the file and is not used.
    fn give_back(&self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.rotation.ahead_bytes().is_some()) {
            self.tell_unless(file.give_back());
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

    fn tell_unless(&self, done: Result<()>) {
        if let Err(error) = done
            && !error.is_unsupported()
        {
            self.events.tell(&Event::HousekeepingFailed(&error));
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
        if !is_past && !is_full || self.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.rotate_or_tell(facts, is_past);
    }

    fn rotate_or_tell(&mut self, facts: AppendFacts, is_past: bool) {
        if facts.len_bytes > 0
            && let Err(error) = self.rotate(facts)
        {
            self.events.tell(&Event::HousekeepingFailed(&error));
            self.not_before = Some(Instant::now() + ROTATE_AGAIN_AFTER);
            return;
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
        // Before it has its last name: a kill in between would leave the room there for good.
        self.give_back();
        let directory = self.folder.get();
        let named = directory.look(&self.name).ok().flatten();
        if let Some(named) = named
            && who(named.facts) == who(facts)
        {
            self.owner = Some(named.owner);
            self.make_room(&directory, Some(facts.len_bytes));
            let name = self.rename_away(&directory)?;
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
                let error = Error::invalid("rotate", self.path(), "somebody put a symbolic link there");
                let error =
                    error.advise("lines go where it leads, and are not rotated until the log is opened anew");
                self.events.tell(&Event::HousekeepingFailed(&error));
            }
        }
        // Else somebody else has moved it, or put another there: it is opened by its name.
        self.file = None;
        self.ready().map(drop)
    }

    /// A failure is reported; it is no reason to stay with a file that is due.
    pub(crate) fn make_room(&self, directory: &OsDirectory, arriving: Option<u64>) {
        self.tell_unless(self.retention.make_room(directory, arriving));
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
        let error = Error::invalid("rotate", self.path(), format!("there is no name behind {last}"));
        Err(error.advise("lines go on into the same file; remove or rename the files of that time"))
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
