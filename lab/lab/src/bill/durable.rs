//! Whether flushes covered everything that was acknowledged.
//!
//! *Owns*: the rule. *May not touch*: how requests were found.
//!
//! The rule, for each commit: between the previous acknowledgement and its own, something was
//! written, and every write of ours in that span was on the medium before the acknowledgement: it
//! carried FUA, or a flush began after the write was complete and ended before the acknowledgement.
//! A device without a volatile cache needs no flush.
//!
//! A device with several queues can have several flushes in progress, and the trace does not show
//! which of them has ended. A commit whose flush may have ended in time counts neither as too early
//! nor as seen.

use crate::pass::CommitSpan;
use crate::result::DurableFinding;

use super::requests::DeviceRequest;

/// How sure it is that a commit was covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// A flush that covers it may have ended in time.
    Perhaps,
    /// It was on the medium.
    Surely,
}

/// Checks every commit. `requests` are the writes of the commits to the file system's own device
/// (data, and the journal writes that they caused), and all flushes; by time.
pub(crate) fn covered(
    commits: &[CommitSpan],
    requests: &[&DeviceRequest],
    volatile_cache: bool,
) -> DurableFinding {
    let mut flush_ends_ns: Vec<u64> = requests
        .iter()
        .filter(|request| request.is_flush())
        .filter_map(|flush| flush.complete_ns)
        .collect();
    flush_ends_ns.sort_unstable();
    let mut uncovered = Vec::new();
    let (mut next, mut sure) = (0, 0);
    for (number, commit) in commits.iter().enumerate() {
        let from = next;
        while next < requests.len() && requests[next].issue_ns <= commit.ack_ns {
            next += 1;
        }
        match one(&requests[from..next], &flush_ends_ns, commit.ack_ns, volatile_cache) {
            Ok(Seen::Surely) => sure += 1,
            Ok(Seen::Perhaps) => {}
            Err(why) => uncovered.push((number, why)),
        }
    }
    match uncovered.first() {
        None if sure == 0 && !commits.is_empty() => {
            let reason = "flushes of other processes overlapped with ours at every commit, and the \
                          trace does not show which one ended";
            DurableFinding::NotVisible { reason: reason.into() }
        }
        None => DurableFinding::Seen { commits: sure },
        Some((number, why)) => {
            let reason = format!(
                "{} of {} acknowledgements came too early (first: commit {number}, {why})",
                uncovered.len(),
                commits.len()
            );
            DurableFinding::NotCovered { reason }
        }
    }
}

fn one(
    requests: &[&DeviceRequest],
    flush_ends_ns: &[u64],
    ack_ns: u64,
    volatile_cache: bool,
) -> Result<Seen, &'static str> {
    // When flushes overlap, the first completion may belong to any of them; after the last one all
    // have ended.
    let ended = |flush: &DeviceRequest| {
        let first = flush_ends_ns.partition_point(|&end_ns| end_ns <= flush.issue_ns);
        match (flush.overlapped, flush.complete_ns, flush_ends_ns.get(first)) {
            (false, Some(end_ns), _) if end_ns <= ack_ns => Some(Seen::Surely),
            (true, _, Some(&end_ns)) if end_ns <= ack_ns => Some(Seen::Perhaps),
            _ => None,
        }
    };
    let mut seen = None;
    for write in requests.iter().filter(|request| request.is_write()) {
        let Some(done_ns) = write.complete_ns.filter(|&done_ns| done_ns <= ack_ns) else {
            return Err("a write was still under way");
        };
        let flushes =
            requests.iter().filter(|request| request.is_flush() && request.issue_ns >= done_ns);
        let is_there = (!volatile_cache || write.flags.fua).then_some(Seen::Surely);
        let this = is_there.or_else(|| flushes.filter_map(|flush| ended(flush)).max());
        let this = this.ok_or("a write was not flushed")?;
        seen = Some(seen.map_or(this, |seen: Seen| seen.min(this)));
    }
    seen.ok_or("nothing had been written")
}

#[cfg(test)]
mod tests {
    use super::super::layer::Layer;
    use super::super::requests::{pair, tests::*};
    use super::*;

