//! Every engine, on real files: what fails says so, with path and offset, and every buffer comes
//! back.
//!
//! *Owns*: files below cargo's temporary directory, and for one test a mount of a small tmpfs, for
//! which it must be root. *May not touch*: the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod engine_support;

use std::fs;
use std::process::Command;
use std::sync::Arc;

use engine_support::*;
use inkstone_host::{LabFile, close_standard_descriptors, in_forked_child};
use inkstone_io::{
    Access, AlignedBuf, BLOCK_BYTES, Engine, File, NamedChoice, OpenFile, Operation, Persist,
    SyncKind,
};

#[test]
fn what_fails_gives_its_token_and_buffer_back_and_names_path_and_offset() {
    let directory = directory();
    for kind in kinds() {
        for access in [Access::Buffered, Access::Direct] {
            let path = directory.path().join(format!("{kind}-{access}"));
            fs::write(&path, [7; 8192]).unwrap();
            let file = Arc::new(
                LabFile::open(&path, &OpenFile::existing().access(access).read_only()).unwrap(),
            );
            let mut engine = open(kind, 4);
            for (token, persist) in (0..).zip(PERSISTS) {
                let buffer = filled(BLOCK_BYTES, token);
                let address = buffer.as_ptr();
                engine.submit(request(token, &file, write(buffer, 4096, persist))).unwrap();
                let completion = engine.complete().unwrap().unwrap();
                assert_eq!(
                    (completion.token, completion.buffer.unwrap().as_ptr()),
                    (token, address),
                    "{kind}"
                );
                let error = completion.result.unwrap_err();
                assert_eq!(
                    error.raw_os_error(),
                    Some(libc::EBADF),
                    "{kind} {access} {persist:?}: {error}"
                );
                assert_eq!(
                    (error.path(), error.offset()),
                    (path.as_path(), Some(4096)),
                    "{kind}: {error}"
                );
            }
            assert_eq!(fs::read(&path).unwrap(), [7; 8192]);
        }
    }
}

#[test]
fn a_request_longer_than_its_buffer_is_refused_and_gives_it_back() {
    let directory = directory();
    for kind in kinds() {
        let file = new_file(directory.path(), kind.name(), Access::Buffered);
        let mut engine = open(kind, 2);
        let (one, two) = (AlignedBuf::zeroed(4096), AlignedBuf::zeroed(4096));
        let addresses = [one.as_ptr(), two.as_ptr()];
        let operations = [
            Operation::Write { buffer: one, len: 4097, offset: 0, persist: Persist::Later },
            Operation::Read { buffer: two, len: 8192, offset: 0, then: None },
        ];
        for (operation, address) in operations.into_iter().zip(addresses) {
            let completion = run(&mut engine, &file, operation);
            assert_eq!(completion.buffer.unwrap().as_ptr(), address, "{kind}");
            let error = completion.result.unwrap_err().to_string();
            assert!(error.contains("bytes were asked for, the buffer has 4096"), "{kind}: {error}");
        }
        assert_eq!(file.len_bytes().unwrap(), 0);
        // The engine works on.
        let completion =
            run(&mut engine, &file, write(AlignedBuf::zeroed(4096), 0, Persist::Later));
        assert_eq!(completion.result.unwrap(), 4096, "{kind}");
    }
}

#[test]
fn an_offset_beyond_every_file_is_an_error() {
    let directory = directory();
    for kind in kinds() {
        let file = new_file(directory.path(), kind.name(), Access::Buffered);
        let mut engine = open(kind, 1);
        for offset in [u64::MAX, i64::MAX as u64] {
            let completion =
                run(&mut engine, &file, write(AlignedBuf::zeroed(4096), offset, Persist::Later));
            completion.result.expect_err("no file reaches that far");
            assert!(completion.buffer.is_some(), "{kind}");
        }
        assert_eq!(
            file.len_bytes().unwrap(),
            0,
            "{kind}: u64::MAX was taken for `at the position`"
        );
    }
}

#[test]
fn engines_of_entries_refuse_files_that_are_not_written_by_descriptor() {
    let directory = directory();
    for kind in entry_kinds() {
        for access in [Access::Seek, Access::Mmap, Access::Stream, Access::StreamGather] {
            let file = new_file(directory.path(), &format!("{kind}-{access}"), access);
            let mut engine = open(kind, 1);
            let completion =
                run(&mut engine, &file, write(AlignedBuf::zeroed(4096), 0, Persist::Later));
            assert!(completion.buffer.is_some());
            let text = completion.result.unwrap_err().to_string();
            assert!(
                text.contains(&format!("engine {kind} "))
                    && text.contains(&format!("access {access} ")),
                "{text}"
            );
            run(&mut engine, &file, Operation::Sync(SyncKind::All))
                .result
                .expect_err("a stream must be flushed first");
        }
    }
}

