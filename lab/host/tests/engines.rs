//! Every engine, on real files: what was written is there, and every buffer comes back.
//!
//! *Owns*: files below cargo's temporary directory (which must be on a disk: tmpfs has no O_DIRECT
//! before Linux 6.6). *May not touch*: the crate's insides. What fails is in `engines_failing.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod engine_support;

use std::fs;
use std::sync::Arc;

use engine_support::*;
use inkstone_host::{LabEngine, LabFile};
use inkstone_io::engine::MAX_DEPTH;
use inkstone_io::{
    Access, AlignedBuf, BLOCK_BYTES, Durability, Engine, EngineKind, File, NamedChoice, OpenFile,
    Operation, Persist, Preparation, SyncKind, Then, ThenOn,
};

#[test]
fn what_every_engine_writes_it_reads_back() {
    const BLOCKS: u64 = 64;
    let directory = directory();
    for kind in kinds() {
        for access in [Access::Buffered, Access::Direct] {
            for (number, persist) in PERSISTS.into_iter().enumerate() {
                let file = new_file(directory.path(), &format!("{kind}-{access}-{number}"), access);
                let mut engine = open(kind, 8);
                assert_eq!(engine.kind(), kind);
                let offset = |block: u64| block * BLOCK_BYTES as u64;
                let writes = shuffled(BLOCKS).into_iter().map(|block| {
                    (block, write(filled(BLOCK_BYTES, block_seed(block)), offset(block), persist))
                });
                carry_out_all(&mut engine, &file, 8, writes.collect());
                let synced = run(&mut engine, &file, Operation::Sync(SyncKind::All));
                assert_eq!((synced.token, synced.result.unwrap()), (99, 0));
                assert!(synced.buffer.is_none());

                let reads = shuffled(BLOCKS)
                    .into_iter()
                    .map(|block| (block, read(AlignedBuf::zeroed(BLOCK_BYTES), offset(block))));
                let back = carry_out_all(&mut engine, &file, 8, reads.collect());
                let whole = fs::read(file.path()).unwrap();
                assert_eq!(whole.len(), BLOCKS as usize * BLOCK_BYTES);
                for block in 0..BLOCKS {
                    let expected = filled(BLOCK_BYTES, block_seed(block));
                    assert!(
                        back[&block][..] == expected[..],
                        "{kind} {access} {persist:?}: block {block} as read"
                    );
                    let at = block as usize * BLOCK_BYTES;
                    assert!(
                        whole[at..at + BLOCK_BYTES] == expected[..],
                        "{kind} {access} {persist:?}: block {block}"
                    );
                }
                assert!(engine.notice().is_none(), "{kind}: {:?}", engine.notice());
            }
        }
    }
}

#[test]
fn one_buffer_serves_again_and_again_and_only_its_front_is_written() {
    let directory = directory();
    for kind in kinds() {
        let file = new_file(directory.path(), kind.name(), Access::Direct);
        let mut engine = open(kind, 1);
        let mut buffer = AlignedBuf::zeroed(16 * BLOCK_BYTES);
        for round in 0..32_u64 {
            fill(&mut buffer, round);
            let operation = Operation::Write {
                buffer,
                len: BLOCK_BYTES,
                offset: round * BLOCK_BYTES as u64,
                persist: Persist::Sync(SyncKind::Data),
            };
            let completion = run(&mut engine, &file, operation);
            assert_eq!(completion.result.unwrap(), BLOCK_BYTES);
            buffer = completion.buffer.unwrap();
        }
        let whole = fs::read(file.path()).unwrap();
        assert_eq!(whole.len(), 32 * BLOCK_BYTES);
        for (round, block) in (0..).zip(whole.chunks(BLOCK_BYTES)) {
            assert!(
                block == &filled(16 * BLOCK_BYTES, round)[..BLOCK_BYTES],
                "{kind}: round {round}"
            );
        }
    }
}

