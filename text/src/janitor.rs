//! The background thread that removes and compresses rotated files. No other thread waits for it.
//!
//! *Owns*: rotated files, by their names ([`crate::names`]). *May not touch*: the current file, and
//! any other.
//!
//! Files above the limits are removed first, and not only by this thread ([`crate::retention`]): a
//! slow or failing compression does not delay that. A compressed file is whole before it has its
//! name, and durable before the plain file is removed. A kill leaves a `.part`, which the next
//! start removes, or both files; then the next start removes the plain one if both hold the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{self, BufRead as _, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

use inkstone_io::{
    AppendFacts, AppendFile, Directory as _, Error, NoSizeSignal, OpenFile, OsDirectory, Owner,
    Result, let_others_go_first,
};

use crate::event::{Cause, Event, Events};
use crate::folder::Folder;
use crate::options::{Compression, Keep};
use crate::retention::{Retention, remove, rotated_files};
use crate::shared::Shared;

#[derive(Debug, Clone)]
pub(crate) struct Chores {
    pub(crate) folder: Arc<Folder>,
    pub(crate) name: String,
    pub(crate) retention: Arc<Retention>,
    pub(crate) compression: Compression,
    pub(crate) events: Events,
}

/// The handle of the thread, which ends when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Janitor {
    rotated: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Janitor {
    /// Starts the thread if there is anything for it to do; it begins with what an earlier process
    /// left. Without a thread, does that here.
    pub(crate) fn start(chores: Chores, shared: Arc<Shared>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        if chores.retention.keep == Keep::new() && chores.compression == Compression::None {
            chores.tell(
                &mut Cause::default(),
                &chores.folder.get().and_then(|directory| chores.remove_parts(&directory)),
            );
            return Ok(Self::default());
        }
        let (rotated, orders) = channel();
        let theirs = Arc::clone(&stop);
        let run = move || {
            let _no_signal = NoSizeSignal::here();
            shared.be_own_thread();
            // Not kept: a handle is for threads that put lines.
            drop(shared);
            chores.run(&orders, &theirs);
        };
        let thread = thread::Builder::new().name("log janitor".into()).spawn(run)?;
        Ok(Self { rotated: Some(rotated), thread: Some(thread), stop })
    }

    /// A file was rotated.
    pub(crate) fn rotated(&self) {
        if let Some(rotated) = &self.rotated {
            let _ = rotated.send(());
        }
    }

    /// Ends it; the next start does what is left.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.rotated = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Chores {
    fn run(&self, orders: &Receiver<()>, stop: &AtomicBool) {
        // A sandbox may refuse this; then the thread has normal priority.
        let _ = let_others_go_first();
        let mut failing = Failing::default();
        loop {
            self.sweep(stop, &mut failing);
            if orders.recv().is_err() {
                return;
            }
            // One sweep for several rotations.
            while orders.try_recv().is_ok() {}
        }
    }

    /// Does everything that is due. A chore that fails does not prevent the others.
    fn sweep(&self, stop: &AtomicBool, failing: &mut Failing) {
        // The same directory for all chores, wherever its path leads meanwhile.
        let Ok(directory) = self.folder.get() else { return };
        let directory = &*directory;
        // Removing first: it makes the room that the others need.
        self.retention.make_room(directory, None);
        self.tell(&mut failing.removing_parts, &self.remove_parts(directory));
        self.compress_all(directory, stop, failing);
    }

    fn tell(&self, failing: &mut Cause, done: &Result<()>) {
        self.events.tell_failure(failing, done);
    }

    /// Removes what a killed process has not finished; keeps files that a living process is making.
    fn remove_parts(&self, directory: &OsDirectory) -> Result<()> {
        let files = rotated_files(directory, &self.name)?;
        let parts =
            files.iter().filter(|rotated| rotated.is_part()).map(|part| part.name(&self.name));
        let left = parts.filter(|part| !is_being_made(directory, part));
        left.map(|part| remove(directory, &part)).fold(Ok(()), Result::and)
    }

    /// Newest first, since these are likely to stay. Lists the files again after each: others are
    /// rotated and removed meanwhile.
    fn compress_all(&self, directory: &OsDirectory, stop: &AtomicBool, failing: &mut Failing) {
        let Some(extension) = self.compression.extension() else { return };
        let mut tried = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            let files = rotated_files(directory, &self.name);
            let files = files.unwrap_or_default();
            let mut plain = files.iter().filter(|rotated| rotated.extension.is_empty());
            let Some(next) =
                plain.find(|rotated| !tried.contains(&(rotated.seconds, rotated.number)))
            else {
                return;
            };
            tried.insert((next.seconds, next.number));
            let done = self.compress(directory, &next.name(&self.name), extension, stop, failing);
            let is_full = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::StorageFull);
            self.tell(&mut failing.compressing, &done);
            // The next rotation tries again.
            if is_full {
                return;
            }
            self.retention.make_room(directory, None);
        }
    }

    fn compress(
        &self,
        directory: &OsDirectory,
        name: &str,
        extension: &str,
        stop: &AtomicBool,
        failing: &mut Failing,
    ) -> Result<()> {
        let whole = format!("{name}.{extension}");
        let may_go = match directory.look(&whole)? {
            Some(there) => {
                self.is_its_form(directory, name, (&whole, there.facts), stop, failing)?
            }
            None => self.make_form(directory, name, &whole, stop)?,
        };
        if !may_go {
            return Ok(());
        }
        match directory.sync() {
            // A file system without a sync of directories (CIFS, 9p, some FUSE): the bytes are
            // durable, and nothing more can be done for the name. To wait for that would keep every
            // file twice, for ever.
            Err(error) if error.is_not_here() => {}
            synced => synced?,
        }
        remove(directory, name)
    }

    /// Compresses a file; false if the file or the janitor is gone by then.
    fn make_form(
        &self,
        directory: &OsDirectory,
        name: &str,
        whole: &str,
        stop: &AtomicBool,
    ) -> Result<bool> {
        let part = format!("{whole}.part");
        let made = match self.compress_into(directory, name, &part, stop) {
            Ok(made) => made,
            Err(error) => {
                let _ = directory.remove(&part);
                if is_over(directory, name, stop)? {
                    return Ok(false);
                }
                let path = directory.path().join(name);
                return Err(Error::new("compress", path, error).advise("the plain file stays"));
            }
        };
        if !self.publish(directory, name, &part, whole)? {
            return remove(directory, &part).map(|()| false);
        }
        if directory
            .look(whole)?
            .is_some_and(|named| (named.facts.device, named.facts.inode) == made)
        {
            return Ok(true);
        }
        let why = "another file has that name by now";
        let error = Error::invalid("compress", directory.path().join(whole), why);
        Err(error.advise("the plain file stays"))
    }

    /// Whether the file with the name of the compressed form is that form, so that the plain one
    /// may go: an earlier process may have been killed before it removed the plain one. A file with
    /// other contents is reported once.
    fn is_its_form(
        &self,
        directory: &OsDirectory,
        name: &str,
        (whole, facts): (&str, AppendFacts),
        stop: &AtomicBool,
        failing: &mut Failing,
    ) -> Result<bool> {
        if failing.foreign.get(whole) == Some(&facts) {
            return Ok(false);
        }
        let same = self.has_text_of(directory, name, whole, stop);
        if matches!(same, Ok(true)) || is_over(directory, name, stop)? {
            return Ok(same.unwrap_or(false));
        }
        failing.foreign.insert(whole.to_owned(), facts);
        let why = same
            .err()
            .map_or_else(|| "it holds something else".to_owned(), |error| error.to_string());
        let why = format!("{whole} exists and is not its compressed form: {why}");
        let error = Error::invalid("compress", directory.path().join(name), why);
        self.events
            .tell(&Event::HousekeepingFailed(&error.advise("both stay; move one of them away")));
        Ok(false)
    }

    /// Whether the compressed file is a regular file with exactly the contents of the plain one. If
    /// so, makes it durable, too.
    fn has_text_of(
        &self,
        directory: &OsDirectory,
        name: &str,
        whole: &str,
        stop: &AtomicBool,
    ) -> io::Result<bool> {
        let open = |name: &str| {
            directory.open(name, &OpenFile::existing().read_only()).map_err(io::Error::other)
        };
        let (plain, compressed) = (open(name)?, open(whole)?);
        let plain = Stoppable { file: plain.std_file(), stop };
        let packed = Stoppable { file: compressed.std_file(), stop };
        let is_same = match self.compression {
            Compression::None => has_same_bytes(plain, packed)?,
            #[cfg(feature = "gzip")]
            Compression::Gzip => has_same_bytes(plain, flate2::read::MultiGzDecoder::new(packed))?,
            #[cfg(feature = "zstd")]
            Compression::Zstd => has_same_bytes(plain, zstd::Decoder::new(packed)?)?,
        };
        if is_same {
            compressed.std_file().sync_all()?;
        }
        Ok(is_same)
    }

    /// Gives the compressed form its name, unless the file was removed meanwhile.
    fn publish(
        &self,
        directory: &OsDirectory,
        plain: &str,
        part: &str,
        whole: &str,
    ) -> Result<bool> {
        let _forms = self.retention.forms.lock().unwrap_or_else(PoisonError::into_inner);
        if directory.look(plain)?.is_none() {
            return Ok(false);
        }
        directory.rename_new(part, whole).map(|()| true)
    }

    fn compress_into(
        &self,
        directory: &OsDirectory,
        name: &str,
        part: &str,
        stop: &AtomicBool,
    ) -> io::Result<(u64, u64)> {
        let source =
            directory.open(name, &OpenFile::existing().read_only()).map_err(io::Error::other)?;
        let mut source = Stoppable { file: source.std_file(), stop };
        let target = AppendFile::create_private(directory, part).map_err(io::Error::other)?;
        // Other processes leave it alone while it is locked; without working locks they may remove
        // it, and it is made again.
        let _ = target.std_file().try_lock();
        // The owner of the file that is read: another may have its name by now. If the owner cannot
        // be set, the rotation has already reported that.
        let _ = target.give_to(Owner::of(&source.file.metadata()?));
        let mut target = target.std_file();
        match self.compression {
            Compression::None => drop(io::copy(&mut source, &mut target)?),
            #[cfg(feature = "gzip")]
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(
                    io::BufWriter::new(target),
                    flate2::Compression::default(),
                );
                io::copy(&mut source, &mut encoder)?;
                io::Write::flush(&mut encoder.finish()?)?;
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(io::BufWriter::new(target), 3)?;
                io::copy(&mut source, &mut encoder)?;
                io::Write::flush(&mut encoder.finish()?)?;
            }
        }
        // It is as old as its lines. A file system without times is none for `Keep::days` either.
        let _ = source.file.metadata().and_then(|facts| target.set_modified(facts.modified()?));
        target.sync_all()?;
        let made = target.metadata()?;
        Ok((made.dev(), made.ino()))
    }
}

