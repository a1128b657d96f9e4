//! Whether flushes covered what was acknowledged.
//!
//! *Owns*: the rule. *May not touch*: whose a request was (`attribution`).
//!
//! The rule, for each span: something was written for it, and every write that it needs was on the
//! medium before its end: it carried FUA, or a flush of the same disk, whoever asked for it, began
//! after the write was complete and ended before the end. A disk without a volatile cache needs no
//! flush.
//!
//! A device with several queues can have several flushes in progress, and the trace does not show
//! which of them has ended. A span whose flush may have ended in time counts neither as too early
//! nor as seen.

use std::collections::HashMap;

use inkstone_host::DeviceNumber;

use crate::result::DurableFinding;

use super::layer::Layer;
use super::requests::DeviceRequest;

/// Whether what a span needs was on the medium when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cover {
    /// Nothing was written for it.
    Nothing,
    /// A flush that covers it may have ended in time.
    Perhaps,
    /// It was.
    Surely,
    /// It was not, for this reason.
    Not(&'static str),
}

/// The flushes of each disk, by the time of their issue, and which of them served whom. A flush
/// empties the cache of the whole disk, whichever partition asked for it.
///
/// A flush serves all who asked since the one before was issued. One that nobody asked for in that
/// time was begun for the last of those before: it had asked when the flush before was already on
/// its way to the device.
#[derive(Debug, Default)]
pub(crate) struct Flushes(HashMap<DeviceNumber, OnDisk>);

#[derive(Debug, Default)]
struct OnDisk {
    issued: Vec<(u64, usize)>,
    /// In the order of the issues, which may overlap.
    ended_ns: Vec<u64>,
    /// By the time at which somebody asked, the flush that served it, as a place in `issued`.
    served: Vec<(u64, usize)>,
}

impl Flushes {
    /// Adds the next one.
    pub(crate) fn add(
        &mut self,
        index: usize,
        disk: Option<&DeviceNumber>,
        request: &DeviceRequest,
    ) {
        let Some(disk) = disk else { return };
        let on = self.0.entry(*disk).or_default();
        on.issued.push((request.issue_ns, index));
        let end_ns = request.complete_ns.unwrap_or(u64::MAX);
        let at = on.ended_ns.iter().rposition(|&other| other <= end_ns).map_or(0, |at| at + 1);
        on.ended_ns.insert(at, end_ns);
    }

    /// All that was asked for, by time: finds out which flush served which. `add` comes before.
    pub(crate) fn serve(&mut self, asked: impl Iterator<Item = (u64, DeviceNumber)>) {
        for (at_ns, disk) in asked {
            let Some(on) = self.0.get_mut(&disk) else { continue };
            let flush = on.issued.partition_point(|(issue_ns, _)| *issue_ns < at_ns);
            on.served.push((at_ns, flush));
        }
        for on in self.0.values_mut() {
            for at in (1..on.served.len()).rev() {
                let (mine, before) = (on.served[at].1, on.served[at - 1].1);
                let next = on.served.get(at + 1).map_or(on.issued.len(), |(_, flush)| *flush);
                if mine == before && mine + 1 < next {
                    on.served[at].1 += 1;
                }
            }
        }
    }

    /// The flush that served what was asked for at this time.
    pub(crate) fn for_ask(&self, disk: DeviceNumber, asked_ns: u64) -> Option<usize> {
        let on = self.0.get(&disk)?;
        let at = on.served.partition_point(|(at_ns, _)| *at_ns < asked_ns);
        let (_, flush) = on.served.get(at).filter(|(at_ns, _)| *at_ns == asked_ns)?;
        on.issued.get(*flush).map(|(_, index)| *index)
    }

    /// Those that were issued from this time on.
    fn from(&self, disk: DeviceNumber, time_ns: u64) -> impl Iterator<Item = usize> {
        let issued = self.0.get(&disk).map_or(&[][..], |on| &on.issued);
        let from = issued.partition_point(|(issue_ns, _)| *issue_ns < time_ns);
        issued[from..].iter().map(|(_, index)| *index)
    }

    /// When overlapping flushes end, the first completion may belong to any of them.
    fn first_end_ns(&self, disk: DeviceNumber, issue_ns: u64) -> Option<u64> {
        let ended = &self.0.get(&disk)?.ended_ns;
        ended.get(ended.partition_point(|&end_ns| end_ns <= issue_ns)).copied()
    }
}

/// Judges a span that ended at `end_ns` and needs these writes.
pub(crate) fn cover<'r>(
    needed: impl Iterator<Item = &'r DeviceRequest>,
    requests: &[DeviceRequest],
    flushes: &Flushes,
    layers: &[Layer],
    end_ns: u64,
) -> Cover {
    let mut all = Cover::Nothing;
    for write in needed {
        let Some(done_ns) = write.complete_ns.filter(|&done_ns| done_ns <= end_ns) else {
            return Cover::Not("a write was still under way");
        };
        let disk = &layers[write.layer].disks[write.disk];
        let Some(&number) = disk.numbers.first() else { continue };
        let mut this = Cover::Not("a write was not flushed");
        if !disk.volatile_cache || write.flags.fua {
            this = Cover::Surely;
        }
        for flush in flushes.from(number, done_ns).map(|index| &requests[index]) {
            if this == Cover::Surely || flush.issue_ns > end_ns {
                break;
            }
            let in_time = |ns: Option<u64>| ns.is_some_and(|ns| ns <= end_ns);
            if flush.overlapped {
                let first = flushes.first_end_ns(number, flush.issue_ns);
                this = if in_time(first) { Cover::Perhaps } else { this };
            } else if in_time(flush.complete_ns) {
                this = Cover::Surely;
            }
        }
        all = match (all, this) {
            (_, Cover::Not(why)) => return Cover::Not(why),
            (Cover::Perhaps, _) | (_, Cover::Perhaps) => Cover::Perhaps,
            _ => Cover::Surely,
        };
    }
    all
}