#[test]
fn more_requests_than_the_depth_are_carried_out_too() {
    let directory = directory();
    for kind in kinds() {
        let file = new_file(directory.path(), kind.name(), Access::Buffered);
        let mut engine = open(kind, 2);
        let writes = shuffled(40).into_iter().map(|block| {
            (
                block,
                write(
                    filled(BLOCK_BYTES, block),
                    block * BLOCK_BYTES as u64,
                    Persist::Sync(SyncKind::All),
                ),
            )
        });
        carry_out_all(&mut engine, &file, 40, writes.collect());
        for (block, bytes) in (0..).zip(fs::read(file.path()).unwrap().chunks(BLOCK_BYTES)) {
            assert!(bytes == &filled(BLOCK_BYTES, block)[..], "{kind}: block {block}");
        }
        let refused = LabEngine::open(kind, MAX_DEPTH + 1).unwrap_err();
        assert!(refused.to_string().contains("above the limit of 1024"), "{refused}");
    }
}

/// The work on a read gets its bytes before the completion comes, and as many as were read; it is
/// not called if the read fails.
#[test]
fn what_is_to_be_done_with_bytes_is_done_before_their_completion() {
    let directory = directory();
    let path = directory.path().join("short");
    fs::write(&path, &filled(5000, 1)[..]).unwrap();
    for kind in kinds() {
        let file = Arc::new(LabFile::open(&path, &OpenFile::existing().read_only()).unwrap());
        let mut engine = open(kind, 2);
        for (offset, len) in [(0, 4096), (4096, 904), (8192, 0)] {
            let (tell, told) = std::sync::mpsc::channel();
            let then = Then::new(move |bytes, on| tell.send((bytes.to_vec(), on)).unwrap());
            let buffer = AlignedBuf::zeroed(4096);
            let completion = run(
                &mut engine,
                &file,
                Operation::Read { buffer, len: 4096, offset, then: Some(then) },
            );
            assert_eq!(completion.result.unwrap(), len, "{kind}");
            let (bytes, on) = told.try_recv().unwrap();
            let at = offset as usize;
            assert!(
                bytes.len() == len && (len == 0 || bytes == filled(5000, 1)[at..at + len]),
                "{kind}"
            );
            let own = kind == EngineKind::Pool;
            assert_eq!(on, if own { ThenOn::OwnThread } else { ThenOn::CallersThread }, "{kind}");
        }
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let then = Some(Then::new(move |_, _| tell.send(()).unwrap()));
        let too_long =
            Operation::Read { buffer: AlignedBuf::zeroed(4096), len: 8192, offset: 0, then };
        assert!(run(&mut engine, &file, too_long).result.is_err());
        assert_eq!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected), "{kind}");
    }
}

/// On threads of its own an engine has begun what came before, so that it may be waited for, with
/// fewer threads than requests too.
#[test]
fn what_is_done_on_own_threads_may_wait_for_what_came_before() {
    let directory = directory();
    let file = new_file(directory.path(), "whole", Access::Buffered);
    file.write_at(&filled(64 * 4096, 2), 0).unwrap();
    for threads in [1, 2, 8] {
        let mut engine = open(EngineKind::Pool, threads);
        let (first, mut before) = std::sync::mpsc::channel();
        first.send(0u64).unwrap();
        for token in 0..64 {
            let (hand_on, next) = std::sync::mpsc::channel();
            let before = std::mem::replace(&mut before, next);
            let then = Then::new(move |bytes, _| {
                hand_on.send(before.recv().unwrap() + u64::from(bytes[0])).unwrap()
            });
            let (buffer, offset) = (AlignedBuf::zeroed(4096), token * 4096);
            let operation = Operation::Read { buffer, len: 4096, offset, then: Some(then) };
            engine.submit(request(token, &file, operation)).unwrap();
        }
        while let Some(completion) = engine.complete().unwrap() {
            assert_eq!(completion.result.unwrap(), 4096);
        }
        let all: u64 = filled(64 * 4096, 2).chunks(4096).map(|block| u64::from(block[0])).sum();
        assert_eq!(before.recv(), Ok(all), "{threads} threads");
    }
}

#[test]
fn a_read_ends_with_the_file() {
    let directory = directory();
    let path = directory.path().join("short");
    fs::write(&path, &filled(5000, 1)[..]).unwrap();
    for kind in kinds() {
        for access in [Access::Buffered, Access::Direct] {
            let file = Arc::new(
                LabFile::open(&path, &OpenFile::existing().access(access).read_only()).unwrap(),
            );
            let mut engine = open(kind, 4);
            for (offset, len) in [(0, 5000), (4096, 904), (8192, 0), (1 << 40, 0)] {
                let completion = run(&mut engine, &file, read(AlignedBuf::zeroed(8192), offset));
                let count =
                    completion.result.unwrap_or_else(|error| panic!("{kind} {access}: {error}"));
                assert_eq!(count, len, "{kind} {access} at {offset}");
                let from = offset.min(5000) as usize;
                assert!(completion.buffer.unwrap()[..len] == filled(5000, 1)[from..from + len]);
            }
        }
    }
}