/// Whether it is locked, as it is while a process makes it. A kill releases the lock.
fn is_being_made(directory: &OsDirectory, part: &str) -> bool {
    let file = directory.open(part, &OpenFile::existing().read_only());
    file.is_ok_and(|file| matches!(file.std_file().try_lock(), Err(TryLockError::WouldBlock)))
}

/// Whether to stop without a failure: the janitor is ending, or the file was removed as one too
/// many.
fn is_over(directory: &OsDirectory, name: &str, stop: &AtomicBool) -> Result<bool> {
    Ok(stop.load(Ordering::Relaxed) || directory.look(name)?.is_none())
}

/// Whether both have the same bytes up to their ends.
fn has_same_bytes(one: impl io::Read, other: impl io::Read) -> io::Result<bool> {
    let (mut one, mut other) = (io::BufReader::new(one), io::BufReader::new(other));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let count = left.len().min(right.len());
        if count == 0 {
            return Ok(left.is_empty() && right.is_empty());
        }
        if left[..count] != right[..count] {
            return Ok(false);
        }
        one.consume(count);
        other.consume(count);
    }
}

/// What failed at the last attempt, so that a failure is reported once and not each time.
#[derive(Debug, Default)]
struct Failing {
    removing_parts: Cause,
    compressing: Cause,
    /// Files with the name of a compressed form that are something else: reported, and checked
    /// again when they change.
    foreign: BTreeMap<String, AppendFacts>,
}

