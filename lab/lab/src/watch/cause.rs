//! Why the syncs of a file cost what they do, judged by the state of the written blocks, the file's
//! size, how it was written, and its bill.
//!
//! *Owns*: the causes, and their sentences. *May not touch*: how the facts were found.

use inkstone_io::CopyOnWrite;
use serde::Serialize;

use super::recording::{Place, SeenFile};
use super::syncs::How;
use super::tally::{Blocks, FileTally, SyncBill};

/// Why one sync costs what it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It writes over blocks that were written before.
    Overwrites,
    /// It overwrites, but `fsync` also makes the time stamps durable.
    TimeStamps,
    /// It overwrites, on ext4 without a journal, which writes the inode with each new time stamp.
    InodeInPlace,
    /// It overwrites, but the mount has the data itself in the journal.
    DataInJournal,
    /// It overwrites, but waits for the journal: another change of this file, or of another one, is
    /// in it.
    OthersJournal,
    /// It grows: new blocks, a new size.
    Grows,
    /// Its blocks are reserved within its size, and not written.
    Reserved,
    /// Its blocks are reserved beyond its end: it grows into them.
    ReservedBeyond,
    /// It has holes, which are filled.
    Holes,
    /// Such files are created and synced again and again.
    CreatedAgain,
    /// Its blocks are freed or shared with a clone, so it takes new ones again and again.
    TakenAgain,
    /// The file system writes data to a new place each time.
    CopyOnWrite,
    /// Its blocks are shared with another file.
    Shared,
    /// It is a directory: names change.
    Names,
    /// Nothing had changed since the last sync.
    NothingWritten,
    /// Its blocks could not be seen.
    #[default]
    Unknown,
}

impl Cause {
    /// Whether writing the blocks ahead of time would make it cheaper.
    pub fn is_about_blocks(self) -> bool {
        matches!(self, Self::Grows | Self::Reserved | Self::ReservedBeyond | Self::Holes)
    }

    /// The reason, to follow "because".
    fn reason(self) -> &'static str {
        match self {
            Self::Overwrites => "it writes over blocks that were written before",
            Self::TimeStamps => {
                "fsync and O_SYNC make the file's time stamps durable, too, and they changed"
            }
            Self::InodeInPlace => {
                "ext4 without a journal writes the inode whenever the time stamps in it changed, \
                 also where the blocks were written before, as they were for most syncs"
            }
            Self::DataInJournal => {
                "the mount writes the data itself to the journal first, and later to its place \
                 (data=journal)"
            }
            Self::OthersJournal => {
                "it had to wait for the journal, though its blocks were written before: for \
                 another change of it or of another file, which the trace does not show"
            }
            Self::Grows => "the file grows: new blocks and a new size are metadata",
            Self::Reserved => "its blocks are reserved and not written (fallocate)",
            Self::ReservedBeyond => {
                "it grows into blocks that are reserved beyond its end and not written \
                 (fallocate with KEEP_SIZE)"
            }
            Self::Holes => "it fills holes: blocks are allocated when they are first written",
            Self::CreatedAgain => {
                "a file is created and synced again and again: its name, its inode and its blocks \
                 are new each time"
            }
            Self::TakenAgain => {
                "its blocks are new each time: it is truncated, punched or cloned, and then \
                 written again"
            }
            Self::CopyOnWrite => {
                "the file system writes the trees that lead to the data to a new place each time, \
                 and the data, too, unless the file has `chattr +C`"
            }
            Self::Shared => "its blocks are shared with another file, so data goes to a new place",
            Self::Names => "it is a directory: names were created, renamed or removed",
            Self::NothingWritten => "nothing had changed since the sync before",
            Self::Unknown => "",
        }
    }
}

/// First writes of blocks are a cause if at least one of this many syncs has one, and so are time
/// stamps if so many waited for them: they change with each tick.
const FIRSTS_MIN: u64 = 50;
/// Waits for the journal are a cause from this share of the syncs on.
const OFTEN: f64 = 0.2;
/// Below this share of the syncs, waits for the journal are ignored.
const SELDOM: f64 = 0.005;

/// On ext4 without a journal: with more metadata writes than this for each first write of a
/// reserved block or of a hole, first writes are not the cause.
const INODES_MIN: f64 = 4.0;

