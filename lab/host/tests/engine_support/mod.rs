//! What the tests of engines share: engines, files, bytes, requests carried out.
//!
//! *Owns*: files below cargo's temporary directory. *May not touch*: what is expected of an engine.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]
#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use inkstone_host::{LabEngine, LabFile};
use inkstone_io::{
    Access, AlignedBuf, Completion, Engine, EngineKind, NamedChoice, OpenFile, Operation, Persist,
    Request, SyncKind,
};

pub(crate) const PERSISTS: [Persist; 4] =
    [Persist::Later, Persist::Dsync, Persist::Sync(SyncKind::All), Persist::Sync(SyncKind::Data)];

pub(crate) fn kinds() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.iter().copied()
}

pub(crate) fn entry_kinds() -> impl Iterator<Item = EngineKind> {
    kinds().filter(|kind| !matches!(kind, EngineKind::Caller | EngineKind::Pool))
}

pub(crate) fn open(kind: EngineKind, depth: usize) -> LabEngine {
    LabEngine::open(kind, depth).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn new_file(directory: &Path, name: &str, access: Access) -> Arc<LabFile> {
    Arc::new(LabFile::open(&directory.join(name), &OpenFile::new_file().access(access)).unwrap())
}

/// Bytes that are different for every seed, and different within a block.
pub(crate) fn filled(len: usize, seed: u64) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(len);
    fill(&mut buffer, seed);
    buffer
}

pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

/// `0..count` in an order that is no order.
pub(crate) fn shuffled(count: u64) -> Vec<u64> {
    assert_ne!(count % 37, 0, "37 must not divide the count");
    (0..count).map(|number| number * 37 % count).collect()
}

pub(crate) fn write(buffer: AlignedBuf, offset: u64, persist: Persist) -> Operation {
    let len = buffer.len();
    Operation::Write { buffer, len, offset, persist }
}

pub(crate) fn read(buffer: AlignedBuf, offset: u64) -> Operation {
    let len = buffer.len();
    Operation::Read { buffer, len, offset, then: None }
}

pub(crate) fn request(token: u64, file: &Arc<LabFile>, operation: Operation) -> Request<LabFile> {
    Request { token, file: Arc::clone(file), operation }
}

pub(crate) fn run(engine: &mut LabEngine, file: &Arc<LabFile>, operation: Operation) -> Completion {
    engine.run(request(99, file, operation)).unwrap()
}

pub(crate) fn block_seed(number: u64) -> u64 {
    1000 + number
}

/// Keeps up to `in_flight` requests under way, and checks that each comes back once, with its own
/// buffer and its length.
pub(crate) fn carry_out_all(
    engine: &mut LabEngine,
    file: &Arc<LabFile>,
    in_flight: usize,
    operations: Vec<(u64, Operation)>,
) -> HashMap<u64, AlignedBuf> {
    let mut addresses = HashMap::new();
    let mut back = HashMap::new();
    let mut waiting = operations.into_iter();
    loop {
        while engine.in_flight() < in_flight {
            let Some((token, operation)) = waiting.next() else { break };
            if let Operation::Write { buffer, .. } | Operation::Read { buffer, .. } = &operation {
                addresses.insert(token, buffer.as_ptr().addr());
            }
            engine.submit(request(token, file, operation)).unwrap();
        }
        let Some(completion) = engine.complete().unwrap() else { break };
        let buffer = completion.buffer.expect("the buffer comes back");
        assert_eq!(
            addresses.remove(&completion.token),
            Some(buffer.as_ptr().addr()),
            "the same buffer, once"
        );
        assert_eq!(completion.result.unwrap(), buffer.len());
        back.insert(completion.token, buffer);
    }
    assert!(addresses.is_empty());
    assert_eq!(engine.in_flight(), 0);
    back
}
