//! The settings of logs, how many bytes of the disk a log has, and what of it may be given back.
//!
//! *Owns*: the settings, the count of a log's bytes by id, and the sizes that follow from the bound.
//! *May not touch*: a log; manifests.

use std::collections::VecDeque;
use std::time::Duration;

use inkstone::inspect::look_in;
use inkstone::{AnyDirectory, Options};
use inkstone_io::OpenFile;
use slatedb::wal::WalError;

use crate::error::{internal, of_log};

/// A log has about so many segments. One is kept free, for an opening that finds the log full.
const SEGMENTS: u64 = 16;
/// Fewer are not enough: a memtable's rows fill two, and need two more where they begin and end;
/// there is one to append to, one that is kept free, and one for what is rounded.
const SEGMENTS_MIN: u64 = 7;

/// Settings of the logs.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// How the logs are opened. By default a write batch has at most 32 MiB. This crate sets
    /// `create`, `begin_at`, `owner`, `expect_durable` and `disk_budget_bytes` itself, and makes
    /// segments smaller than `segment_bytes` for a small bound. With [`crate::Wals::in_place`] the
    /// place gives files their mode, not `file_mode`.
    pub log: Options,
    /// How many bytes of the disk the files of one log may use: 1 GiB by default. A memtable is
    /// flushed when the log has a quarter of that of its rows, and what the tree has is given back
    /// when the log is full, also if a checkpoint refers to it. An append waits while neither is
    /// enough. It must be at least seven times the largest batch.
    pub log_bytes_max: u64,
    /// How long a new writer waits for a writer in another process that has the log open: 30 s by
    /// default. The other one closes when it sees that its manifest is fenced.
    pub fence_within: Duration,
    /// How long a put that finds the log full waits while the tree gets no rows: 5 minutes by
    /// default. After that SlateDB's flusher may have ended, and the put is an error.
    pub flush_within: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            log: Options::new().record_bytes_max(32 << 20),
            log_bytes_max: 1 << 30,
            fence_within: Duration::from_secs(30),
            flush_within: Duration::from_secs(300),
        }
    }
}

impl Tuning {
    /// The size of a full segment: a share of the bound, but a batch must fit.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let batch_bytes = self.log.largest_record_bytes() as u64;
        // With the index, which grows with the segment, and the room for control groups.
        let least = batch_bytes + batch_bytes / 256 + (128 << 10);
        let share = self.log_bytes_max / SEGMENTS / 4096 * 4096;
        self.log.largest_segment_bytes().min(share.max(least.next_multiple_of(4096)))
    }

    /// Refuses options of the log that contradict each other, and a bound that is too small for the
    /// largest batch.
    pub(crate) fn check(&self) -> Result<(), WalError> {
        self.log.check().map_err(of_log)?;
        let least = SEGMENTS_MIN * self.segment_bytes();
        if self.log_bytes_max >= least {
            return Ok(());
        }
        Err(internal(format!(
            "log_bytes_max {}: it must be at least {least}, {SEGMENTS_MIN} segments that can hold \
             the largest batch: raise it, or lower record_bytes_max, which is {}",
            self.log_bytes_max,
            self.log.largest_record_bytes()
        )))
    }

    /// A memtable is flushed once the log has so many bytes of its rows.
    pub(crate) fn flush_bytes(&self) -> u64 {
        self.log_bytes_max / 4
    }

    /// With more than this a log counts as full: beside it there are prepared and free files. The
    /// log itself would go on in ever smaller segments.
    pub(crate) fn full_bytes(&self) -> u64 {
        self.log_bytes_max - 4 * self.segment_bytes()
    }

    /// What is left of a log that is full: then an append seldom finds it full.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.full_bytes() - 2 * self.segment_bytes()
    }

    /// The options of an opening for writing that finds this log, of which the tree has the rows up
    /// to `tree_has`. The log was full if its writer ended while memtables were being flushed:
    /// SlateDB asks whether to flush another one only after an append, so there is room for one.
    /// After the bound was lowered, what the tree lacks is kept, and a large file in use stays.
    pub(crate) fn bounded(&self, held: &Held, tree_has: u64) -> Options {
        // The lock has a block, which the log does not count.
        let (most, one) = (self.log_bytes_max - 4096, self.segment_bytes());
        let lacking = held.bytes_after(tree_has);
        let in_use = held.parts.back().map_or(0, |(_, bytes)| *bytes);
        let budget = match lacking > most {
            true => lacking + 2 * one,
            false => (held.bytes() + one).clamp(most - one, most) + in_use.saturating_sub(one),
        };
        let options = self.log.clone().disk_budget_bytes(budget);
        // Large files would be kept, and used for nothing. Where there is more than the bound allows,
        // the log would use the surplus files again and again. So the next segment has a new file,
        // and before the log makes one, it removes what its budget has no room for.
        let is_large = held.parts.iter().any(|(_, bytes)| *bytes > one);
        match is_large || held.files_bytes > most {
            true => options.free_segments_max(0),
            false => options,
        }
    }
}

