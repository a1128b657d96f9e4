//! Every engine, on real files: what was written is there, what fails says so, and every buffer
//! comes back.
//!
//! *Owns*: files below cargo's temporary directory (which must be on a disk: tmpfs has no O_DIRECT
//! before Linux 6.6), and for one test a small tmpfs. *May not touch*: the crate's insides.

mod host_support;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use host_support::{can_run, temporary};
use inkstone_host::{
    Completion, EngineKind, LabEngine, LabFile, MAX_DEPTH, Mount, Operation, Request,
};
use inkstone_io::{
    Access, AlignedBuf, BLOCK_BYTES, Durability, File, NamedChoice, OpenFile, Persist, SyncKind,
};

const PERSISTS: [Persist; 4] =
    [Persist::Later, Persist::Dsync, Persist::Sync(SyncKind::All), Persist::Sync(SyncKind::Data)];
const BLOCK: u64 = BLOCK_BYTES as u64;

/// How a write becomes durable by this engine: only some do both in one request.
fn persists(kind: EngineKind) -> impl Iterator<Item = Persist> {
    let can_sync = !matches!(kind, EngineKind::Uring | EngineKind::Aio);
    PERSISTS.into_iter().filter(move |how| can_sync || !matches!(how, Persist::Sync(_)))
}

fn kinds() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.iter().copied()
}

/// Every engine with the two ways by which all of them open a file.
fn ways() -> impl Iterator<Item = (EngineKind, Access)> {
    kinds().flat_map(|kind| [(kind, Access::Buffered), (kind, Access::Direct)])
}

fn open(kind: EngineKind, depth: usize) -> LabEngine {
    LabEngine::open(kind, depth).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(temporary()).expect("a directory")
}

fn opened(directory: &Path, name: &str, how: OpenFile) -> Arc<LabFile> {
    Arc::new(LabFile::open(&directory.join(name), &how).expect("opened"))
}

fn new_file(directory: &Path, name: &str, access: Access) -> Arc<LabFile> {
    opened(directory, name, OpenFile::new_file().access(access))
}

/// Bytes that are different for every seed, and different within a block.
fn filled(len: usize, seed: u64) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(len);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in buffer.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    buffer
}

/// Whether the file consists of pieces that were [`filled`] with these seeds.
#[track_caller]
fn assert_holds(file: &LabFile, piece_bytes: usize, seeds: impl IntoIterator<Item = u64>) {
    let whole = fs::read(file.path()).expect("read");
    let mut pieces = whole.chunks(piece_bytes);
    for seed in seeds {
        let is_right = pieces.next() == Some(&filled(piece_bytes, seed)[..]);
        assert!(is_right, "{}: not the bytes of seed {seed}", file.path().display());
    }
    assert_eq!(pieces.next(), None);
}

fn write(buffer: AlignedBuf, offset: u64, persist: Persist) -> Operation {
    let len = buffer.len();
    Operation::Write { buffer, len, offset, persist }
}

fn read(buffer: AlignedBuf, offset: u64) -> Operation {
    let len = buffer.len();
    Operation::Read { buffer, len, offset }
}

fn request(token: u64, file: &Arc<LabFile>, operation: Operation) -> Request {
    Request { token, file: Arc::clone(file), operation }
}

fn run(engine: &mut LabEngine, file: &Arc<LabFile>, operation: Operation) -> Completion {
    engine.run(request(99, file, operation)).expect("the engine works")
}

/// Makes an operation for each of `count` blocks, in an order that is no order, with up to
/// `in_flight` at a time. Each must come back once, with its own buffer and its length.
fn run_blocks(
    engine: &mut LabEngine,
    file: &Arc<LabFile>,
    in_flight: usize,
    count: u64,
    make: impl Fn(u64) -> Operation,
) -> HashMap<u64, AlignedBuf> {
    assert_ne!(count % 37, 0, "37 must not divide the count");
    let mut waiting = (0..count).map(|number| number * 37 % count);
    let (mut addresses, mut back) = (HashMap::new(), HashMap::new());
    loop {
        while engine.in_flight() < in_flight {
            let Some(block) = waiting.next() else { break };
            let operation = make(block);
            if let Operation::Write { buffer, .. } | Operation::Read { buffer, .. } = &operation {
                addresses.insert(block, buffer.as_ptr().addr());
            }
            engine.submit(request(block, file, operation)).expect("taken");
        }
        let Some(completion) = engine.complete().expect("the engine works") else { break };
        let buffer = completion.buffer.expect("the buffer comes back");
        assert_eq!(addresses.remove(&completion.token), Some(buffer.as_ptr().addr()));
        assert_eq!(completion.result.expect("carried out"), buffer.len());
        back.insert(completion.token, buffer);
    }
    assert!(addresses.is_empty() && engine.in_flight() == 0);
    back
}

