//! The buffers under the lock, and the counts that go with them.
//!
//! *Owns*: which buffer is being filled, waits, or is free; counts. *May not touch*: waiting and
//! waking; files.
//!
//! Every buffer is in one of four places: `current` (being filled), `queue` (full, in order), with
//! the output thread, `free`. From the output thread's buffer through `queue` to `current` the
//! numbers rise, so they are the total order of lines.

use std::collections::VecDeque;
use std::time::Duration;

use inkstone_io::Error;

use crate::buffer::{Buffer, Count, First, Sum};
use crate::notice::{Dropped, Stats};

/// Which thread may put lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Every thread may.
    Free,
    /// One puts a line longer than a buffer; the others wait.
    Taken,
    /// A line of a [`Stream`](crate::Stream) has not ended; closing ends it where it is.
    InPieces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// No more lines are taken; those taken are being written.
    Closed,
    /// The output thread has ended.
    Over,
}

/// What the output thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    Busy,
    /// It sleeps until something is due.
    Asleep,
    /// It sleeps until a line comes at all.
    Idle,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) life: Life,
    pub(crate) turn: Turn,
    pub(crate) activity: Activity,
    /// How long closing retries a failing disk, if not the builder's drain timeout.
    pub(crate) drain_timeout: Option<Duration>,
    /// The last line of the current buffer is not complete yet.
    pub(crate) goes_on: bool,
    pub(crate) current: Buffer,
    pub(crate) queue: VecDeque<Buffer>,
    pub(crate) free: Vec<Buffer>,
    writing: Option<Writing>,
    /// All buffers.
    pub(crate) count: usize,
    next_number: u64,
    /// Threads that wait for room.
    pub(crate) waiting: usize,
    /// Buffers up to this number are to be written now.
    pub(crate) flush_to: u64,
    /// Buffers up to this number are durable, or their only sync failed ([`State::sync_failure`]).
    pub(crate) durable_to: u64,
    /// The first abandoned buffer: neither it nor any later one will ever be written or durable.
    /// And what was written.
    abandoned: Option<(u64, Count)>,
    /// The first failed sync. It stays: the kernel reports such a failure once, and no later sync
    /// covers those lines.
    pub(crate) sync_failure: Option<Error>,
    /// Why writing fails at the moment.
    pub(crate) trouble: Option<Error>,
    /// Why there are fewer buffers than were asked for, until it is said.
    pub(crate) no_memory: Option<Error>,
    /// Without what is found out by [`State::stats`].
    pub(crate) stats: Stats,
    /// Of the dropped lines, those that notices count.
    told: Dropped,
}

/// The output thread's buffer.
#[derive(Debug, Clone, Copy)]
struct Writing {
    number: u64,
    /// What was written before it.
    before: Count,
}

impl State {
    /// Needs at least two buffers.
    pub(crate) fn new(mut free: Vec<Buffer>) -> Self {
        let count = free.len();
        // The first ones are reused first, so they stay in the processor's caches.
        free.reverse();
        let mut current = free.pop().expect("two buffers or more");
        current.claim(1, First::Line, Count::default());
        Self {
            life: Life::Open,
            turn: Turn::Free,
            activity: Activity::Busy,
            drain_timeout: None,
            goes_on: false,
            current,
            queue: VecDeque::with_capacity(count),
            free,
            writing: None,
            count,
            next_number: 2,
            waiting: 0,
            flush_to: 0,
            durable_to: 0,
            abandoned: None,
            sync_failure: None,
            trouble: None,
            no_memory: None,
            stats: Stats::default(),
            told: Dropped::default(),
        }
    }

    /// Whether a line that fits into the current buffer may be put there.
    #[inline]
    pub(crate) fn takes_lines(&self) -> bool {
        self.life == Life::Open && self.turn == Turn::Free
    }

    /// Whether the output thread slept; it counts as woken now.
    pub(crate) fn wake(&mut self) -> bool {
        std::mem::replace(&mut self.activity, Activity::Busy) != Activity::Busy
    }

    /// Puts a line if there is room for all of it; a line longer than a buffer goes into several.
    pub(crate) fn put(&mut self, line: &[u8], sum: Sum) -> bool {
        let capacity = self.current.capacity();
        if line.len() <= capacity {
            let has_room = line.len() <= self.current.room() || self.hand_over();
            if has_room {
                self.put_line(line, sum);
            }
            return has_room;
        }
        if line.len().div_ceil(capacity) > self.count {
            return false;
        }
        if !self.current.is_empty() {
            self.hand_over();
        }
        let has_room = self.current.is_empty() && self.has_ready(line.len().div_ceil(capacity) - 1);
        if has_room {
            self.put_pieces(line);
        }
        has_room
    }

    /// Moves the current buffer to the queue and takes a free one; false if there is none.
    pub(crate) fn hand_over(&mut self) -> bool {
        let first = if self.goes_on { First::Piece } else { First::Line };
        if !self.has_ready(1) {
            return false;
        }
        let Some(mut next) = self.free.pop() else { return false };
        let before = Count { lines: self.stats.lines, bytes: self.current.put_bytes() };
        next.claim(self.next_number, first, before);
        self.next_number += 1;
        self.queue.push_back(std::mem::replace(&mut self.current, next));
        true
    }

    /// Whether so many free buffers have their memory. Where there is none for another, the log
    /// goes on with those that have it.
    fn has_ready(&mut self, buffers: usize) -> bool {
        let next = self.free.iter_mut().rev().take(buffers);
        if let Some(error) = next.map(Buffer::ready).find_map(Result::err) {
            let all = self.free.len();
            self.free.retain(Buffer::is_ready);
            self.count -= all - self.free.len();
            self.no_memory = Some(error);
        }
        self.free.len() >= buffers
    }