/// The bytes of a log's files, in parts: the last id of each, and its bytes.
#[derive(Debug, Default)]
pub(crate) struct Held {
    parts: VecDeque<(u64, u64)>,
    part_bytes_max: u64,
    /// Of all files that were there, also of those that are no segments.
    files_bytes: u64,
}

impl Held {
    /// What the log here has. Of a damaged log nothing: its opening says what is wrong.
    pub(crate) fn of(directory: &AnyDirectory, tuning: &Tuning) -> Self {
        let segments = look_in(directory.clone()).map_or(Vec::new(), |report| report.segments);
        let parts = segments.iter().map(|segment| (segment.last.get(), segment.file_bytes));
        let files = directory.list().unwrap_or_default();
        let bytes = files.iter().filter_map(|name| {
            directory.open(name, &OpenFile::existing().read_only()).ok()?.len_bytes().ok()
        });
        Self {
            parts: parts.collect(),
            part_bytes_max: tuning.log_bytes_max / 256,
            files_bytes: bytes.sum(),
        }
    }

    pub(crate) fn note(&mut self, id: u64, bytes: u64) {
        match self.parts.back_mut() {
            Some((last, sum)) if *sum + bytes <= self.part_bytes_max => {
                (*last, *sum) = (id, *sum + bytes);
            }
            _ => self.parts.push_back((id, bytes)),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_after(0)
    }

    /// The bytes of the ids after this one, and of some before it.
    pub(crate) fn bytes_after(&self, id: u64) -> u64 {
        let after = self.parts.iter().rev().take_while(|(last, _)| *last > id);
        after.map(|(_, bytes)| bytes).sum()
    }

    /// The first id to keep so that about so many bytes are left.
    pub(crate) fn first_to_keep(&self, most: u64) -> u64 {
        let (mut bytes, mut first) = (self.bytes(), 0);
        for (last, part) in &self.parts {
            if bytes <= most {
                break;
            }
            (bytes, first) = (bytes - part, last.saturating_add(1));
        }
        first
    }

    pub(crate) fn forget_before(&mut self, first: u64) {
        while self.parts.front().is_some_and(|(last, _)| *last < first) {
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_keep_leaves_what_is_asked_for_and_no_part_of_a_part() {
        let mut held = Held { part_bytes_max: 10, ..Held::default() };
        (1..=9).for_each(|id| held.note(id, 5));
        assert_eq!(held.bytes(), 45);
        assert_eq!(held.parts, [(2, 10), (4, 10), (6, 10), (8, 10), (9, 5)]);
        for (most, first) in [(100, 0), (45, 0), (44, 3), (25, 5), (5, 9), (4, 10)] {
            assert_eq!(held.first_to_keep(most), first, "{most}");
        }
        assert_eq!([held.bytes_after(4), held.bytes_after(5), held.bytes_after(9)], [25, 25, 0]);
        held.forget_before(5);
        assert_eq!(held.bytes(), 25);
    }

    #[test]
    fn a_bound_has_room_for_the_largest_batch() {
        let tuning = |bytes, batch| Tuning {
            log: Options::new().record_bytes_max(batch),
            log_bytes_max: bytes,
            ..Tuning::default()
        };
        for (bytes, batch, is_enough) in [
            (1 << 30, 32 << 20, true),
            (256 << 20, 32 << 20, true),
            (200 << 20, 32 << 20, false),
            (4 << 20, 256 << 10, true),
            (1 << 20, 256 << 10, false),
        ] {
            let tuning = tuning(bytes, batch);
            assert_eq!(tuning.check().is_ok(), is_enough, "{bytes}, {batch}");
            let sized = tuning.log.clone().segment_bytes(tuning.segment_bytes());
            sized.check().unwrap_or_else(|error| panic!("{bytes}, {batch}: {error}"));
        }
    }
}