#[test]
fn what_every_engine_writes_it_reads_back() {
    let directory = directory();
    for (kind, access) in ways() {
        let plain = persists(kind).map(|persist| (persist, Durability::None));
        for (persist, durability) in plain.chain([(Persist::Later, Durability::ODsync)]) {
            let name = format!("{kind}-{access}-{persist:?}-{durability}");
            let how = OpenFile::new_file().access(access).durability(durability);
            let file = opened(directory.path(), &name, how);
            let mut engine = open(kind, 8);
            assert_eq!(engine.kind(), kind);
            // More than the depth, and the depth.
            for (in_flight, round) in [(20, 0), (8, 1)] {
                run_blocks(&mut engine, &file, in_flight, 64, |block| {
                    write(filled(BLOCK_BYTES, 64 * round + block), block * BLOCK, persist)
                });
            }
            let synced = run(&mut engine, &file, Operation::Sync(SyncKind::All));
            assert_eq!((synced.token, synced.result.expect("synced")), (99, 0));
            assert!(synced.buffer.is_none());
            assert_holds(&file, BLOCK_BYTES, 64..128);
            let back = run_blocks(&mut engine, &file, 20, 64, |block| {
                read(AlignedBuf::zeroed(BLOCK_BYTES), block * BLOCK)
            });
            let same = |block| back[&block][..] == filled(BLOCK_BYTES, 64 + block)[..];
            assert!((0..64).all(same), "{name}: as read");
        }
        let refused = LabEngine::open(kind, MAX_DEPTH + 1).expect_err("too deep");
        assert!(refused.to_string().contains("above the limit of 1024"), "{refused}");
    }
}

#[test]
fn only_as_much_of_a_buffer_is_written_as_was_asked_for() {
    let directory = directory();
    for (kind, access) in ways() {
        let file = new_file(directory.path(), &format!("{kind}-{access}"), access);
        let mut engine = open(kind, 1);
        let mut buffer = filled(16 * BLOCK_BYTES, 5);
        for (number, len) in [BLOCK_BYTES, 0, BLOCK_BYTES].into_iter().enumerate() {
            let (offset, persist) = (number as u64 * BLOCK, Persist::Dsync);
            let operation = Operation::Write { buffer, len, offset, persist };
            let completion = run(&mut engine, &file, operation);
            assert_eq!(completion.result.expect("written"), len);
            buffer = completion.buffer.expect("it comes back");
        }
        let whole = fs::read(file.path()).expect("read");
        let (first, rest) = whole.split_at(BLOCK_BYTES);
        assert_eq!(whole.len(), 3 * BLOCK_BYTES);
        assert!(first == &buffer[..BLOCK_BYTES] && rest[..BLOCK_BYTES] == [0; BLOCK_BYTES]);
        assert!(engine.complete().expect("it works").is_none());
    }
}

#[test]
fn dropping_an_engine_carries_out_what_it_took() {
    const BYTES: usize = 256 << 10;
    let directory = directory();
    for (kind, access) in ways() {
        let file = new_file(directory.path(), &format!("{kind}-{access}"), access);
        // Reads into memory that would be freed, too.
        for is_write in [true, false] {
            let mut engine = open(kind, 16);
            for number in 0..16 {
                let offset = number * BYTES as u64;
                let operation = match is_write {
                    true => write(filled(BYTES, number), offset, Persist::Dsync),
                    false => read(AlignedBuf::zeroed(BYTES), offset),
                };
                engine.submit(request(number, &file, operation)).expect("taken");
            }
            drop(engine);
            assert_holds(&file, BYTES, 0..16);
        }
    }
}

