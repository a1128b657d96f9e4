//! The background thread that removes and compresses rotated files. No other thread waits for it.
//!
//! *Owns*: rotated files, by their names. *May not touch*: the current file, and any other.
//!
//! Files above the limits are removed first, and not only by this thread
//! ([`rotated`](crate::rotated)): a slow or failing compression does not delay that. A compressed
//! file is whole before it has its name, and durable before the plain file is removed. A kill
//! leaves a `.part`, or both files; the next start removes the part and the compressed file, since
//! the plain one has everything, and compresses it again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use inkstone_io::{
    AppendFile, Directory as _, Error, NoSizeSignal, OpenFile, OsDirectory, Owner, Result,
    let_others_go_first, start_thread,
};

use crate::event::Events;
use crate::folder::Folder;
use crate::options::Compression;
use crate::rotated::{Retention, plain, remove};
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct Chores {
    pub(crate) folder: Arc<Folder>,
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
        if chores.retention.keeps_all() && chores.compression == Compression::None {
            chores.begin();
            chores.sweep(&stop);
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
        let thread = start_thread("log janitor", run)?;
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
        self.begin();
        loop {
            self.sweep(stop);
            if orders.recv().is_err() {
                return;
            }
            // One sweep for several rotations.
            while orders.try_recv().is_ok() {}
        }
    }

    /// Removes what a killed process has not finished: no other one has the log.
    fn begin(&self) {
        let removed = self.retention.remove_unfinished(&self.folder.get());
        self.events.tell_failure("finish", &removed);
    }

    /// Does everything that is due. A chore that fails does not prevent the others.
    fn sweep(&self, stop: &AtomicBool) {
        // The same directory for all chores, wherever its path leads meanwhile.
        let directory = self.folder.get();
        let sweep = Sweep { chores: self, directory: &directory, stop };
        // Removing first: it makes the room that the others need.
        self.retention.make_room(&directory, false);
        sweep.compress_all();
    }
}

/// One round of chores, in one directory.
struct Sweep<'a> {
    chores: &'a Chores,
    directory: &'a Arc<OsDirectory>,
    stop: &'a AtomicBool,
}

impl Sweep<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether to stop without a failure: the janitor is ending, or the file was removed as one too
    /// many.
    fn is_over(&self, name: &str) -> Result<bool> {
        Ok(self.is_stopped() || self.directory.look(name)?.is_none())
    }

    fn open(&self, name: &str) -> Result<File> {
        let file = self.directory.open(name, &OpenFile::existing().read_only())?;
        let cloned = file.std_file().try_clone();
        cloned.map_err(|error| Error::new("open log", self.directory.path().join(name), error))
    }

    /// Newest first, since these are likely to stay. Looks at the files again after each: others
    /// are rotated and removed meanwhile.
    fn compress_all(&self) {
        let Some(extension) = self.chores.compression.extension() else { return };
        let log = self.chores.folder.log();
        let (mut tried, mut all) = (BTreeSet::new(), Ok(()));
        while !self.is_stopped() {
            let files = self.chores.retention.files(self.directory).unwrap_or_default();
            let Some(next) = files.into_iter().rev().find(|rotated| tried.insert(*rotated)) else {
                break;
            };
            let name = plain(log, next);
            if !self.directory.look(&name).is_ok_and(|named| named.is_some()) {
                continue;
            }
            let done = self.compress(&name, extension);
            let is_full = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::StorageFull);
            all = all.and(done);
            // The next rotation tries again.
            if is_full {
                break;
            }
            self.chores.retention.make_room(self.directory, false);
        }
        // Once, though several may have failed.
        self.chores.events.tell_failure("compress", &all);
    }

    fn compress(&self, name: &str, extension: &str) -> Result<()> {
        let whole = format!("{name}.{extension}");
        if !self.make_form(name, &whole)? {
            return Ok(());
        }
        let synced = match self.directory.sync() {
            // A file system without a sync of directories (CIFS, 9p, some FUSE): the bytes are
            // durable, and nothing more can be done for the name. To wait for that would keep every
            // file twice, for ever.
            Err(error) if error.is_not_here() => Ok(()),
            synced => synced,
        };
        let done = synced.and_then(|()| remove(self.directory, name));
        // No line stays in two files.
        if done.is_err() && self.directory.look(name)?.is_some() {
            remove(self.directory, &whole)?;
        }
        done
    }

    /// Compresses a file; false if the file or the janitor is gone by then.
    fn make_form(&self, name: &str, whole: &str) -> Result<bool> {
        let part = format!("{whole}.part");
        if let Err(error) = self.compress_into(name, &part) {
            let _ = self.directory.remove(&part);
            if self.is_over(name)? {
                return Ok(false);
            }
            let error = Error::new("compress", self.directory.path().join(name), error);
            return Err(error.advise("the plain file stays"));
        }
        // Unless the file was removed meanwhile.
        let _forms = self.chores.retention.forms.lock().unwrap_or_else(PoisonError::into_inner);
        if self.directory.look(name)?.is_none() {
            return remove(self.directory, &part).map(|()| false);
        }
        self.directory.rename(&part, whole).map(|()| true)
    }

    fn compress_into(&self, name: &str, part: &str) -> io::Result<()> {
        let source = self.open(name).map_err(io::Error::other)?;
        let mut source = Stoppable { file: &source, stop: self.stop };
        let target = AppendFile::create_private(self.directory, part).map_err(io::Error::other)?;
        // The owner of the file that is read: another may have its name by now. If the owner cannot
        // be set, the rotation has already reported that.
        let _ = target.give_to(Owner::of(&source.file.metadata()?));
        let target = target.std_file();
        let mut buffered = io::BufWriter::new(target);
        match self.chores.compression {
            Compression::None => drop(io::copy(&mut source, &mut buffered)?),
            #[cfg(feature = "gzip")]
            Compression::Gzip => {
                let level = flate2::Compression::default();
                let mut encoder = flate2::write::GzEncoder::new(&mut buffered, level);
                io::copy(&mut source, &mut encoder)?;
                encoder.finish()?;
            }
        }
        io::Write::flush(&mut buffered)?;
        // It is as old as its lines. A file system without times is none for `Keep::days` either.
        let _ = source.file.metadata().and_then(|facts| target.set_modified(facts.modified()?));
        target.sync_all()
    }
}

