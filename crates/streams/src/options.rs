//! How streams are opened.
//!
//! *Owns*: the options, their defaults, their check. *May not touch*: files.

use inkstone::LogKind;

use crate::error::Result;
use crate::record::RESERVE_BYTES;
use crate::words::NOTE_BYTES_MAX;

/// The most bytes that name a page of a directory: a stream, a number and an LSN.
const PAGE_NAME_BYTES_MAX: u64 = 30;
/// A directory has at most this many times the bytes of its section: empty records in one batch.
const DIRECTORY_SHARE_MAX: u64 = 2;

/// Options for streams. The defaults fit most uses.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub(crate) log: inkstone::Options,
    pub(crate) section_bytes: u64,
    pub(crate) size_multiple: u32,
    pub(crate) cache_bytes: usize,
    pub(crate) own_mover: bool,
    /// The log has one stream, whose owner frees it.
    pub(crate) is_alone: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            log: inkstone::Options::default(),
            section_bytes: 64 << 20,
            size_multiple: 2,
            cache_bytes: 16 << 20,
            own_mover: true,
            is_alone: false,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Options of the log below: sizes, strategy, threads. `record_bytes_max` limits what one batch
    /// may hold; it must be at least 8 KiB. [`inkstone::Options::periodic`] applies to every
    /// stream.
    pub fn log(self, log: inkstone::Options) -> Self {
        Self { log, ..self }
    }

    /// How many bytes of the log share one directory, 64 MiB by default: best the size of a segment
    /// of the log. Smaller sections open faster, and each move copies less; each stream takes 16
    /// bytes of memory for every section that has records of it. If `record_bytes_max` of the log
    /// is small, sections are smaller than this, since one record names all pages of a directory.
    pub fn section_bytes(self, bytes: u64) -> Self {
        Self { section_bytes: bytes, ..self }
    }

    /// How many times the size of the live records the log may have, plus two sections: 2 by
    /// default. The live records of its oldest section are moved to its end before that, by the
    /// mover and, if it falls behind, by each append.
    pub fn size_multiple(self, multiple: u32) -> Self {
        Self { size_multiple: multiple, ..self }
    }

    /// How many bytes of the directories of older sections to cache: 16 MiB by default.
    pub fn cache_bytes(self, bytes: usize) -> Self {
        Self { cache_bytes: bytes, ..self }
    }

    /// Whether a background thread moves records: true by default. Without it the caller calls
    /// [`Streams::move_some`](crate::Streams::move_some), and appends move what is left undone.
    pub fn own_mover(self, own_mover: bool) -> Self {
        Self { own_mover, ..self }
    }

    /// For the owner of a log with one stream, who frees it by
    /// [`Streams::give_back`](crate::Streams::give_back), and on a full disk without a record: no
    /// record is moved, and neither an opening nor a close frees anything.
    #[doc(hidden)]
    pub fn alone(self) -> Self {
        Self { own_mover: false, is_alone: true, ..self }
    }

    /// The options of the log below.
    #[doc(hidden)]
    pub fn log_options(&self) -> &inkstone::Options {
        &self.log
    }

    /// The options, checked, and the section small enough that one record names all pages of its
    /// directory. A page takes at most a quarter of the largest record, and the names of the pages
    /// half of one. The log keeps one free segment, since its front is freed one segment at a time,
    /// and the end of each segment for what makes room on a full disk.
    ///
    /// # Errors
    /// Those of [`Options::check`].
    pub(crate) fn settled(self) -> Result<Self> {
        self.check()?;
        let most = self.pages_max() * (self.log.largest_record_bytes() as u64 / 4);
        let section_bytes = self.section_bytes.min(most / DIRECTORY_SHARE_MAX);
        let kept_bytes = self.kept_bytes_max();
        let log = self.log.free_segments_by_rule(1).kind_by_rule(LogKind::STREAMS);
        let log = log.keep_ends(kept_bytes);
        Ok(Self { section_bytes, log, ..self })
    }

    fn pages_max(&self) -> u64 {
        self.log.largest_record_bytes() as u64 / 2 / PAGE_NAME_BYTES_MAX
    }

    /// About how many bytes a page of a directory has.
    pub(crate) fn page_bytes(&self) -> usize {
        let least = self.section_bytes * DIRECTORY_SHARE_MAX / self.pages_max();
        let most = self.log.largest_record_bytes() / 4;
        ((self.step_bytes() / 8).max(least) as usize).min(most)
    }

    /// Housekeeping is spread out: one step for this many appended bytes.
    pub(crate) fn step_bytes(&self) -> u64 {
        (self.section_bytes / 64).clamp(512, 64 << 10)
    }

    /// What is kept at the end of a segment (`house/kept.rs`), at the most: so little that the bound
    /// of the disk holds, whatever the segments are.
    fn kept_bytes_max(&self) -> u64 {
        match self.is_alone {
            true => 0,
            false => (self.log.largest_segment_bytes() / 32).clamp(16 << 10, 2 << 20),
        }
    }

    /// Half of that is to empty all streams, at the most; very many take batches. The other half is
    /// for records that are moved, for openings, and for truncations that leave records.
    pub(crate) fn kept_half_bytes(&self) -> u64 {
        self.kept_bytes_max() / 2
    }

    /// # Errors
    /// [`inkstone::Error::Invalid`].
    fn check(&self) -> Result<()> {
        // With what the log keeps for streams.
        self.log.clone().keep_ends(self.kept_bytes_max()).check()?;
        let invalid = |why: String| Err(inkstone::Error::Invalid(why).into());
        let least = 2 * (NOTE_BYTES_MAX + RESERVE_BYTES);
        let bytes = self.log.largest_record_bytes();
        if bytes < least {
            return invalid(format!("record_bytes_max {bytes}: streams need at least {least}"));
        }
        if self.section_bytes < 16 << 10 || self.section_bytes > 1 << 31 {
            return invalid(format!(
                "section_bytes {}: a section has 16 KiB to 2 GiB",
                self.section_bytes
            ));
        }
        if self.size_multiple < 2 {
            return invalid(format!(
                "size_multiple {}: below 2 the log would move live records all the time",
                self.size_multiple
            ));
        }
        Ok(())
    }
}
