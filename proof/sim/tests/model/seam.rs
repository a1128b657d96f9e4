//! What the seam promises is the same on the operating system's directory and on a simulated one.
//!
//! *Owns*: a directory below cargo's temporary one. *May not touch*: the crate's insides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use inkstone_io::{
    Access, AlignedBuf, Directory, Durability, Error, File, OpenFile, OsDirectory, Preparation,
    Result, SyncKind,
};
use inkstone_sim::hooked::{Call, Hook};
use inkstone_sim::{DiskOptions, SimDisk};

/// What a caller saw, in words.
#[derive(Default)]
struct Seen(Vec<String>);

impl Seen {
    fn note<T: std::fmt::Debug>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        let words = match &result {
            Ok(value) => format!("{what}: {value:?}"),
            // The path differs; the operation and the cause do not.
            Err(error) => format!(
                "{what}: {} {:?} {:?} {:?}",
                error.operation(),
                error.kind(),
                error.raw_os_error(),
                error.offset()
            ),
        };
        self.0.push(words);
        result.ok()
    }
}

fn block(byte: u8) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(4096);
    buffer.fill(byte);
    buffer
}

fn names_and_sizes<D: Directory>(directory: &D, seen: &mut Seen) {
    seen.note("list", directory.list());
    for name in ["", "a/b", ".", ".."] {
        seen.note("open a bad name", directory.open(name, &OpenFile::new_file()).map(drop));
    }
    seen.note("open what is not there", directory.open("a", &OpenFile::existing()).map(drop));
    seen.note("create to read", directory.open("a", &OpenFile::new_file().read_only()).map(drop));
    let file = directory.open("a", &OpenFile::new_file()).unwrap();
    seen.note("create again", directory.open("a", &OpenFile::new_file()).map(drop));
    seen.note("size", file.len_bytes());
    seen.note("write", file.write_at(b"hello", 3));
    seen.note("size", file.len_bytes());
    let mut bytes = [9; 12];
    seen.note("read", file.read_at(&mut bytes, 0));
    seen.note("what", Ok(bytes));
    seen.note("read past the end", file.read_at(&mut bytes, 1 << 40));
    seen.note("write beyond every file", file.write_at(b"x", u64::MAX));
    seen.note("sync", file.sync(SyncKind::All));
    seen.note("fdatasync", file.sync(SyncKind::Data));
    seen.note("rename what is not there", directory.rename("x", "y"));
    seen.note("rename", directory.rename("a", "b"));
    seen.note("rename to itself", directory.rename("b", "b"));
    drop(directory.open("c", &OpenFile::new_file()).unwrap());
    seen.note("list", directory.list());
    seen.note("rename to a name that is taken", directory.rename_new("c", "b"));
    seen.note("rename to its own name", directory.rename_new("c", "c"));
    seen.note("rename what is not there to a name that is taken", directory.rename_new("x", "b"));
    seen.note("list", directory.list());
    seen.note("rename to a new name", directory.rename_new("c", "d"));
    seen.note("rename back", directory.rename_new("d", "c"));
    seen.note("rename over", directory.rename("c", "b"));
    seen.note("list", directory.list());
    let new = directory.open("b", &OpenFile::existing()).unwrap();
    seen.note("the new b", new.len_bytes());
    seen.note("the old one, still open", file.read_at(&mut bytes, 3));
    seen.note("remove", directory.remove("b"));
    seen.note("remove again", directory.remove("b"));
    seen.note("list", directory.list());
    seen.note("sync directory", directory.sync());
}