#[test]
fn what_fails_gives_its_token_and_buffer_back_and_names_path_and_offset() {
    let directory = directory();
    for (kind, access) in ways() {
        let name = format!("{kind}-{access}");
        let path = directory.path().join(&name);
        fs::write(&path, [7; 8192]).expect("written");
        let how = OpenFile::existing().access(access);
        let read_only = opened(directory.path(), &name, how.read_only());
        let mut engine = open(kind, 4);
        for (token, persist) in (0..).zip(persists(kind)) {
            let buffer = filled(BLOCK_BYTES, token);
            let address = buffer.as_ptr();
            engine.submit(request(token, &read_only, write(buffer, 4096, persist))).expect("taken");
            let completion = engine.complete().expect("it works").expect("a completion");
            let back = completion.buffer.expect("it comes back").as_ptr();
            assert_eq!((completion.token, back), (token, address), "{kind}");
            let error = completion.result.expect_err("it cannot be written");
            assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{kind} {access} {persist:?}");
            assert_eq!((error.path(), error.offset()), (path.as_path(), Some(4096)), "{error}");
        }
        let file = opened(directory.path(), &name, how);
        let block = || AlignedBuf::zeroed(4096);
        let too_long = [
            Operation::Write { buffer: block(), len: 4097, offset: 0, persist: Persist::Later },
            Operation::Read { buffer: block(), len: 8192, offset: 0 },
        ];
        for operation in too_long {
            let completion = run(&mut engine, &file, operation);
            assert!(completion.buffer.is_some(), "{kind}");
            let error = completion.result.expect_err("refused").to_string();
            assert!(error.contains("bytes were asked for, the buffer has 4096"), "{error}");
        }
        // `u64::MAX` is not taken for "at the position".
        for offset in [u64::MAX, i64::MAX as u64] {
            let completion = run(&mut engine, &file, write(block(), offset, Persist::Later));
            completion.result.expect_err("no file reaches that far");
            assert!(completion.buffer.is_some(), "{kind}");
        }
        assert_eq!(fs::read(&path).expect("read"), [7; 8192]);
        // The engine works on.
        let completion = run(&mut engine, &file, write(block(), 0, Persist::Later));
        assert_eq!(completion.result.expect("written"), 4096, "{kind}");
    }
}

#[test]
fn engines_of_entries_refuse_what_they_do_not_do() {
    let directory = directory();
    for kind in kinds().filter(|kind| *kind != EngineKind::Caller) {
        for access in [Access::Seek, Access::Mmap, Access::Stream, Access::StreamGather] {
            let file = new_file(directory.path(), &format!("{kind}-{access}"), access);
            let mut engine = open(kind, 1);
            let operations = [
                write(AlignedBuf::zeroed(4096), 0, Persist::Later),
                Operation::Sync(SyncKind::All),
            ];
            for operation in operations {
                let error = run(&mut engine, &file, operation).result.expect_err("refused");
                let error = error.to_string();
                let names = [format!("engine {kind} "), format!("access {access} ")];
                assert!(names.iter().all(|name| error.contains(name)), "{error}");
            }
        }
        let file = new_file(directory.path(), &format!("{kind}"), Access::Buffered);
        if kind != EngineKind::UringLinked {
            let both = write(AlignedBuf::zeroed(4096), 0, Persist::Sync(SyncKind::All));
            let error = run(&mut open(kind, 1), &file, both).result.expect_err("refused");
            assert!(error.to_string().contains("syncs by a request of its own"), "{error}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_full_file_system_is_an_error_after_a_short_write() {
    const BYTES: usize = 64 << 10;
    if !can_run("a_full_file_system_is_an_error_after_a_short_write", &[]) {
        return;
    }
    let directory = directory();
    for (kind, persist) in kinds().flat_map(|kind| persists(kind).map(move |how| (kind, how))) {
        let options = format!("size={BYTES}");
        let tmpfs = Mount::new(Path::new("none"), directory.path(), "tmpfs", &options);
        let tmpfs = tmpfs.expect("a tmpfs");
        let file = new_file(directory.path(), "full", Access::Buffered);
        let mut engine = open(kind, 2);
        let completion = run(&mut engine, &file, write(filled(2 * BYTES, 5), 0, persist));
        assert!(completion.buffer.is_some());
        let error = completion.result.expect_err("no room");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{kind} {persist:?}: {error}");
        assert_eq!((error.path(), error.offset()), (file.path(), Some(0)), "{kind}: {error}");
        let written = file.len_bytes().expect("its length");
        assert!(written > 0 && written < 2 * BYTES as u64, "{kind}: {written} were written");
        drop((file, engine));
        // Nothing of the engine holds the file any more.
        tmpfs.unmount().expect("not in use");
    }
}