/// A small file system of its own, for as long as it lives.
struct SmallTmpfs {
    directory: tempfile::TempDir,
}

impl SmallTmpfs {
    const BYTES: usize = 64 << 10;

    fn mount() -> Option<Self> {
        let directory = directory();
        let options = format!("size={}", Self::BYTES);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "inkstone-test"]).arg(directory.path());
        match mount.output() {
            Ok(output) if output.status.success() => Some(Self { directory }),
            answer => {
                // Past the test harness, which hides what a passing test prints.
                let line = format!(
                    "\nNOT RUN: a test on a full file system: mounting a tmpfs needs root: {answer:?}\n"
                );
                let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
                None
            }
        }
    }

    fn unmount(self) {
        // A worker of the kernel may release the file a moment after it has posted its answer: that
        // is not a leak.
        let unmount =
            || Command::new("umount").arg(self.directory.path()).output().unwrap().status.success();
        let in_time = (0..50).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            unmount()
        });
        assert!(in_time, "something holds the file system");
        // Nothing is left to unmount; the directory itself goes with `tempfile`'s own care.
        let directory = self.directory.path().to_path_buf();
        std::mem::forget(self);
        fs::remove_dir(directory).unwrap();
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        // Only after a failed test; lazily, as something may still be open.
        let _ = Command::new("umount").arg("-l").arg(self.directory.path()).status();
    }
}

#[test]
fn a_full_file_system_is_an_error_after_a_short_write() {
    for kind in kinds() {
        for persist in PERSISTS {
            let Some(tmpfs) = SmallTmpfs::mount() else { return };
            {
                let file = new_file(tmpfs.directory.path(), "full", Access::Buffered);
                let mut engine = open(kind, 2);
                let buffer = filled(2 * SmallTmpfs::BYTES, 5);
                let address = buffer.as_ptr();
                let completion = run(&mut engine, &file, write(buffer, 0, persist));
                assert_eq!(completion.buffer.unwrap().as_ptr(), address);
                let error = completion.result.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{kind} {persist:?}: {error}");
                assert_eq!(
                    (error.path(), error.offset()),
                    (file.path(), Some(0)),
                    "{kind}: {error}"
                );
                let written = file.len_bytes().unwrap();
                assert!(
                    written > 0 && written < 2 * SmallTmpfs::BYTES as u64,
                    "{kind}: a short write of {written}"
                );
            }
            // Nothing of the engine holds the file any more.
            tmpfs.unmount();
        }
    }
}

#[test]
fn a_childs_engines_refuse_and_do_not_hang() {
    let directory = directory();
    let file = new_file(directory.path(), "a", Access::Buffered);
    let block = || write(filled(4096, 1), 0, Persist::Later);
    for kind in kinds() {
        let mut engine = open(kind, 4);
        run(&mut engine, &file, block()).result.unwrap();
        let mut engine = Some(engine);
        let child = in_forked_child(|| {
            let is_forked =
                |answer: inkstone_io::Result<_>| answer.is_err_and(|error| error.is_forked());
            let mut mine = engine.take().unwrap();
            let answer =
                mine.run(request(1, &file, block())).and_then(|completion| completion.result);
            drop(mine);
            // An engine of its own reads, and does not write what its parent has opened.
            let mut own = open(kind, 4);
            let own_write = run(&mut own, &file, block()).result;
            let has_read = run(&mut own, &file, read(AlignedBuf::zeroed(4096), 0)).result;
            let has_read = has_read.is_ok_and(|count| count == 4096);
            u8::from(is_forked(answer))
                + 2 * u8::from(is_forked(own_write))
                + 4 * u8::from(has_read)
        });
        assert_eq!(child.unwrap(), 7, "{kind}");
        run(&mut engine.take().unwrap(), &file, block()).result.unwrap();
    }
}

#[test]
fn no_engine_and_no_file_has_a_descriptor_of_the_first_three() {
    let directory = directory();
    let path = directory.path().join("a");
    fs::write(&path, b"a").unwrap();
    let code = in_forked_child(|| {
        close_standard_descriptors();
        let files: Vec<_> = Access::ALL
            .iter()
            .filter_map(|access| LabFile::open(&path, &OpenFile::existing().access(*access)).ok())
            .collect();
        let engines: Vec<_> = kinds().map(|kind| open(kind, 2)).collect();
        let taken = (0..3)
            .filter(|number| fs::read_link(format!("/proc/self/fd/{number}")).is_ok())
            .count() as u8;
        let opened =
            u8::from(files.len() == Access::ALL.len()) + u8::from(engines.len() == kinds().count());
        10 * taken + opened
    });
    assert_eq!(code.unwrap(), 2, "ten for each descriptor; one if a file was not opened");
}
