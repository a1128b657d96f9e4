//! The names of the files in a log's directory.
//!
//! *Owns*: which name means what. *May not touch*: files.
//!
//! | name | what |
//! |---|---|
//! | `00000000000000000007.ink` | segment 7 |
//! | `00000000000000000003.free` | the blocks of what was segment 3, to be used again |
//! | `00000000000000000008.new` | a file whose blocks are being made, the eighth; it becomes the next segment there is |
//! | `inkstone.lock` | locked while a writer lives; it says which |
//! | `inkstone.room` | blocks that nobody uses: given up when a control group needs room on a full disk (`commit/room.rs`) |
//! | `inkstone.incomplete` | the directory holds a copy that has not ended: nothing opens it (`inspect/making.rs`) |
//! | `salvage.json` | beside a log that was salvaged: which LSNs became which (`inspect/salvage.rs`) |
//! | `inkstone.tuned` | the way of writing that `inkstone tune` chose (`strategy/tuned.rs`) |
//!
//! Only `.ink` files are ever read as a log, so nothing that is half prepared can look like a segment.

use inkstone_format::SegmentNumber;

/// The file that a writer locks.
pub(crate) const LOCK: &str = "inkstone.lock";

/// The file that keeps room for control groups.
pub(crate) const ROOM: &str = "inkstone.room";

/// The file that says that a copy into the directory has not ended.
pub(crate) const INCOMPLETE: &str = "inkstone.incomplete";

/// The file beside a salvaged log that says where it comes from, if whoever salvages wants one.
pub(crate) const SALVAGE: &str = "salvage.json";

/// What a file is by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    Segment(SegmentNumber),
    Free(SegmentNumber),
    New(SegmentNumber),
}

/// What a file is; `None` for a name that is none of ours.
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

pub(crate) fn segment(number: SegmentNumber) -> String {
    format!("{:020}.ink", number.get())
}

pub(crate) fn free(number: SegmentNumber) -> String {
    format!("{:020}.free", number.get())
}

pub(crate) fn new(number: SegmentNumber) -> String {
    format!("{:020}.new", number.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_what_it_means() {
        for number in [1, 7, u64::MAX].map(|number| SegmentNumber::new(number).expect("not 0")) {
            assert_eq!(parse(&segment(number)), Some(FileName::Segment(number)));
            assert_eq!(parse(&free(number)), Some(FileName::Free(number)));
            assert_eq!(parse(&new(number)), Some(FileName::New(number)));
        }
        for name in [
            "",
            "1.ink",
            "00000000000000000000.ink",
            "99999999999999999999.ink",
            LOCK,
            ROOM,
            INCOMPLETE,
            "inkstone.tuned",
            "a.b.ink",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