fn sizes_and_facts<D: Directory>(directory: &D, seen: &mut Seen) {
    let file = directory.open("s", &OpenFile::new_file()).unwrap();
    let other = directory.open("t", &OpenFile::new_file()).unwrap();
    file.write_at(b"abcdef", 0).unwrap();
    let to_read = directory.open("s", &OpenFile::existing().read_only()).unwrap();
    for len_bytes in [3, 5, 5, 9000, 5000, 1 << 62, 0] {
        seen.note("set the size", file.set_len(len_bytes));
        seen.note("size", to_read.len_bytes());
        let mut bytes = [9; 8];
        seen.note("read", to_read.read_at(&mut bytes, 0));
        seen.note("what", Ok(bytes));
        seen.note("forget", to_read.forget_cached());
        seen.note("read again", to_read.read_at(&mut bytes, 0));
        seen.note("what", Ok(bytes));
        seen.note("sync what is for reading", to_read.sync(SyncKind::Data));
    }
    seen.note("set the size of what is for reading", to_read.set_len(4));
    let (facts, others) = (file.facts().unwrap(), other.facts().unwrap());
    seen.note("names", Ok((facts.hard_links, facts.has_shared_extents)));
    seen.note(
        "the same file",
        Ok((facts == to_read.facts().unwrap(), facts.inode == others.inode)),
    );
    directory.remove("s").unwrap();
    directory.remove("t").unwrap();
    seen.note("names left", Ok(file.facts().unwrap().hard_links));
    seen.note("room", Ok(directory.free_bytes().unwrap() > 0));
}

fn locks<D: Directory>(directory: &D, seen: &mut Seen) {
    let mut held = Vec::new();
    for name in ["l", "l", "m", "a/b"] {
        // The reported holder differs.
        seen.note("holder", directory.locked_by(name).map(|holder| holder.is_some()));
        seen.note("lock", directory.lock(name).map(|lock| lock.map(|lock| held.push(lock))));
        seen.note("held", Ok(held.len()));
        seen.note("holder", directory.locked_by(name).map(|holder| holder.is_some()));
    }
    seen.note("list", directory.list());
    held.clear();
    seen.note("holder", directory.locked_by("l"));
    held.extend(directory.lock("l").unwrap());
    seen.note("held again", Ok(held.len()));
    directory.remove("l").unwrap();
    directory.remove("m").unwrap();
}

fn preparations<D: Directory>(directory: &D, seen: &mut Seen) {
    for way in [Preparation::None, Preparation::Fallocate, Preparation::Zeros] {
        let file = directory.open("p", &OpenFile::new_file()).unwrap();
        file.write_at(b"before", 0).unwrap();
        seen.note("prepare", file.prepare(way, 20_000));
        seen.note("size", file.len_bytes());
        let mut bytes = [9; 8];
        seen.note("read", file.read_at(&mut bytes, 0));
        seen.note("what", Ok(bytes));
        directory.remove("p").unwrap();
    }
}

fn transfers<D: Directory>(directory: &D, seen: &mut Seen) {
    for access in [Access::Buffered, Access::Direct] {
        for durability in [Durability::None, Durability::ODsync] {
            let how = OpenFile::new_file().access(access).durability(durability);
            let file = directory.open("e", &how).unwrap();
            for (number, kind) in [(1, SyncKind::All), (2, SyncKind::Data)] {
                let (bytes, offset) = (block(number), 2 * u64::from(number) * 4096);
                seen.note("write", file.write_at(&bytes, offset));
                seen.note("write durably", file.write_dsync(&bytes, offset + 4096));
                seen.note("write nothing", file.write_at(&[], offset));
                seen.note("write nothing durably", file.write_dsync(&[], offset));
                seen.note("sync", file.sync(kind));
            }
            for number in 0..7 {
                let mut bytes = AlignedBuf::zeroed(8192);
                seen.note("read", file.read_at(&mut bytes, number * 4096));
                seen.note("what", Ok([bytes[0], bytes[4096]]));
            }
            seen.note("size", file.len_bytes());
            let to_read =
                directory.open("e", &OpenFile::existing().access(access).read_only()).unwrap();
            seen.note("write to what is for reading", to_read.write_at(&block(7), 0));
            seen.note("durably", to_read.write_dsync(&block(7), 0));
            seen.note("sync what is for reading", to_read.sync(SyncKind::All));
            directory.remove("e").unwrap();
        }
    }
}