/// A file whose reads fail once the janitor stops or the file was removed: its compressed form is
/// not needed any more.
struct Stoppable<'a> {
    file: &'a File,
    stop: &'a AtomicBool,
}

impl Read for Stoppable<'_> {
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
    use crate::options::Keep;
    use crate::rotated::tests::left;
    use crate::time::Clock;
    use std::fs;
    use std::path::Path;

    fn chores(folder: &Path, keep: Keep, compression: Compression) -> Chores {
        let folder = Arc::new(Folder::open(folder.into(), "a.log").expect("held"));
        let events = Events::to(|_| {});
        let retention = Arc::new(Retention::new("a.log", keep, Clock::default(), events.clone()));
        Chores { folder, retention, compression, events }
    }

    fn sweep(chores: &Chores) {
        chores.sweep(&AtomicBool::new(false));
    }

    #[test]
    fn a_compression_that_fails_keeps_no_file_that_is_to_go_and_no_other_from_being_compressed() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let path = |name: &str| folder.join(name);
        for second in 0..5 {
            fs::write(path(&plain("a.log", (20_261_121_160_533 + second, 0))), "line\n")
                .expect("written");
        }
        // Nothing can be written where this one's compressed form is to be written.
        fs::create_dir(path("a.log.20261121T160537Z.0.gz.part")).expect("made");
        let chores = chores(folder, Keep::new().files(3), Compression::Gzip);
        sweep(&chores);
        let expected = [
            "a.log.20261121T160535Z.0.gz",
            "a.log.20261121T160536Z.0.gz",
            "a.log.20261121T160537Z.0",
            "a.log.20261121T160537Z.0.gz.part",
        ];
        assert_eq!(left(folder), expected);
    }

    /// As a kill leaves them, or anybody: the plain one has everything. It goes only for its own
    /// compressed form; until then that is none of its forms.
    #[test]
    fn a_line_is_in_one_file_behind_a_kill() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let name = plain("a.log", (20_261_121_160_533, 0));
        let whole = folder.join(format!("{name}.gz"));
        fs::write(folder.join(&name), "line\n").expect("written");
        fs::write(&whole, "no gzip at all").expect("written");
        fs::write(folder.join(format!("{name}.gz.part")), "half").expect("written");
        let chores = chores(folder, Keep::new(), Compression::Gzip);
        chores.begin();
        assert_eq!(left(folder), [name.as_str()]);
        sweep(&chores);
        assert_eq!(left(folder), [format!("{name}.gz")]);
        let mut text = String::new();
        let file = File::open(whole).expect("there");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("whole");
        assert_eq!(text, "line\n");
    }
}