/// Finds the cause of the syncs of a row: of one file, or of files that came and went.
pub fn cause(files: &[&SeenFile], place: Option<&Place>, tally: &FileTally, how: How) -> Cause {
    let SyncBill { syncs, waited, data_writes, journal_writes, metadata_writes, .. } = tally.bill;
    if data_writes + journal_writes + metadata_writes == 0.0 {
        return Cause::NothingWritten;
    }
    let Some(file) = files.first() else { return Cause::Unknown };
    if file.is_directory {
        return Cause::Names;
    }
    // Each of the files, or each of those that had the name, was created while it was watched.
    let births = files.iter().map(|file| file.births - 1 + u64::from(file.is_created)).sum::<u64>();
    let looks = files.iter().map(|file| file.looks).sum();
    if births > 2 && births * 4 > syncs.min(looks) {
        return Cause::CreatedAgain;
    }
    let Some(place) = place else { return Cause::Unknown };
    if place.copy_on_write == CopyOnWrite::Always && !place.layer.data_only.is_empty() {
        return Cause::CopyOnWrite;
    }
    let Blocks { unwritten, beyond, appended, hole, shared, unknown, at_end, .. } = tally.blocks;
    let (all, grew) = (tally.blocks.all(), tally.grew);
    // Not all at once, before these syncs.
    let grows = grew && at_end * 2 > all;
    let is_bare = place.is_bare();
    let has_log = place.layer.has_journal;
    let is_full = matches!(how, How::Fsync | How::RingFsync | How::Aio | How::SyncWrite);
    // The first write of a block is the expensive one, even if many cheap ones follow.
    let first = [
        (appended, Cause::Grows),
        (unwritten, Cause::Reserved),
        (beyond, Cause::ReservedBeyond),
        (hole, Cause::Holes),
        (shared, Cause::Shared),
    ];
    let firsts = appended + unwritten + beyond + hole + shared;
    // Of several small writes to a block only the first one finds it new.
    let firsts_each = firsts as f64 / all.max(1) as f64;
    let is_bare_inode = is_bare && metadata_writes >= OFTEN;
    // Of fsync and a file that does not grow, time stamps explain the other waits.
    let explains = !is_full || grows || firsts as f64 * 2.0 >= waited * all as f64;
    let dearest = first.into_iter().max_by_key(|(bytes, _)| *bytes).map(|(_, cause)| cause);
    match dearest {
        // The size stays, so the inode changes with the first writes, and with the time.
        Some(Cause::Reserved | Cause::Holes)
            if is_bare_inode && firsts_each * INODES_MIN < metadata_writes =>
        {
            Cause::InodeInPlace
        }
        // Where no sync waited for the journal, the blocks had been written ahead after all.
        Some(cause)
            if firsts > 0
                && firsts * FIRSTS_MIN >= all
                && explains
                && (waited >= SELDOM || !has_log) =>
        {
            cause
        }
        _ if all == 0 && grew => Cause::Grows,
        _ if all == 0 => Cause::Unknown,
        _ if unknown * 2 > all && grew => Cause::Grows,
        _ if unknown * 2 > all && file.before.is_some() && births <= 1 => Cause::TakenAgain,
        _ if unknown * 2 > all => Cause::Unknown,
        _ if waited >= OFTEN && grows => Cause::Grows,
        _ if waited >= OFTEN && place.layer.journals_data => Cause::DataInJournal,
        _ if waited * FIRSTS_MIN as f64 >= 1.0 && is_full => Cause::TimeStamps,
        _ if waited >= OFTEN => Cause::OthersJournal,
        _ if is_bare_inode => Cause::InodeInPlace,
        _ => Cause::Overwrites,
    }
}

/// The sentence: what one sync pays, why, and what it could pay.
pub fn why(name: &str, how: How, bill: &SyncBill, cause: Cause, place: Option<&Place>) -> String {
    let pays = format!("each {} of {name} pays {}", how.words(), words(bill));
    let mut sentence = match cause.reason() {
        "" => pays,
        reason => format!("{pays}, because {reason}"),
    };
    if cause.is_about_blocks() && (0.01..0.8).contains(&bill.waited) {
        sentence
            .push_str(&format!(": {:.0}% of the syncs wait for the journal", bill.waited * 100.0));
    }
    let flushes = place.is_none_or(|place| place.layer.flushes());
    let floor = match (place.is_some_and(Place::is_bare), flushes) {
        (true, true) => "1 data write, 1 flush, and a write of the inode when its time changed",
        (true, false) => "1 data write, and a write of the inode when its time changed",
        (false, true) => "1 data write and 1 flush",
        (false, false) => "1 data write",
    };
    // With data in the journal nothing is as cheap as that.
    let more = (bill.journal_writes + bill.metadata_writes >= 0.05 || bill.flushes >= 1.2)
        && place.is_none_or(|place| !place.layer.journals_data);
    if cause.is_about_blocks() && more {
        sentence.push_str(&format!("; over blocks that were written before it would pay {floor}"));
    } else if cause == Cause::TimeStamps && more {
        sentence.push_str(&format!("; fdatasync would pay {floor}"));
    }
    if place.is_some_and(|place| !place.layer.has_barriers) {
        sentence.push_str(". The mount has no barriers: a power loss can lose what was synced");
    }
    sentence
}

/// The bill of one sync in words, without its zeros.
pub fn words(bill: &SyncBill) -> String {
    let parts = [
        (bill.reads, "read", "reads"),
        (bill.data_writes, "data write", "data writes"),
        (bill.journal_writes, "journal write", "journal writes"),
        (bill.metadata_writes, "metadata write", "metadata writes"),
        (bill.flushes, "flush", "flushes"),
        (bill.fua, "of them FUA", "of them FUA"),
    ];
    let said: Vec<String> = parts
        .into_iter()
        .filter(|(count, ..)| *count >= 0.05)
        .map(|(count, one, many)| match count {
            count if (count - 1.0).abs() < 0.05 => format!("1 {one}"),
            count if (count - count.round()).abs() < 0.05 => format!("{count:.0} {many}"),
            count => format!("{count:.1} {many}"),
        })
        .collect();
    match said.split_last() {
        None => "nothing on the disk".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