#[test]
fn nothing_to_write_is_no_error_and_syncs() {
    let directory = directory();
    for kind in kinds() {
        let file = new_file(directory.path(), kind.name(), Access::Buffered);
        let mut engine = open(kind, 1);
        for persist in PERSISTS {
            let operation =
                Operation::Write { buffer: AlignedBuf::zeroed(512), len: 0, offset: 0, persist };
            let completion = run(&mut engine, &file, operation);
            assert_eq!(
                (completion.result.unwrap(), completion.buffer.unwrap().len()),
                (0, 512),
                "{kind}"
            );
        }
        assert!(engine.complete().unwrap().is_none());
    }
}

#[test]
fn dropping_an_engine_carries_out_what_it_took() {
    const BYTES: usize = 256 << 10;
    let directory = directory();
    for kind in kinds() {
        for access in [Access::Buffered, Access::Direct] {
            let file = new_file(directory.path(), &format!("{kind}-{access}"), access);
            let mut engine = open(kind, 16);
            for number in 0..16_u64 {
                let operation = write(
                    filled(BYTES, number),
                    number * BYTES as u64,
                    Persist::Sync(SyncKind::Data),
                );
                engine.submit(request(number, &file, operation)).unwrap();
            }
            drop(engine);
            let whole = fs::read(file.path()).unwrap();
            assert_eq!(whole.len(), 16 * BYTES);
            for (number, piece) in (0..).zip(whole.chunks(BYTES)) {
                assert!(piece == &filled(BYTES, number)[..], "{kind} {access}: piece {number}");
            }
            // Reads into memory that would be freed, too.
            let mut engine = open(kind, 16);
            for number in 0..16_u64 {
                engine
                    .submit(request(
                        number,
                        &file,
                        read(AlignedBuf::zeroed(BYTES), number * BYTES as u64),
                    ))
                    .unwrap();
            }
        }
    }
}

#[test]
fn an_engine_goes_from_thread_to_thread_with_requests_in_flight() {
    let directory = directory();
    for kind in kinds() {
        for access in [Access::Buffered, Access::Direct] {
            let file = new_file(directory.path(), &format!("{kind}-{access}"), access);
            let mut engine = open(kind, 16);
            let mut done = 0;
            for round in 0..8_u64 {
                // The thread ends with its requests under way; the next one takes their
                // completions.
                engine = std::thread::scope(|scope| {
                    let file = &file;
                    let submitter = scope.spawn(move || {
                        for number in round * 16..(round + 1) * 16 {
                            let operation = write(
                                filled(16384, number),
                                number * 16384,
                                Persist::Sync(SyncKind::Data),
                            );
                            engine.submit(request(number, file, operation)).unwrap();
                        }
                        engine
                    });
                    submitter.join().unwrap()
                });
                while let Some(completion) = engine.complete().unwrap() {
                    let count = completion
                        .result
                        .unwrap_or_else(|error| panic!("{kind} {access}: {error}"));
                    assert_eq!(count, 16384);
                    done += 1;
                }
            }
            assert_eq!(done, 128, "{kind} {access}");
            for (number, piece) in (0..).zip(fs::read(file.path()).unwrap().chunks(16384)) {
                assert!(piece == &filled(16384, number)[..], "{kind} {access}: piece {number}");
            }
        }
    }
}

