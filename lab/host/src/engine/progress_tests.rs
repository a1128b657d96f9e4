//! [`Progress`] against scripted answers: which step follows which answer, and what the completion
//! says.
//!
//! *Owns*: the scripts. *May not touch*: the kernel, but for an empty file that gives the requests
//! a path.

use super::*;
use Outcome::{Linked, One};
use inkstone_io::OpenFile;

static NAMES: CallNames = CallNames {
    engine: EngineKind::UringLinked,
    write: "write",
    write_dsync: "write dsync",
    read: "read",
    fsync: "fsync",
    fdatasync: "fdatasync",
};

fn progress_in(access: Access, operation: Operation) -> (tempfile::TempDir, Progress) {
    let directory = tempfile::tempdir().unwrap();
    let file =
        LabFile::open(&directory.path().join("f"), &OpenFile::new_file().access(access)).unwrap();
    (directory, Progress::new(Request { token: 7, file: Arc::new(file), operation }, &NAMES))
}

fn write(len: usize, offset: u64, persist: Persist) -> Progress {
    let buffer = AlignedBuf::zeroed(8192);
    progress_in(Access::Buffered, Operation::Write { buffer, len, offset, persist }).1
}

fn read(len: usize) -> Progress {
    progress_in(
        Access::Buffered,
        Operation::Read { buffer: AlignedBuf::zeroed(8192), len, offset: 100, then: None },
    )
    .1
}

fn span(start: usize, len: usize, offset: u64) -> Span {
    Span { start, len, offset }
}

fn os(code: i32) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(code))
}

/// Plays `script`: each step that is expected, and the answer to it. Then the request must be
/// finished.
fn play(mut progress: Progress, script: Vec<(Step, Outcome)>) -> Result<usize> {
    for (number, (step, outcome)) in script.into_iter().enumerate() {
        assert_eq!(progress.next_step(), step, "step {number}");
        progress.advance(outcome);
    }
    assert_eq!(progress.next_step(), Step::Finished);
    let has_buffer = progress.buffer().is_some();
    let completion = progress.into_completion();
    assert_eq!(completion.token, 7);
    assert_eq!(completion.buffer.is_some(), has_buffer);
    completion.result
}

fn plain(start: usize, len: usize, offset: u64) -> Step {
    Step::Write { span: span(start, len, offset), dsync: false, then: None }
}

fn then_sync(start: usize, len: usize, offset: u64) -> Step {
    Step::Write { span: span(start, len, offset), dsync: false, then: Some(SyncKind::Data) }
}

const SYNCED: Persist = Persist::Sync(SyncKind::Data);

#[test]
fn short_and_interrupted_writes_continue_where_they_stopped() {
    let script = vec![
        (plain(0, 8192, 512), One(os(libc::EINTR))),
        (plain(0, 8192, 512), One(Ok(4096))),
        (plain(4096, 4096, 4608), One(os(libc::EAGAIN))),
        (plain(4096, 4096, 4608), One(os(libc::ECANCELED))),
        (plain(4096, 4096, 4608), One(Ok(4096))),
    ];
    assert_eq!(play(write(8192, 512, Persist::Later), script).unwrap(), 8192);
}

#[test]
fn dsync_goes_with_every_attempt_and_names_its_error() {
    let step =
        |start, len| Step::Write { span: span(start, len, start as u64), dsync: true, then: None };
    let script = vec![(step(0, 8192), One(Ok(512))), (step(512, 7680), One(os(libc::EIO)))];
    let error = play(write(8192, 0, Persist::Dsync), script).unwrap_err();
    assert_eq!((error.operation(), error.raw_os_error()), ("write dsync", Some(libc::EIO)));
}

