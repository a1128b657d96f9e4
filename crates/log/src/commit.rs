//! Group commit: many records become durable with one write and one flush.
//!
//! # The problem
//!
//! A record is durable when the device has flushed it, and a flush costs nearly the same for one
//! record as for a thousand. So callers that wait at the same time must share a flush. But a lone
//! caller must not wait for others that do not come, nor for another thread that would write for
//! it; and while one group is written, callers must be able to append to the next.
//!
//! # The outline
//!
//! There is one *open group*, to which records are added, in memory. An append takes the
//! state's lock, gets its LSN, and has its frame encoded straight into the buffer from which it
//! will be written; the payload's checksum was computed before, outside the lock.
//!
//! A caller that waits is counted as a waiter of the open group. The rule (`rule.rs`) knows how
//! many waiters to expect: those of the group that was just acknowledged, since they come back, and
//! those that came meanwhile. Whoever completes that number *leads*: it takes the turn, closes the
//! open group, and writes and flushes the group without the lock. Then it moves the watermark, ends
//! the turn, and wakes the waiters of that group, and one of the next, which leads or holds the timer. The first waiter of an open group holds a
//! timer of about one commit, in case the others do not come. A lone waiter expects only itself and
//! leads at once, on its own thread.
//!
//! ```text
//! append, append, wait ─┐
//! append, wait ─────────┼─> open group ── the last that is expected takes the turn
//! append, wait ─────────┘       │
//!                               └─> closed group ─> one write, one flush ─> watermark ─> wake
//! append, append, ... ────────────> the next open group, meanwhile
//! ```
//!
//! The log's own thread, the *committer*, leads for waiters that are no threads (futures and
//! callbacks) and for records without a waiter. A caller that finds the buffer full hands the
//! closed group and the turn to the committer, and goes on in the other buffer.
//!
//! The *turn* is the right to change the log on disk: to write a group, to roll to the next segment
//! or to cut. One thread has it at a time, and no thread waits for it with a lock held. In code it
//! is a value, `HeldTurn`, which owns the lock's guard: its methods write, roll and cut, and each
//! returns a plain `Result`.
//!
//! # The invariants
//!
//! - durable <= written <= appended. The watermark only rises, by groups whose flush has succeeded;
//!   `truncate_after` alone lowers it, after everything was made durable.
//! - One group is in flight. So a group that is found after a crash has no hole before it, and its
//!   promise is what was durable when it was closed.
//! - The outcome of a record is the watermark and the poison, never a flag that a later group could
//!   overwrite. The poison is set once, and the watermark never moves after it.
//! - A failed flush is never tried again. A refused *write* of a control group is, with the same
//!   bytes (`room.rs`).
//! - A group lies in one segment; a segment's end is durable before its successor's header.
//! - What is the user's (wakers, callbacks, the listener) runs with no lock held and outside of a
//!   turn.
//! - Threads are woken after the lock is released.
//!
//! # What was slower
//!
//! - More groups in flight: they only become smaller. Eight writers got 45,000 commits a second
//!   with one or two groups in flight, 42,000 with three and 40,000 with four; expecting those who
//!   come back made it 62,000 to 69,000.
//! - A thread that writes for everybody: the hand-off cost a lone writer 11 to 19%.
//! - Waking threads with the lock held: each asks for the lock at once, finds it taken and sleeps
//!   again. With 64 waiters that halved the rate.
//! - One condition variable for all groups: 64 threads got 85,000 commits a second, and 239,000
//!   with a bell for each of the two groups.
//! - Handing the guard of the state in and out of a function: it was copied, which cost a fifth of
//!   a small append. `HeldTurn` keeps it in one place.
//! - Waking the committer after each group, although it has a timer: a switch each time.
//! - Waking readers while the waiters of a group come back: on two processors that took a fifth of
//!   the rate of eight writers (`shared_page.rs`).
//!
//! The figures are from a throwaway commit path and from docs/results.md.
//!
//! # The files
//!
//! | file | owns |
//! |---|---|
//! | `open_group` | the buffer and its frames, and how a group is closed |
//! | `rule` | who leads, and when: pure |
//! | `writer` | one write and one flush |
//! | `trial` | which of two durable ways is faster here: pure |
//! | `sleepers` | how threads sleep, yield before it, and are woken |
//! | `tasks` | futures and callbacks |
//! | `shared_page` | publishing the watermark to readers in other processes |
//! | `state` | everything under the lock, and its guard |
//! | `shared` | the lock, the order of locks, the watermark, the poison |
//! | `turn` | the turn, with the guard |
//! | `room` | giving files back; writing where an overwrite needs room |
//! | `group` | closing and writing a group |
//! | `wait` | waiting for a record and for the turn |
//! | `following` | waiting for the watermark |
//! | `cuts` | what handles and followers learn of cuts |
//!
//! One durable append is read in `log.rs`, `open_group.rs`, `append.rs`, `wait.rs`, `rule.rs`,
//! `turn.rs`, `group.rs` and `writer.rs`. Waking is in `state.rs` (`Guard`) and `sleepers.rs`. The
//! system calls are in `file.rs` of `inkstone-io`.
//!
//! *Owns*: the open group, the turn, the writer, the watermark, waiting and waking. *May not
//! touch*: which segment comes next.

mod cuts;
pub(crate) mod following;
pub(crate) mod group;
pub(crate) mod open_group;
pub(crate) mod room;
pub(crate) mod rule;
pub(crate) mod shared;
pub(crate) mod shared_page;
pub(crate) mod sleepers;
pub(crate) mod state;
pub(crate) mod tasks;
pub(crate) mod trial;
pub(crate) mod turn;
pub(crate) mod wait;
pub(crate) mod writer;