/// A file whose reads fail once the janitor stops or the file was removed: its compressed form is
/// not needed any more.
struct Stoppable<'a> {
    file: &'a File,
    stop: &'a AtomicBool,
}

impl io::Read for Stoppable<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::other("removed"));
        }
        self.file.read(bytes)
    }
}

#[cfg(all(test, feature = "gzip"))]
mod tests {
    use super::*;
    use crate::names;
    use crate::retention::tests::left;
    use crate::time::Clock;
    use std::fs;
    use std::path::Path;
    use std::sync::Mutex;

    fn chores(folder: &Path, keep: Keep, compression: Compression) -> Chores {
        let folder = Arc::new(Folder::open(folder.into(), crate::folder::FILE_MODE).expect("held"));
        let name = "a.log".to_owned();
        let events = Events::to(|_: &Event<'_>| {});
        let retention = Arc::new(Retention {
            name: name.clone(),
            keep,
            clock: Clock::default(),
            forms: Mutex::default(),
            events: events.clone(),
            failing: Mutex::default(),
        });
        Chores { folder, name, retention, compression, events }
    }

    #[test]
    fn a_compression_that_fails_keeps_no_file_that_is_to_go_and_no_other_from_being_compressed() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let path = |name: &str| folder.join(name);
        for second in 0..5 {
            fs::write(path(&names::plain("a.log", 1_795_277_133 + second, 0)), "line\n")
                .expect("written");
        }
        // Nothing can be written where this one's compressed form is to be written.
        fs::create_dir(path("a.log.20261121T160537Z.0.gz.part")).expect("made");
        let chores = chores(folder, Keep::new().files(3), Compression::Gzip);
        chores.sweep(&AtomicBool::new(false), &mut Failing::default());
        let expected = [
            "a.log.20261121T160535Z.0.gz",
            "a.log.20261121T160536Z.0.gz",
            "a.log.20261121T160537Z.0",
            "a.log.20261121T160537Z.0.gz.part",
        ];
        assert_eq!(left(folder), expected);
    }