/// What the covers of all commits say together.
pub(crate) fn finding(covers: &[Cover]) -> DurableFinding {
    let sure = covers.iter().filter(|cover| **cover == Cover::Surely).count() as u64;
    let why = |cover: &Cover| match cover {
        Cover::Not(why) => Some(*why),
        Cover::Nothing => Some("nothing had been written"),
        Cover::Perhaps | Cover::Surely => None,
    };
    let mut early = covers.iter().enumerate().filter_map(|(at, cover)| Some((at, why(cover)?)));
    match early.clone().next() {
        None if sure == 0 && !covers.is_empty() => {
            let reason = "flushes of other processes overlapped with ours at every commit, and the \
                          trace does not show which one ended";
            DurableFinding::NotVisible { reason: reason.into() }
        }
        None => DurableFinding::Seen { commits: sure },
        Some((number, why)) => {
            let reason = format!(
                "{} of {} acknowledgements came too early (first: commit {number}, {why})",
                early.by_ref().count(),
                covers.len()
            );
            DurableFinding::NotCovered { reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use inkstone_host::TraceEvent;

    use super::super::requests::tests::*;
    use super::*;

    /// Of commits that end at these times.
    fn found(
        events: &[TraceEvent],
        acks: &[u64],
        volatile_cache: bool,
        one_flush: bool,
    ) -> DurableFinding {
        let mut layer = layer();
        (layer.disks[0].volatile_cache, layer.disks[0].one_flush) = (volatile_cache, one_flush);
        let layers = [layer];
        let requests = pair(events, &layers);
        let mut flushes = Flushes::default();
        for (index, request) in requests.iter().enumerate().filter(|(_, one)| one.is_flush()) {
            flushes.add(index, Some(&DISK), request);
        }
        let mut since_ns = 0;
        let covers = acks.iter().map(|&ack_ns| {
            let during = std::mem::replace(&mut since_ns, ack_ns + 1)..=ack_ns;
            let needed = requests.iter().filter(|one| one.is_write());
            let needed = needed.filter(|one| during.contains(&one.issue_ns));
            cover(needed, &requests, &flushes, &layers, ack_ns)
        });
        finding(&covers.collect::<Vec<_>>())
    }

    fn write(at: u64, rwbs: &str) -> [TraceEvent; 2] {
        sent(at, at + 5, 800, 8, rwbs)
    }

    fn flush(at: u64) -> [TraceEvent; 2] {
        sent(at, at + 5, 0, 0, "FF")
    }

    #[test]
    fn a_flush_of_its_disk_after_the_write_or_fua_covers_a_commit_and_nothing_else() {
        let overlapping = [
            issue(10, 800, 8, "WS"),
            issue(12, 0, 0, "FF"),
            complete(14, 800, 8, "WS"),
            complete(16, 0, 0, "FF"),
        ];
        for (events, volatile_cache, is_seen) in [
            ([write(10, "WS"), flush(20)].concat(), true, true),
            (write(10, "WFS").to_vec(), true, true),
            (write(10, "WS").to_vec(), false, true),
            (write(10, "WS").to_vec(), true, false),
            ([flush(1), write(10, "WS")].concat(), true, false),
            (overlapping.to_vec(), true, false),
            ([write(10, "WS"), flush(28)].concat(), true, false),
            (write(28, "WFS").to_vec(), true, false),
            (flush(20).to_vec(), true, false),
        ] {
            match found(&events, &[30], volatile_cache, true) {
                DurableFinding::Seen { commits: 1 } => assert!(is_seen, "{events:?}"),
                DurableFinding::NotCovered { .. } => assert!(!is_seen, "{events:?}"),
                other => panic!("{other:?} for {events:?}"),
            }
        }
    }

    #[test]
    fn flushes_that_overlap_are_no_proof_either_way() {
        let two_queues = |events: &[TraceEvent], acks: &[u64]| found(events, acks, true, false);
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
    fn each_commit_needs_its_own_and_a_flush_that_the_driver_gave_back_is_one() {
        let again = [issue(20, 0, 0, "FF"), issue(22, 0, 0, "FF"), complete(25, 0, 0, "FF")];
        let one = [&write(10, "WS")[..], &again, &write(40, "WS")].concat();
        let DurableFinding::NotCovered { reason } = found(&one, &[30, 60], true, true) else {
            panic!("covered")
        };
        assert!(reason.contains("1 of 2") && reason.contains("commit 1"), "{reason}");
        let both = [&one[..], &flush(50)].concat();
        let found = found(&both, &[30, 60], true, true);
        assert!(matches!(found, DurableFinding::Seen { commits: 2 }), "{found:?}");
    }
}