#[test]
fn buffers_freed_and_allocated_again_at_their_address_carry_their_own_bytes() {
    const BYTES: usize = 2 << 20;
    // Each buffer a mapping of its own: freeing it unmaps it, and the next one gets other pages,
    // often at its address. By itself the allocator would stop doing that after the first such
    // buffer. SAFETY: it sets a number inside the allocator.
    assert_eq!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10) }, 1);
    let directory = directory();
    for kind in kinds() {
        for access in [Access::Buffered, Access::Direct] {
            let path = directory.path().join(format!("{kind}-{access}"));
            let file = new_file(directory.path(), &format!("{kind}-{access}"), access);
            file.prepare(Preparation::Zeros, BYTES as u64).unwrap();
            let mut engine = open(kind, 4);
            let mut addresses = Vec::new();
            for round in 0..100_u64 {
                let buffer = filled(BYTES, round);
                addresses.push(buffer.as_ptr().addr());
                let completion = run(&mut engine, &file, write(buffer, 0, Persist::Later));
                assert_eq!(completion.result.unwrap(), BYTES);
                drop(completion.buffer);
                let expected = filled(BYTES, round);
                assert!(
                    fs::read(&path).unwrap() == expected[..],
                    "{kind} {access}: round {round} wrote other bytes"
                );
                // And a read must land in the buffer that was given, not in pages it had before.
                let completion = run(&mut engine, &file, read(AlignedBuf::zeroed(BYTES), 0));
                assert!(
                    completion.buffer.unwrap()[..] == expected[..],
                    "{kind} {access}: round {round} read elsewhere"
                );
            }
            addresses.sort_unstable();
            addresses.dedup();
            assert!(
                addresses.len() < 50,
                "the allocator gave no address again: the test shows nothing"
            );
        }
    }
}

#[test]
fn many_files_come_and_go() {
    let directory = directory();
    for kind in kinds() {
        let mut engine = open(kind, 4);
        let mut kept = Vec::new();
        for number in 0..200_u64 {
            let name = format!("{kind}-{number}");
            let file = new_file(directory.path(), &name, Access::Direct);
            let completion =
                run(&mut engine, &file, write(filled(4096, number), 0, Persist::Dsync));
            assert_eq!(completion.result.unwrap(), 4096, "{kind}");
            // Most are closed at once, so that their descriptor numbers and allocations are used
            // again.
            if number % 5 == 0 {
                kept.push(file);
            }
            assert!(
                fs::read(directory.path().join(&name)).unwrap() == filled(4096, number)[..],
                "{kind} {number}"
            );
        }
        for (number, file) in (0..).zip(&kept) {
            let operation = write(filled(4096, 1000 + number), 0, Persist::Dsync);
            assert_eq!(run(&mut engine, file, operation).result.unwrap(), 4096, "{kind}");
            assert!(
                fs::read(file.path()).unwrap() == filled(4096, 1000 + number)[..],
                "{kind} {number}"
            );
        }
        assert!(engine.notice().is_none(), "{kind}: {:?}", engine.notice());
    }
}

#[test]
fn more_bytes_than_a_ring_pins_are_written_all_the_same() {
    let directory = directory();
    for kind in kinds().filter(|kind| kind.is_uring()) {
        let file = new_file(directory.path(), kind.name(), Access::Direct);
        let mut engine = open(kind, 8);
        // 80 MiB each, alive together: the fourth needs the first one's place.
        let mut buffers: Vec<_> = (0..4).map(|number| filled(80 << 20, number)).collect();
        for (number, buffer) in (0..).zip(&mut buffers) {
            let owned = std::mem::replace(buffer, AlignedBuf::zeroed(1));
            let operation = Operation::Write {
                buffer: owned,
                len: 4096,
                offset: number * 4096,
                persist: Persist::Later,
            };
            let completion = run(&mut engine, &file, operation);
            completion.result.unwrap();
            *buffer = completion.buffer.unwrap();
        }
        // An ordinary user may be allowed to pin less than one of these: then it says so, and
        // writes all the same.
        if let Some(notice) = engine.notice() {
            assert!(notice.to_string().contains("RLIMIT_MEMLOCK"), "{kind}: {notice}");
        }
        for (number, block) in (0..).zip(fs::read(file.path()).unwrap().chunks(4096)) {
            assert!(block == &filled(80 << 20, number)[..4096], "{kind}: block {number}");
        }
    }
}

#[test]
fn files_opened_with_o_dsync_go_through_every_engine() {
    let directory = directory();
    for kind in kinds() {
        let how = OpenFile::new_file().access(Access::Direct).durability(Durability::ODsync);
        let file = Arc::new(LabFile::open(&directory.path().join(kind.name()), &how).unwrap());
        let mut engine = open(kind, 8);
        let writes = shuffled(16)
            .into_iter()
            .map(|block| (block, write(filled(4096, block), block * 4096, Persist::Later)));
        carry_out_all(&mut engine, &file, 8, writes.collect());
        for (block, bytes) in (0..).zip(fs::read(file.path()).unwrap().chunks(4096)) {
            assert!(bytes == &filled(4096, block)[..], "{kind}: block {block}");
        }
    }
}
