//! What a statement of an article or a public thread is: its words, its source, the figure that it
//! is about, and the band in which that figure must lie.
//!
//! *Owns*: these types. *May not touch*: figures and answers. Each experiment's file has its
//! statements. They are in our words; a band is ours if the source has only words.

use inkstone_host::FallocateMode;

use crate::result::Judged;
use crate::rounds::Trial;
use crate::stats::EFFECT_MIN;
use crate::writing::Writing;

/// A statement that can be checked by running something.
#[derive(Debug)]
pub struct Statement {
    /// Its name, for `--only`.
    pub id: &'static str,
    /// The statement, in one sentence.
    pub says: &'static str,
    /// Where it was said.
    pub source: Source,
    /// Where the figure comes from.
    pub(crate) by: By,
    /// The band in which the figure must lie for the statement to hold.
    pub band: Band,
}

/// Where something was said.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// In one of the five articles; and more about that.
    Article(u8, &'static str),
    /// In an issue of this repository.
    Issue(&'static str, u32),
    /// On a page: its title and its link.
    Page(&'static str, &'static str),
}

impl Source {
    /// For people.
    pub fn words(self) -> String {
        match self {
            Self::Article(number, more) => {
                let title = match number {
                    1 => "Reading and writing files fast",
                    2 => "How to write a file faster",
                    3 => "fallocate in detail",
                    4 => "A check of article 2",
                    _ => "A single machine's disk I/O",
                };
                let more = if more.is_empty() { String::new() } else { format!(", {more}") };
                format!("article {number} ({title}){more}")
            }
            Self::Issue(repository, number) => format!("{repository}#{number}"),
            Self::Page(title, _) => title.into(),
        }
    }

    /// Its address, if it has one.
    pub fn link(self) -> Option<String> {
        match self {
            Self::Article(..) => None,
            Self::Issue(repository, number) => {
                Some(format!("https://github.com/{repository}/issues/{number}"))
            }
            Self::Page(_, link) => Some(link.into()),
        }
    }
}

/// The range in which a figure must lie, ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// The least.
    pub from: f64,
    /// The most; infinite if the statement names no limit.
    pub to: f64,
}

/// The least effect that counts as one, as everywhere in the lab.
pub(super) const FASTER: Band = Band::at_least(1.0 + EFFECT_MIN);
/// Of a statement that nothing here can check.
pub(super) const NO_BAND: Band = Band::at_least(1.0);

impl Band {
    /// `from` or more.
    pub const fn at_least(from: f64) -> Self {
        Self { from, to: f64::INFINITY }
    }

    /// From one to the other.
    pub const fn between(from: f64, to: f64) -> Self {
        Self { from, to }
    }

    /// Judges a figure with this interval.
    pub fn verdict(self, low: f64, high: f64) -> Judged {
        if low.is_nan() || high.is_nan() {
            Judged::CannotTell
        } else if low >= self.from && high <= self.to {
            Judged::Confirmed
        } else if high < self.from || low > self.to {
            Judged::Refuted
        } else {
            Judged::CannotTell
        }
    }

    /// `1.5 to 3`, `1.03 or more`, `0`.
    pub fn words(self) -> String {
        if self.to.is_infinite() {
            format!("{} or more", self.from)
        } else if self.from == self.to {
            self.from.to_string()
        } else if self.from == 0.0 {
            format!("{} or less", self.to)
        } else {
            format!("{} to {}", self.from, self.to)
        }
    }
}

/// Where ways of writing are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In the directory itself.
    Here,
    /// As in article 1: an ext4 with a journal that is made for this on a buffered loop device,
    /// side by side with the next (root).
    Journal,
    /// The same without a journal.
    NoJournal,
}

/// What is counted per commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Page faults of the writing thread.
    Faults,
    /// Flushes that this process sent.
    OwnFlushes,
    /// Requests handed to an io_uring worker.
    Punts,
    /// Reads of the file's own blocks.
    Reads,
    /// Writes of metadata, in a journal or outside it.
    Metadata,
    /// Writes of the journal that a commit waited for.
    JournalWrites,
    /// Their bytes.
    JournalKib,
    /// Bytes of all that commits wrote: data, journal, metadata.
    WrittenKib,
}

/// Where a figure comes from.
#[derive(Debug)]
pub(crate) enum By {
    /// How many times as fast a way is as another, side by side; with several others, as the
    /// nearest of them.
    Speed { ground: Ground, slow: &'static [Writing], fast: Writing },
    /// How many times as fast a way is without a journal as with one, on the two file systems of
    /// article 1 side by side.
    JournalTime { writing: Writing },
    /// How many times as much a commit counts with a journal as without one, on the same two.
    JournalCount { writing: Writing, what: Counted },
    /// What one commit costs.
    Count { ground: Ground, writing: Writing, what: Counted },
    /// How many times as much one way does as another, side by side: the result of this trial that
    /// has this name.
    Rate { run: fn() -> Trial, result: &'static str, slow: &'static str, fast: &'static str },
    /// The most that a way counts in a round.
    Most { run: fn() -> Trial, result: &'static str, way: &'static str },
    /// How many blocks of 512 B a call of fallocate adds to a file of 8 KiB.
    Blocks { mode: FallocateMode, len_bytes: u64 },
    /// Nothing that runs here: why, and which command shows it.
    Elsewhere(&'static str),
}

pub(super) const fn speed(ground: Ground, slow: &'static [Writing], fast: Writing) -> By {
    By::Speed { ground, slow, fast }
}

pub(super) const fn count(ground: Ground, writing: Writing, what: Counted) -> By {
    By::Count { ground, writing, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_judged_by_its_band() {
        let band = Band::between(1.5, 3.0);
        let said = [(1.6, 2.9), (3.1, 4.0), (1.0, 1.4), (1.4, 2.0), (2.0, 3.1), (f64::NAN, 2.0)];
        use Judged::{CannotTell, Confirmed, Refuted};
        let wanted = [Confirmed, Refuted, Refuted, CannotTell, CannotTell, CannotTell];
        assert_eq!(said.map(|(low, high)| band.verdict(low, high)), wanted);
        assert_eq!(Band::between(0.0, 0.0).verdict(0.0, 0.0), Confirmed);
        let words = [band, FASTER, Band::between(0.0, 0.1), Band::between(0.0, 0.0)];
        assert_eq!(words.map(Band::words), ["1.5 to 3", "1.03 or more", "0.1 or less", "0"]);
    }
}