#[test]
fn an_error_after_a_short_write_names_the_request() {
    let script = vec![
        (plain(0, 8192, 4096), One(Ok(4096))),
        (plain(4096, 4096, 8192), One(os(libc::ENOSPC))),
    ];
    let error = play(write(8192, 4096, Persist::Later), script).unwrap_err();
    assert_eq!((error.operation(), error.offset()), ("write", Some(4096)));
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn a_sync_follows_a_write_that_an_engine_did_not_link() {
    let script = vec![
        (then_sync(0, 8192, 0), One(Ok(512))),
        (then_sync(512, 7680, 512), One(Ok(7680))),
        (Step::Sync(SyncKind::Data), One(os(libc::EINTR))),
        (Step::Sync(SyncKind::Data), One(Ok(0))),
    ];
    assert_eq!(play(write(8192, 0, SYNCED), script).unwrap(), 8192);
}

#[test]
fn a_failed_sync_after_a_write_is_the_failure_and_is_not_tried_again() {
    for code in [libc::EIO, libc::ENOSPC, libc::EAGAIN] {
        let script = vec![
            (then_sync(0, 8192, 0), One(Ok(8192))),
            (Step::Sync(SyncKind::Data), One(os(code))),
        ];
        let error = play(write(8192, 0, SYNCED), script).unwrap_err();
        assert_eq!((error.operation(), error.raw_os_error()), ("fdatasync", Some(code)));
    }
}

#[test]
fn a_linked_pair_is_done_in_one_step() {
    let script = vec![(then_sync(0, 8192, 0), Linked { write: Ok(8192), sync: Ok(0) })];
    assert_eq!(play(write(8192, 0, SYNCED), script).unwrap(), 8192);
}

#[test]
fn a_short_write_breaks_the_link_and_the_rest_is_linked_again() {
    let script = vec![
        (then_sync(0, 8192, 0), Linked { write: Ok(4096), sync: os(libc::ECANCELED) }),
        (then_sync(4096, 4096, 4096), Linked { write: os(libc::EINTR), sync: os(libc::ECANCELED) }),
        (then_sync(4096, 4096, 4096), Linked { write: Ok(4096), sync: Ok(0) }),
    ];
    assert_eq!(play(write(8192, 0, SYNCED), script).unwrap(), 8192);
}

#[test]
fn a_sync_that_ran_before_a_short_writes_rest_does_not_count() {
    let script = vec![
        (then_sync(0, 8192, 0), Linked { write: Ok(4096), sync: Ok(0) }),
        (then_sync(4096, 4096, 4096), Linked { write: Ok(4096), sync: Ok(0) }),
    ];
    assert_eq!(play(write(8192, 0, SYNCED), script).unwrap(), 8192);
}

#[test]
fn a_linked_sync_cancelled_after_a_whole_write_is_done_alone() {
    let script = vec![
        (then_sync(0, 8192, 0), Linked { write: Ok(8192), sync: os(libc::ECANCELED) }),
        (Step::Sync(SyncKind::Data), One(Ok(0))),
    ];
    assert_eq!(play(write(8192, 0, SYNCED), script).unwrap(), 8192);
}

#[test]
fn a_linked_sync_that_failed_is_never_hidden() {
    for written in [8192, 4096] {
        let script =
            vec![(then_sync(0, 8192, 0), Linked { write: Ok(written), sync: os(libc::EIO) })];
        let error = play(write(8192, 0, SYNCED), script).unwrap_err();
        assert_eq!((error.operation(), error.raw_os_error()), ("fdatasync", Some(libc::EIO)));
    }
}

#[test]
fn a_failed_write_of_a_linked_pair_is_the_failure() {
    let script = vec![(
        then_sync(0, 8192, 4096),
        Linked { write: os(libc::EBADF), sync: os(libc::ECANCELED) },
    )];
    let error = play(write(8192, 4096, SYNCED), script).unwrap_err();
    assert_eq!(
        (error.operation(), error.raw_os_error(), error.offset()),
        ("write", Some(libc::EBADF), Some(4096))
    );
}

#[test]
fn a_write_that_transfers_nothing_fails_and_more_than_asked_for_too() {
    for count in [0, 8193] {
        let script = vec![(plain(0, 8192, 0), One(Ok(count)))];
        play(write(8192, 0, Persist::Later), script).unwrap_err();
    }
}

#[test]
fn reads_continue_and_end_with_the_file() {
    let step = |start, len, offset| Step::Read { span: span(start, len, offset) };
    let script = vec![
        (step(0, 1000, 100), One(os(libc::EINTR))),
        (step(0, 1000, 100), One(Ok(300))),
        (step(300, 700, 400), One(Ok(0))),
    ];
    assert_eq!(play(read(1000), script).unwrap(), 300);
    assert_eq!(play(read(1000), vec![(step(0, 1000, 100), One(Ok(1000)))]).unwrap(), 1000);
    let error = play(read(1000), vec![(step(0, 1000, 100), One(os(libc::EIO)))]).unwrap_err();
    assert_eq!((error.operation(), error.offset()), ("read", Some(100)));
}

#[test]
fn a_sync_of_its_own_gives_no_bytes_and_no_buffer() {
    let (_directory, progress) = progress_in(Access::Buffered, Operation::Sync(SyncKind::All));
    assert_eq!(play(progress, vec![(Step::Sync(SyncKind::All), One(Ok(0)))]).unwrap(), 0);
    let (_directory, progress) = progress_in(Access::Buffered, Operation::Sync(SyncKind::All));
    let error = play(progress, vec![(Step::Sync(SyncKind::All), One(os(libc::EIO)))]).unwrap_err();
    assert_eq!(error.operation(), "fsync");
}

#[test]
fn nothing_to_write_makes_no_attempt_but_keeps_its_sync() {
    assert_eq!(play(write(0, 0, Persist::Later), vec![]).unwrap(), 0);
    assert_eq!(play(read(0), vec![]).unwrap(), 0);
    assert_eq!(
        play(write(0, 0, SYNCED), vec![(Step::Sync(SyncKind::Data), One(Ok(0)))]).unwrap(),
        0
    );
}

#[test]
fn what_cannot_work_is_refused_before_the_kernel_and_keeps_its_buffer() {
    let long = play(write(8193, 0, Persist::Later), vec![]).unwrap_err();
    assert!(long.to_string().contains("8193 bytes were asked for, the buffer has 8192"), "{long}");
    for offset in [u64::MAX, i64::MAX as u64] {
        let error = play(write(1, offset, Persist::Later), vec![]).unwrap_err();
        assert!(error.to_string().contains("beyond the largest file"), "{error}");
    }
    for access in [Access::Seek, Access::Mmap, Access::Stream, Access::StreamGather] {
        let (_directory, progress) = progress_in(access, Operation::Sync(SyncKind::All));
        let error = play(progress, vec![]).unwrap_err();
        assert!(error.to_string().contains(&format!("access {access} does not")), "{error}");
    }
}

#[test]
fn a_piece_that_is_not_the_last_is_not_linked() {
    // Sparse memory: zeroed pages that nobody touches cost nothing... but the allocator writes
    // aligned zeros, so only the bookkeeping is played here, over a transfer longer than any
    // buffer.
    let mut progress = write(8192, 0, SYNCED);
    progress.transfer = Transfer::new(MAX_ATTEMPT_BYTES + 1);
    assert_eq!(progress.next_step(), plain(0, MAX_ATTEMPT_BYTES, 0));
    progress.advance(One(Ok(MAX_ATTEMPT_BYTES)));
    assert_eq!(progress.next_step(), then_sync(MAX_ATTEMPT_BYTES, 1, MAX_ATTEMPT_BYTES as u64));
}
