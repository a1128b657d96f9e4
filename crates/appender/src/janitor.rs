//! The thread that nobody waits for: the next file made ahead, rotated files compressed, old ones removed.
//!
//! *Owns*: files that [`names`] knows, once they are rotated. *May not touch*: the current file, and any other.
//!
//! A compressed file is whole before it has its name, and durable before the plain one goes. A kill leaves a `.part`, which
//! the next start removes, or both files, of which it removes the plain one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use inkstone_io::{AppendFile, Directory as _, Error, OpenFile, OsDirectory, Result, let_others_go_first};

use crate::event::{Event, Events};
use crate::folder::Folder;
use crate::names::{self, Rotated};
use crate::options::{Compression, Keep};
use crate::time;

#[derive(Debug, Clone)]
pub(crate) struct Chores {
    pub(crate) folder: Arc<Folder>,
    pub(crate) name: String,
    pub(crate) keep: Keep,
    pub(crate) compression: Compression,
    pub(crate) ahead_bytes: Option<u64>,
    pub(crate) events: Events,
}

/// The way to the thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Janitor {
    rotated: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Janitor {
    /// Starts it where there is anything for it to do; it begins with what an earlier process left.
    pub(crate) fn start(chores: Chores) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let is_idle = chores.keep == Keep::new()
            && chores.compression == Compression::None
            && chores.ahead_bytes.is_none();
        if is_idle {
            return Ok(Self { rotated: None, thread: None, stop });
        }
        let (rotated, orders) = channel();
        let theirs = Arc::clone(&stop);
        let thread =
            thread::Builder::new().name("log janitor".into()).spawn(move || chores.run(&orders, &theirs))?;
        Ok(Self { rotated: Some(rotated), thread: Some(thread), stop })
    }

    /// A file was rotated.
    pub(crate) fn rotated(&self) {
        if let Some(rotated) = &self.rotated {
            let _ = rotated.send(());
        }
    }

    /// Ends it; what it did not come to is done by the next start.
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
        // It may be refused in a sandbox; then it is only less polite.
        let _ = let_others_go_first();
        loop {
            if let Err(error) = self.sweep(stop) {
                self.events.tell(&Event::HousekeepingFailed(&error));
            }
            if orders.recv().is_err() {
                return;
            }
            // Several rotations, one sweep.
            while orders.try_recv().is_ok() {}
        }
    }

    /// Everything that is to be done now.
    pub(crate) fn sweep(&self, stop: &AtomicBool) -> Result<()> {
        // One directory for the whole of it, whatever its path leads to meanwhile.
        let directory = &*self.folder.get();
        let ahead = self.ahead_bytes.map_or(Ok(()), |bytes| self.make_ahead(directory, bytes));
        for rotated in self.rotated_files(directory)? {
            if stop.load(Ordering::Relaxed) {
                return ahead;
            }
            let name = rotated.name(&self.name);
            if rotated.is_part() {
                remove(directory, &name)?;
            } else if rotated.extension.is_empty()
                && let Some(extension) = self.compression.extension()
            {
                self.compress(directory, &name, extension, stop)?;
            }
        }
        self.remove_old(directory, SystemTime::now())?;
        ahead
    }

    /// Newest first.
    fn rotated_files(&self, directory: &OsDirectory) -> Result<Vec<Rotated>> {
        // Plain files only: a directory or a link of such a name is not what this crate made.
        let names = directory.list()?;
        let mut files: Vec<_> = names.iter().filter_map(|name| names::parse(&self.name, name)).collect();
        files.sort_unstable();
        files.reverse();
        Ok(files)
    }

    fn remove_old(&self, directory: &OsDirectory, now: SystemTime) -> Result<()> {
        let (mut count, mut bytes) = (0, 0);
        for rotated in self.rotated_files(directory)? {
            if rotated.is_part() {
                continue;
            }
            let name = rotated.name(&self.name);
            count += 1;
            bytes += directory.look(&name)?.map_or(0, |named| named.facts.len_bytes);
            let age = time::seconds(now).saturating_sub(rotated.seconds);
            let is_old = self.keep.files.is_some_and(|most| count > most)
                || self.keep.bytes.is_some_and(|most| bytes > most)
                || self.keep.age.is_some_and(|most| age > most.as_secs());
            if is_old {
                remove(directory, &name)?;
            }
        }
        Ok(())
    }

    /// The next file, empty, with its blocks reserved.
    fn make_ahead(&self, directory: &OsDirectory, bytes: u64) -> Result<()> {
        match AppendFile::create_new(directory, &names::next(&self.name)) {
            Ok(file) => match file.reserve(bytes) {
                Err(error) if error.is_unsupported() => Ok(()),
                answer => answer,
            },
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn compress(
        &self,
        directory: &OsDirectory,
        name: &str,
        extension: &str,
        stop: &AtomicBool,
    ) -> Result<()> {
        let whole = format!("{name}.{extension}");
        if directory.look(&whole)?.is_none() {
            let part = format!("{whole}.part");
            if let Err(error) = self.compress_into(directory, name, &part, stop) {
                let _ = directory.remove(&part);
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let path = directory.path().join(name);
                return Err(Error::new("compress", path, error).advise("the plain file stays"));
            }
            directory.rename_new(&part, &whole)?;
            directory.sync()?;
        }
        remove(directory, name)
    }

    fn compress_into(
        &self,
        directory: &OsDirectory,
        name: &str,
        part: &str,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let source = directory.open(name, &OpenFile::existing().read_only()).map_err(io::Error::other)?;
        let mut source = Stoppable { file: source.std_file(), stop };
        let target = directory.open(part, &OpenFile::new_file()).map_err(io::Error::other)?;
        let mut target = target.std_file();
        target.set_permissions(source.file.metadata()?.permissions())?;
        match self.compression {
            Compression::None => drop(io::copy(&mut source, &mut target)?),
            #[cfg(feature = "gzip")]
            Compression::Gzip => {
                let mut encoder =
                    flate2::write::GzEncoder::new(io::BufWriter::new(target), flate2::Compression::default());
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
        target.sync_all()
    }
}

/// A file that ends with an error when the janitor is to stop.
struct Stoppable<'a> {
    file: &'a File,
    stop: &'a AtomicBool,
}

impl io::Read for Stoppable<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        self.file.read(bytes)
    }
}

