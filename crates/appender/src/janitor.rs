//! The thread that nobody waits for: the next file made ahead, rotated files compressed, old ones removed.
//!
//! *Owns*: files that [`names`] knows, once they are rotated. *May not touch*: the current file, and any other.
//!
//! A compressed file is whole before it has its name, and durable before the plain one goes. A kill leaves a `.part`, which
//! the next start removes, or both files, of which it removes the plain one.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use inkstone_io::{AppendFile, Error, Result, let_others_go_first, rename_new, sync_directory};

use crate::event::{Event, Events};
use crate::names::{self, Rotated};
use crate::options::{Compression, Keep};
use crate::time;

#[derive(Debug, Clone)]
pub(crate) struct Chores {
    pub(crate) folder: PathBuf,
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
        let ahead = self.ahead_bytes.map_or(Ok(()), |bytes| self.make_ahead(bytes));
        for rotated in self.rotated_files()? {
            if stop.load(Ordering::Relaxed) {
                return ahead;
            }
            let path = self.folder.join(rotated.name(&self.name));
            if rotated.is_part() {
                remove(&path)?;
            } else if rotated.extension.is_empty()
                && let Some(extension) = self.compression.extension()
            {
                self.compress(&path, extension, stop)?;
            }
        }
        self.remove_old(SystemTime::now())?;
        ahead
    }

    /// Newest first.
    fn rotated_files(&self) -> Result<Vec<Rotated>> {
        let failed = |source| Error::new("list directory", &self.folder, source);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A directory or a link of such a name is not what this crate made.
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                files.extend(entry.file_name().to_str().and_then(|name| names::parse(&self.name, name)));
            }
        }
        files.sort_unstable();
        files.reverse();
        Ok(files)
    }

    fn remove_old(&self, now: SystemTime) -> Result<()> {
        let (mut count, mut bytes) = (0, 0);
        for rotated in self.rotated_files()? {
            if rotated.is_part() {
                continue;
            }
            let path = self.folder.join(rotated.name(&self.name));
            count += 1;
            bytes += fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
            let age = time::seconds(now).saturating_sub(rotated.seconds);
            let is_old = self.keep.files.is_some_and(|most| count > most)
                || self.keep.bytes.is_some_and(|most| bytes > most)
                || self.keep.age.is_some_and(|most| age > most.as_secs());
            if is_old {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// The next file, empty, with its blocks reserved.
    fn make_ahead(&self, bytes: u64) -> Result<()> {
        let path = self.folder.join(names::next(&self.name));
        match AppendFile::create_new(&path) {
            Ok(file) => match file.reserve(bytes) {
                Err(error) if error.is_unsupported() => Ok(()),
                answer => answer,
            },
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn compress(&self, path: &Path, extension: &str, stop: &AtomicBool) -> Result<()> {
        let whole = with_extension(path, extension);
        if fs::symlink_metadata(&whole).is_err() {
            let part = with_extension(&whole, "part");
            if let Err(error) = self.compress_into(path, &part, stop) {
                let _ = fs::remove_file(&part);
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                return Err(Error::new("compress", path, error).advise("the plain file stays"));
            }
            rename_new(&part, &whole)?;
            sync_directory(&self.folder)?;
        }
        remove(path)
    }

    fn compress_into(&self, path: &Path, part: &Path, stop: &AtomicBool) -> io::Result<()> {
        let mut source = Stoppable { file: File::open(path)?, stop };
        let target = File::options().write(true).create_new(true).open(part)?;
        target.set_permissions(source.file.metadata()?.permissions())?;
        match self.compression {
            Compression::None => drop(io::copy(&mut source, &mut &target)?),
            #[cfg(feature = "gzip")]
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(
                    io::BufWriter::new(&target),
                    flate2::Compression::default(),
                );
                io::copy(&mut source, &mut encoder)?;
                io::Write::flush(&mut encoder.finish()?)?;
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(io::BufWriter::new(&target), 3)?;
                io::copy(&mut source, &mut encoder)?;
                io::Write::flush(&mut encoder.finish()?)?;
            }
        }
        target.sync_all()
    }
}

/// A file that ends with an error when the janitor is to stop.
struct Stoppable<'a> {
    file: File,
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

fn with_extension(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// That somebody else was faster is no failure.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::new("unlink", path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chores(folder: &Path, keep: Keep) -> Chores {
        let name = "a.log".to_owned();
        let (compression, ahead_bytes) = (Compression::None, None);
        Chores { folder: folder.into(), name, keep, compression, ahead_bytes, events: Events::default() }
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
            chores(folder, keep).remove_old(now).expect("removed");
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