    fn release(&mut self, mut buffer: Buffer) {
        buffer.release();
        self.free.push(buffer);
    }

    /// The oldest buffer that is not written (and may never be); everything before it is in the
    /// file or dropped.
    pub(crate) fn oldest(&self) -> u64 {
        let abandoned = self.abandoned.map(|(number, _)| number);
        let writing = || self.writing.map(|writing| writing.number);
        abandoned.or_else(writing).unwrap_or(self.next().number())
    }

    /// The buffer that is written next.
    fn next(&self) -> &Buffer {
        self.queue.front().unwrap_or(&self.current)
    }

    /// Whether the next bytes to write continue a line: then no file may end here.
    pub(crate) fn is_within_line(&self) -> bool {
        !self.next().begins()
    }

    /// Ends the line in pieces.
    pub(crate) fn end_pieces(&mut self) {
        self.goes_on = false;
        if self.current.is_empty() {
            // It ended with the previous buffer.
            self.current.begin_line();
        }
    }

    /// The last buffer that is not empty.
    pub(crate) fn newest(&self) -> u64 {
        self.current.number() - u64::from(self.current.is_empty())
    }

    #[inline]
    pub(crate) fn put_line(&mut self, line: &[u8], sum: Sum) {
        self.current.push(line, sum);
        self.stats.lines += 1;
    }

    /// Puts a line of several buffers at once, so that a kill leaves all of it or nothing: its
    /// first piece is published last. The current buffer is empty and there are enough free ones.
    fn put_pieces(&mut self, line: &[u8]) {
        let (first, rest) = line.split_at(self.current.capacity().min(line.len()));
        self.current.push_unpublished(first, self.current.sum_of(first));
        // Before the next buffer is taken.
        self.stats.lines += 1;
        let head = self.queue.len();
        self.goes_on = true;
        for piece in rest.chunks(self.current.capacity()) {
            let handed = self.hand_over();
            assert!(handed, "the caller counted the free buffers");
            self.current.push(piece, self.current.sum_of(piece));
        }
        self.goes_on = false;
        let first = self.queue.get_mut(head);
        first.unwrap_or(&mut self.current).publish();
    }

    /// Puts text of a stream, which ends the line that was begun first, if `is_begun`. It may end
    /// within a line. The caller has checked the room.
    pub(crate) fn put_text(&mut self, text: &[u8], sum: Sum, is_begun: bool) {
        let ended = text.iter().filter(|byte| **byte == b'\n').count() as u64;
        let goes_on = !text.ends_with(b"\n");
        let begun = ended + u64::from(goes_on) - u64::from(is_begun);
        self.current.push(text, sum);
        self.stats.lines += begun;
        self.goes_on = goes_on;
        self.turn = if goes_on { Turn::InPieces } else { Turn::Free };
    }

    pub(crate) fn drop_lines(&mut self, lines: u64, bytes: u64) {
        self.stats.dropped_lines += lines;
        self.stats.dropped_bytes += bytes;
    }

    /// Frees a written buffer.
    pub(crate) fn written(&mut self, buffer: Buffer) {
        self.writing = None;
        self.release(buffer);
    }

    /// A sync failed.
    pub(crate) fn not_durable(&mut self, error: &Error) {
        self.sync_failure.get_or_insert_with(|| error.clone());
    }

    /// Takes the buffer to write next.
    pub(crate) fn take_next(&mut self) -> Option<Buffer> {
        let buffer = self.queue.pop_front()?;
        self.writing = Some(Writing { number: buffer.number(), before: buffer.count(0) });
        Some(buffer)
    }

    /// Gives up writing, and does not release the buffers, since a stage file keeps them for the next
    /// start. `in_file`: what the files have of the output thread's buffer and all before it.
    pub(crate) fn abandon(&mut self, in_file: Option<Count>) {
        let next = self.next();
        let most = next.count(0);
        let bytes = in_file.map_or(most.bytes, |count| count.bytes);
        // A call may have had several line ends: so they may be as many as the calls, and still the
        // last call, which ends where the next buffer begins, is not in the file. It counts as not
        // written, or its stage would go. A call that goes on in the next buffer is not counted.
        let is_last_cut = next.begins() && bytes < most.bytes;
        let lines_most = most.lines.saturating_sub(u64::from(is_last_cut));
        let lines = in_file.map_or(lines_most, |count| count.lines.min(lines_most));
        self.abandoned = Some((self.oldest(), Count { lines, bytes }));
        self.writing = None;
        self.queue.clear();
        // A notice may be in one of them.
        self.told = Dropped::default();
    }

    /// All that is counted.
    pub(crate) fn stats(&self) -> Stats {
        let given_up = self.abandoned.map(|(_, written)| written);
        let before = || self.writing.map_or_else(|| self.next().count(0), |writing| writing.before);
        let written = given_up.unwrap_or_else(before);
        Stats {
            bytes: self.current.put_bytes(),
            written_lines: written.lines,
            written_bytes: written.bytes,
            unwritten_lines: given_up.map_or(0, |written| self.stats.lines - written.lines),
            ..self.stats
        }
    }

    /// Dropped lines that no notice counts yet.
    pub(crate) fn untold(&self) -> Dropped {
        let Stats { dropped_lines: lines, dropped_bytes: bytes, .. } = self.stats;
        Dropped { lines, bytes }.minus(self.told)
    }

    /// Puts a notice where the next line would go; false if there is no room now.
    pub(crate) fn put_notice(&mut self, notice: &[u8], told: Dropped) -> bool {
        if self.turn != Turn::Free || !self.current.is_empty() && !self.hand_over() {
            return false;
        }
        self.current.push_notice(notice);
        self.told = self.told.plus(told);
        true
    }
}