    fn gzip(text: &str) -> Vec<u8> {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).expect("in memory");
        encoder.finish().expect("in memory")
    }

    #[test]
    fn a_plain_file_does_not_go_for_something_that_is_not_its_compressed_form() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let plain = |second: u64| names::plain("a.log", 1_795_277_133 + second, 0);
        let whole = |second: u64| folder.join(format!("{}.gz", plain(second)));
        for second in 0..9 {
            fs::write(folder.join(plain(second)), format!("line {second}\n")).expect("written");
        }
        fs::write(whole(1), "no gzip at all").expect("written");
        fs::write(whole(2), gzip("line 3\n")).expect("written");
        fs::write(whole(3), gzip("line 3\nand more\n")).expect("written");
        fs::write(whole(4), gzip("line")).expect("written");
        fs::create_dir(whole(5)).expect("made");
        fs::write(folder.join("elsewhere"), gzip("line 6\n")).expect("written");
        std::os::unix::fs::symlink("elsewhere", whole(6)).expect("a link");
        fs::write(whole(7), [gzip("line 7\n"), b"and no gzip".to_vec()].concat()).expect("written");
        fs::write(whole(8), gzip("line 8\n")).expect("written");
        let before = left(folder);
        let told = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&told);
        let mut chores = chores(folder, Keep::new(), Compression::Gzip);
        chores.events =
            Events::to(move |event| theirs.lock().expect("no panic").push(event.to_string()));
        let mut failing = Failing::default();
        for _ in 0..2 {
            chores.sweep(&AtomicBool::new(false), &mut failing);
        }
        let mut expected = before;
        // The eighth is what it says; the first had none yet.
        expected.retain(|name| ![plain(0), plain(8)].contains(name));
        expected.push(format!("{}.gz", plain(0)));
        expected.sort_unstable();
        assert_eq!(left(folder), expected);
        let told = told.lock().expect("no panic").clone();
        assert_eq!(told.len(), 7, "each once: {told:#?}");
        for second in 1..8 {
            assert!(told.iter().any(|told| told.contains(&plain(second))), "{second}: {told:#?}");
        }
        // Put right by hand: it is done then.
        fs::remove_file(whole(1)).expect("removed");
        chores.sweep(&AtomicBool::new(false), &mut failing);
        assert!(whole(1).exists() && !folder.join(plain(1)).exists());
    }

    #[test]
    fn what_a_living_process_is_making_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let parts = [0, 1].map(|number| format!("a.log.20261121T160533Z.{number}.gz.part"));
        let [living, _killed] =
            parts.each_ref().map(|name| File::create(folder.join(name)).expect("made"));
        living.try_lock().expect("nobody else has it");
        let chores = chores(folder, Keep::new(), Compression::None);
        let held = chores.folder.get().expect("here");
        chores.remove_parts(&held).expect("removed");
        assert_eq!(left(folder), parts[..1]);
        drop(living);
        chores.remove_parts(&held).expect("removed");
        assert_eq!(left(folder), [""; 0]);
    }

    #[test]
    fn a_kill_while_compressing_leaves_nothing_that_the_next_start_does_not_put_right() {
        use std::io::Read as _;
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let path = |name: &str| folder.join(name);
        // Killed in the middle; killed before the plain file was removed; not come to yet.
        fs::write(path("a.log.20261121T160533Z.0"), "zero\n").expect("written");
        fs::write(path("a.log.20261121T160533Z.0.gz.part"), "half").expect("written");
        fs::write(path("a.log.20261121T160534Z.0"), "one\n").expect("written");
        fs::write(path("a.log.20261121T160534Z.0.gz"), gzip("one\n")).expect("written");
        chores(folder, Keep::new(), Compression::Gzip)
            .sweep(&AtomicBool::new(false), &mut Failing::default());
        assert_eq!(left(folder), ["a.log.20261121T160533Z.0.gz", "a.log.20261121T160534Z.0.gz"]);
        let mut text = String::new();
        let file = File::open(path("a.log.20261121T160533Z.0.gz")).expect("there");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
        assert_eq!(text, "zero\n");
    }
}
