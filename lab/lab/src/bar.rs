//! What no true bill can show: a commit that was promised durable without a flush, or fewer bytes
//! at the device than the commits wrote.
//!
//! *Owns*: the bar. *May not touch*: how requests are attributed. A bill that the bar forbids was
//! attributed wrongly or is a part of the whole (another disk, another log), and so nothing that is
//! read from it can be trusted: the row has no bill, and says why.

use crate::result::{Bill, Kind, Place};
use crate::writing::Writing;

/// btrfs keeps the first 2 KiB of a file in its metadata; less than this share is no such thing.
const CARRIED_MIN: f64 = 0.9;

/// Why this bill of the commits of `writing` cannot be true; `None` if nothing contradicts it.
pub(crate) fn contradiction(bill: &Bill, writing: &Writing, place: &Place) -> Option<String> {
    let is_bar = bill.commits > 0 && bill.lost_events == 0;
    if !is_bar || !writing.strategy.durability.claims_durable() {
        return None;
    }
    let has = |option: &str| place.mount_options.split(',').any(|one| one == option);
    let no_barriers = has("nobarrier") || has("barrier=0");
    let is_volatile = place.write_cache.as_deref() != Some("write through");
    let flushes = bill.of(&[Kind::Flush, Kind::ForeignFlush]).requests + bill.fua_writes;
    if is_volatile && !no_barriers && flushes < bill.commits {
        return Some(format!(
            "the trace has {flushes} flushes and FUA writes for {} commits, and each of them was \
             promised to be durable",
            bill.commits
        ));
    }
    let data: &[Kind] = match has("data=journal") {
        true => &[Kind::DataWrite, Kind::JournalWrite],
        false => &[Kind::DataWrite],
    };
    let (carried, wrote) = (bill.of(data).bytes, bill.commits * writing.write_bytes);
    ((carried as f64) < CARRIED_MIN * wrote as f64).then(|| {
        format!(
            "the trace has {carried} bytes of data on {}, and the commits wrote {wrote}",
            bill.device
        )
    })
}

/// Requests of a traced commit that may be its own and may be another's: writes of the kernel on a
/// file system that others use too, and flushes of which nobody knows for whom they were.
pub(crate) fn unknown_writes(bill: &Bill) -> u64 {
    bill.count(Kind::UnattributedWrite)
}

/// The flushes among them.
pub(crate) fn unknown_flushes(bill: &Bill) -> u64 {
    let flushes = bill.submitters.iter().filter(|one| one.what == Kind::ForeignFlush);
    flushes.filter(|one| one.who == "unknown").map(|one| one.tally.requests).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Tally;
    use crate::table::samples;

    fn said(change: impl Fn(&mut Bill, &mut Place)) -> Option<String> {
        let (mut bill, mut place) = (samples::traced(0, 1), samples::place());
        change(&mut bill, &mut place);
        contradiction(&bill, &Writing::named("reuse fdatasync").expect("a way"), &place)
    }

    fn set(bill: &mut Bill, kind: Kind, share: f64) {
        let commits = bill.commits as f64 * share;
        let tally = Tally { requests: commits as u64, bytes: (commits * 4096.0) as u64 };
        bill.requests.insert(kind, tally);
    }

    #[test]
    fn a_promise_without_a_flush_is_a_contradiction() {
        assert_eq!(said(|_, _| {}), None);
        // ext4 with fast_commit, as seen: 1 data write and 0.04 flushes a commit.
        let few = |bill: &mut Bill| set(bill, Kind::Flush, 0.04);
        assert!(said(|bill, _| few(bill)).is_some_and(|why| why.contains("81 flushes")));
        let through = |place: &mut Place| place.write_cache = Some("write through".into());
        assert_eq!(said(|bill, place| (few(bill), through(place)).1), None, "no cache to flush");
        let none = |place: &mut Place| place.mount_options = "rw,barrier=0".into();
        assert_eq!(said(|bill, place| (few(bill), none(place)).1), None, "it flushes nothing");
        assert_eq!(said(|bill, _| (few(bill), bill.fua_writes = bill.commits).1), None);
        let others = |bill: &mut Bill| set(bill, Kind::ForeignFlush, 1.0);
        assert_eq!(said(|bill, _| (few(bill), others(bill)).1), None, "another's covered it");
    }

    #[test]
    fn bytes_that_reach_no_device_are_a_contradiction() {
        // btrfs on one disk and on two, as seen: 0.00 data writes a commit, durable: yes.
        for share in [0.0, 0.5] {
            let part = |bill: &mut Bill, _: &mut Place| set(bill, Kind::DataWrite, share);
            assert!(said(part).is_some_and(|why| why.contains("bytes of data on loop0")));
        }
        let journal = |bill: &mut Bill, place: &mut Place| {
            set(bill, Kind::DataWrite, 0.0);
            set(bill, Kind::JournalWrite, 1.0);
            place.mount_options = "rw,data=journal".into();
        };
        assert_eq!(said(journal), None, "the journal has the data");
    }
}