/// That somebody else was faster is no failure.
fn remove(directory: &OsDirectory, name: &str) -> Result<()> {
    match directory.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn chores(folder: &Path, keep: Keep) -> Chores {
        let folder = Arc::new(Folder::open(folder.into()).expect("held"));
        let name = "a.log".to_owned();
        let (compression, ahead_bytes) = (Compression::None, None);
        Chores { folder, name, keep, compression, ahead_bytes, events: Events::default() }
    }

    fn left(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).expect("a directory");
        let mut names: Vec<_> =
            names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn each_limit_keeps_the_newest_and_foreign_files_are_not_touched() {
        let foreign = ["a.log", "a.log.1", "a.log.20261121T160533Z", "a.log.20261121T160533Z.1.bak", "b.log"];
        let now = SystemTime::now();
        let seconds = time::seconds(now);
        let day = 86_400;
        for (keep, expected) in [
            (Keep::new(), vec![0, 1, 2, 3]),
            (Keep::new().files(2), vec![0, 1]),
            (Keep::new().bytes(25), vec![0, 1]),
            (Keep::new().days(2), vec![0, 1, 2]),
            (Keep::new().days(2).files(1), vec![0]),
            (Keep::new().files(0), vec![]),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let folder = directory.path();
            for name in foreign {
                fs::write(folder.join(name), "ten bytes.").expect("written");
            }
            let old: Vec<_> = (0..4).map(|age| names::plain("a.log", seconds - age * day, 0)).collect();
            for name in &old {
                fs::write(folder.join(name), "ten bytes.").expect("written");
            }
            fs::create_dir(folder.join(names::plain("a.log", 0, 0))).expect("a directory of such a name");
            let chores = chores(folder, keep);
            chores.remove_old(&chores.folder.get(), now).expect("removed");
            let kept: Vec<_> = (0..4).filter(|age| folder.join(&old[*age]).exists()).collect();
            assert_eq!(kept, expected, "{keep:?}");
            let others = left(folder).len() - kept.len();
            assert_eq!(others, foreign.len() + 1, "{:?}", left(folder));
        }
    }

    #[cfg(feature = "gzip")]
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
        fs::write(path("a.log.20261121T160534Z.0.gz"), "whole, as far as we know").expect("written");
        let chores = Chores { compression: Compression::Gzip, ..chores(folder, Keep::new()) };
        let stop = AtomicBool::new(false);
        // The part stands in the way of its own making until it is removed: newest first.
        chores.sweep(&stop).expect("swept");
        assert_eq!(left(folder), ["a.log.20261121T160533Z.0.gz", "a.log.20261121T160534Z.0.gz"]);
        let mut text = String::new();
        let file = File::open(path("a.log.20261121T160533Z.0.gz")).expect("there");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
        assert_eq!(text, "zero\n");
    }
}