fn story<D: Directory>(directory: &D) -> Vec<String> {
    let mut seen = Seen::default();
    names_and_sizes(directory, &mut seen);
    sizes_and_facts(directory, &mut seen);
    locks(directory, &mut seen);
    preparations(directory, &mut seen);
    transfers(directory, &mut seen);
    seen.0
}

#[test]
fn a_caller_cannot_tell_the_simulated_disk_from_the_real_one() {
    let real = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let on_the_system = story(&OsDirectory::open(real.path()).unwrap());
    for seed in 0..20 {
        let simulated = story(&SimDisk::new(seed, DiskOptions::default()).directory("/sim"));
        for (ours, theirs) in simulated.iter().zip(&on_the_system) {
            assert_eq!(ours, theirs, "seed {seed}");
        }
        assert_eq!(simulated.len(), on_the_system.len());
    }
    assert!(on_the_system.len() > 150, "{}", on_the_system.len());
}

/// Counts the calls, and refuses them while it is told to.
#[derive(Default)]
struct Refuses {
    is_refusing: AtomicBool,
    before: AtomicU64,
    after: AtomicU64,
}

impl Hook for Refuses {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if self.is_refusing.load(Ordering::Relaxed) {
            return Err(Error::invalid("call", "/sim", format!("{call:?}")));
        }
        self.before.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn after(&self) {
        self.after.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_caller_cannot_tell_a_directory_with_a_hook_from_one_without() {
    for seed in 0..5 {
        let plain = story(&SimDisk::new(seed, DiskOptions::default()).directory("/sim"));
        let hook = Arc::new(Refuses::default());
        let hooked = SimDisk::new(seed, DiskOptions::default()).directory("/sim");
        let hooked = hooked.hooked(Arc::clone(&hook));
        assert_eq!(story(&hooked), plain, "seed {seed}");
        let (before, after) =
            (hook.before.load(Ordering::Relaxed), hook.after.load(Ordering::Relaxed));
        assert!(before > 100 && after == before, "{before} calls began, {after} ended");
    }
}

#[test]
fn what_a_hook_refuses_does_not_reach_the_disk() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let hook = Arc::new(Refuses::default());
    let directory = disk.directory("/sim").hooked(Arc::clone(&hook));
    let file = directory.open("a", &OpenFile::new_file()).unwrap();
    file.write_at(b"there", 0).unwrap();
    let counted = disk.counters();
    hook.is_refusing.store(true, Ordering::Relaxed);
    assert!(
        directory.open("b", &OpenFile::new_file()).is_err() && directory.rename("a", "b").is_err()
    );
    assert!(directory.rename_new("a", "b").is_err() && directory.remove("a").is_err());
    assert!(directory.list().is_err() && directory.sync().is_err() && directory.lock("l").is_err());
    assert!(directory.locked_by("l").is_err() && file.check_takes_changes().is_err());
    assert!(
        file.set_len(1).is_err()
            && file.write_at(b"x", 0).is_err()
            && file.sync(SyncKind::All).is_err()
    );
    assert!(file.prepare(Preparation::Zeros, 4096).is_err() && file.read_at(&mut [0], 0).is_err());
    assert!(file.write_dsync(b"x", 0).is_err());
    assert_eq!(disk.counters(), counted);
    hook.is_refusing.store(false, Ordering::Relaxed);
    let mut bytes = [0; 5];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, directory.list().unwrap()), (b"there", vec!["a".to_owned()]));
}

#[test]
fn what_a_simulated_disk_does_not_have_it_says() {
    let disk = SimDisk::new(1, DiskOptions { has_direct: false, ..DiskOptions::default() });
    let directory = disk.directory("/d");
    let error = directory.open("a", &OpenFile::new_file().access(Access::Direct)).unwrap_err();
    assert!(error.to_string().contains("this file system has no O_DIRECT"), "{error}");
    for access in [Access::Seek, Access::Mmap, Access::Stream, Access::StreamGather] {
        assert!(
            directory.open("a", &OpenFile::new_file().access(access)).unwrap_err().is_unsupported()
        );
    }
    assert!(directory.list().unwrap().is_empty());
}
