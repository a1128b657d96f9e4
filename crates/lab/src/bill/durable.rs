//! Whether what reached the device covers what was acknowledged.
//!
//! *Owns*: the rule. *May not touch*: how requests were found.
//!
//! The rule, for each commit: between the acknowledgement before and its own, something was written for it, and every
//! write of ours in that span was on the medium before the acknowledgement: it carried FUA, or a flush began after it
//! was complete and ended before the acknowledgement. A device without a volatile cache needs no flush.

use crate::pass::CommitSpan;
use crate::result::DurableFinding;

use super::requests::DeviceRequest;

/// Looks at every commit. `requests` are those of the file system's own device that belong to the commits' writes
/// (data and the journal's, caused by them), and all flushes; by time.
pub(crate) fn covered(
    commits: &[CommitSpan],
    requests: &[&DeviceRequest],
    volatile_cache: bool,
) -> DurableFinding {
    let mut uncovered = Vec::new();
    let mut next = 0;
    for (number, commit) in commits.iter().enumerate() {
        let from = next;
        while next < requests.len() && requests[next].issue_ns <= commit.ack_ns {
            next += 1;
        }
        if let Err(why) = one(&requests[from..next], commit.ack_ns, volatile_cache) {
            uncovered.push((number, why));
        }
    }
    match uncovered.first() {
        None => DurableFinding::Seen { commits: commits.len() as u64 },
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

fn one(requests: &[&DeviceRequest], ack_ns: u64, volatile_cache: bool) -> Result<(), &'static str> {
    let flushes = || requests.iter().filter(|request| request.is_flush());
    let mut writes = 0;
    for write in requests.iter().filter(|request| request.is_write()) {
        writes += 1;
        let Some(done_ns) = write.complete_ns.filter(|&done_ns| done_ns <= ack_ns) else {
            return Err("a write was still under way");
        };
        let flushed = |flush: &&&DeviceRequest| {
            flush.issue_ns >= done_ns && flush.complete_ns.is_some_and(|end_ns| end_ns <= ack_ns)
        };
        if volatile_cache && !write.flags.fua && !flushes().any(|flush| flushed(&flush)) {
            return Err("a write was not flushed");
        }
    }
    if writes == 0 { Err("nothing had been written") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::requests::{pair, tests::*};
    use super::*;

    fn finding(
        events: &[inkstone_io::host::TraceEvent],
        acks: &[u64],
        volatile_cache: bool,
    ) -> DurableFinding {
        let requests = pair(events, &[layer()]);
        let all: Vec<_> = requests.iter().collect();
        let commits: Vec<_> = acks.iter().map(|&ack_ns| CommitSpan { start_ns: 0, ack_ns }).collect();
        covered(&commits, &all, volatile_cache)
    }

    fn write(at: u64, rwbs: &str) -> [inkstone_io::host::TraceEvent; 2] {
        [issue(at, 800, 8, rwbs), complete(at + 5, 800, 8, rwbs)]
    }

    fn flush(at: u64) -> [inkstone_io::host::TraceEvent; 2] {
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
        assert!(matches!(finding(&write(28, "WFS"), &[30], true), DurableFinding::NotCovered { .. }));
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
