//! The names of the files in a log's directory.
//!
//! *Owns*: which name means what. *May not touch*: files.
//!
//! | name | what |
//! |---|---|
//! | `00000000000000000007.ink` | segment 7 |
//! | `00000000000000000003.free` | the blocks of the former segment 3, to be used again |
//! | `00000000000000000008.new` | a file that is being prepared, the eighth; it becomes the next segment, whatever its number |
//! | `inkstone.lock` | locked while a writer lives; names its process |
//! | `inkstone.room` | reserved room: released when a control group needs room on a full disk (`commit/room.rs`) |
//! | `inkstone.incomplete` | the directory holds an unfinished copy, which cannot be opened (`inspect/making.rs`) |
//! | `salvage.json` | beside a salvaged log: which LSN became which (`inspect/salvage.rs`) |
//!
//! Only `.ink` files are read as a log, so a half-prepared file never looks like a segment.

use inkstone_format::SegmentNumber;

/// The file that a writer locks.
pub(crate) const LOCK: &str = "inkstone.lock";

/// The file that keeps room for control groups.
pub(crate) const ROOM: &str = "inkstone.room";

/// The file that marks an unfinished copy in the directory.
pub(crate) const INCOMPLETE: &str = "inkstone.incomplete";

/// The optional file beside a salvaged log that says where its records come from.
pub(crate) const SALVAGE: &str = "salvage.json";

/// The kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    Segment(SegmentNumber),
    Free(SegmentNumber),
    New(SegmentNumber),
}

/// The kind of a file; `None` if the name is not one of ours.
pub(crate) fn parse(name: &str) -> Option<FileName> {
    let (digits, extension) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = SegmentNumber::new(digits.parse().ok()?)?;
    match extension {
        "ink" => Some(FileName::Segment(number)),
        "free" => Some(FileName::Free(number)),
        "new" => Some(FileName::New(number)),
        _ => None,
    }
}

/// The name of the segment with the highest number, of sorted names.
pub(crate) fn newest_segment(names: &[String]) -> Option<&str> {
    let mut newest_first = names.iter().rev().map(String::as_str);
    newest_first.find(|name| matches!(parse(name), Some(FileName::Segment(_))))
}

pub(crate) fn segment(number: SegmentNumber) -> String {
    format!("{:020}.ink", number.get())
}

pub(crate) fn free(number: SegmentNumber) -> String {
    format!("{:020}.free", number.get())
}

pub(crate) fn new(number: SegmentNumber) -> String {
    format!("{:020}.new", number.get())
}