    fn finding(
        events: &[inkstone_host::TraceEvent],
        acks: &[u64],
        volatile_cache: bool,
    ) -> DurableFinding {
        let requests = pair(events, &[layer()]);
        let all: Vec<_> = requests.iter().collect();
        let commits: Vec<_> =
            acks.iter().map(|&ack_ns| CommitSpan { start_ns: 0, ack_ns }).collect();
        covered(&commits, &all, volatile_cache)
    }

    fn write(at: u64, rwbs: &str) -> [inkstone_host::TraceEvent; 2] {
        [issue(at, 800, 8, rwbs), complete(at + 5, 800, 8, rwbs)]
    }

    fn flush(at: u64) -> [inkstone_host::TraceEvent; 2] {
        [issue(at, 0, 0, "FF"), complete(at + 5, 0, 0, "FF")]
    }

    #[test]
    fn a_flush_after_the_write_covers_it() {
        let events = [write(10, "WS"), flush(20)].concat();
        assert!(matches!(finding(&events, &[30], true), DurableFinding::Seen { commits: 1 }));
    }

    #[test]
    fn what_does_not_cover() {
        let missing = write(10, "WS").to_vec();
        let before = [flush(1), write(10, "WS")].concat();
        let overlapping = [
            issue(10, 800, 8, "WS"),
            issue(12, 0, 0, "FF"),
            complete(14, 800, 8, "WS"),
            complete(16, 0, 0, "FF"),
        ];
        let late = [write(10, "WS"), flush(28)].concat();
        let nothing: Vec<_> = flush(20).to_vec();
        for events in [&missing[..], &before, &overlapping, &late, &nothing] {
            let found = finding(events, &[30], true);
            assert!(matches!(found, DurableFinding::NotCovered { .. }), "{found:?} for {events:?}");
        }
    }

    #[test]
    fn fua_or_no_cache_needs_no_flush() {
        assert!(matches!(finding(&write(10, "WFS"), &[30], true), DurableFinding::Seen { .. }));
        assert!(matches!(finding(&write(10, "WS"), &[30], false), DurableFinding::Seen { .. }));
        assert!(matches!(
            finding(&write(28, "WFS"), &[30], true),
            DurableFinding::NotCovered { .. }
        ));
    }

    #[test]
    fn flushes_that_overlap_are_no_proof_either_way() {
        let two_queues = |events: &[inkstone_host::TraceEvent], acks: &[u64]| {
            let requests = pair(events, &[Layer { one_flush: false, ..layer() }]);
            let all: Vec<_> = requests.iter().collect();
            let commits: Vec<_> =
                acks.iter().map(|&ack_ns| CommitSpan { start_ns: 0, ack_ns }).collect();
            covered(&commits, &all, true)
        };
        // Another process's flush is in progress when ours begins. Which one ends at 30?
        let [begun, ended] = write(10, "WS");
        let events = [
            begun,
            issue(12, 0, 0, "FF"),
            ended,
            issue(20, 0, 0, "FF"),
            complete(30, 0, 0, "FF"),
            complete(50, 0, 0, "FF"),
        ];
        assert!(matches!(two_queues(&events, &[40]), DurableFinding::NotVisible { .. }));
        assert!(
            matches!(two_queues(&events, &[25]), DurableFinding::NotCovered { .. }),
            "none has ended"
        );
        // The next commit has the device to itself.
        let later = [&events[..], &write(60, "WS"), &flush(70)].concat();
        assert!(matches!(two_queues(&later, &[40, 80]), DurableFinding::Seen { commits: 1 }));
    }

    #[test]
    fn a_flush_that_the_driver_gave_back_does_not_shift_those_behind_it() {
        let again = [issue(20, 0, 0, "FF"), issue(22, 0, 0, "FF"), complete(25, 0, 0, "FF")];
        let events = [&write(10, "WS")[..], &again, &write(40, "WS"), &flush(50)].concat();
        assert!(matches!(finding(&events, &[30, 60], true), DurableFinding::Seen { commits: 2 }));
    }

    #[test]
    fn each_commit_needs_its_own() {
        let events = [write(10, "WS"), flush(20), write(40, "WS")].concat();
        let DurableFinding::NotCovered { reason } = finding(&events, &[30, 50], true) else {
            panic!("covered")
        };
        assert!(reason.contains("1 of 2") && reason.contains("commit 1"), "{reason}");
    }
}
