//! How predictable a durable write is (article 5): buffered and direct, alone, beside a neighbour
//! that fills the page cache, and across changes of segment.
//!
//! *Owns*: that load, and the strip of seconds. *May not touch*: the rounds.
//!
//! A round's value is the 99.9th percentile of its writes; the figures say where the rest lies, and
//! the strip shows in which parts of the time a way was slow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, File, OpenFile, SyncKind};

use crate::histogram::Recorder;
use crate::result::{Unit, Way, figure};
use crate::rounds::{Frame, Running, Sample, TakesTurns, Trial, Turn};
use crate::stage::{Session, WayError, incompressible};

use super::reading::can_direct;
use super::scratch::written_file;

const FILE: &str = "latency";
const NEIGHBOUR: &str = "latency-neighbour";
const BLOCK_BYTES: u64 = 4096;
/// A segment: 256 writes.
const SEGMENT_BYTES: u64 = 1 << 20;
/// The neighbour's rate, in pieces of 1 MiB, over a file that it begins again.
const NEIGHBOUR_BYTES_PER_S: u64 = 200_000_000;
const NEIGHBOUR_FILE_BYTES: u64 = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;
/// Parts of a strip.
const PARTS: usize = 24;

/// What happens beside the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Neighbour,
    Changes,
}

/// Each turn is measured for at most so long.
pub(super) fn latency(turn_s: u64) -> Trial {
    let room_bytes = 2 * SEGMENT_BYTES + NEIGHBOUR_FILE_BYTES;
    Trial::new("latency", (6, room_bytes, 24.0), move |scene| {
        let mut ways = Vec::new();
        for (beside, words) in [
            (Beside::Nothing, "alone"),
            (Beside::Neighbour, "beside a neighbour"),
            (Beside::Changes, "across changes of segment"),
        ] {
            for access in [Access::Buffered, Access::Direct] {
                let is_direct = access == Access::Direct;
                let can = if is_direct { can_direct(scene.site) } else { Ok(()) };
                let most = Duration::from_secs(turn_s);
                let work = can.map(|()| Writes::new(access, beside, most, scene.pace.seed));
                let kind = if is_direct { "direct" } else { "buffered" };
                ways.push(Running::new(format!("{kind}, {words}"), kind, None, work));
            }
        }
        let title =
            "4 KiB writes with fdatasync over a written file: the 99.9th percentile of a round";
        let frame = Frame::of("latency", title, Unit::TailNs, "buffered, alone");
        let mut found = scene.measure(frame, ways);
        found.notes = vec![
            "neighbour: a thread that writes 200 MB/s through the page cache, without a sync; \
             changes: each 1 MiB the next file is created, filled with zeros and synced while the \
             writer waits"
                .into(),
            format!(
                "strip: the slowest write of each of {PARTS} parts of the last round, from . (as \
                 fast as the median) to # (100 times as long)"
            ),
        ];
        for name in [FILE, NEIGHBOUR] {
            scene.session.clear(name)?;
        }
        Ok(vec![found])
    })
}

struct Writes {
    access: Access,
    beside: Beside,
    most: Duration,
    block: AlignedBuf,
    latency: Recorder,
    strip: String,
}

impl Writes {
    fn new(access: Access, beside: Beside, most: Duration, seed: u64) -> Self {
        let block = incompressible(BLOCK_BYTES as usize, seed);
        Self { access, beside, most, block, latency: Recorder::new(), strip: String::new() }
    }

    /// The file that is written next.
    fn segment(&self, session: &Session<'_>) -> Result<LabFile, WayError> {
        written_file(session, FILE, SEGMENT_BYTES, self.access, 1)
    }

    /// The times of the writes, with when each began.
    fn writes(&mut self, turn: &Turn<'_>) -> Result<Vec<(u64, u64)>, WayError> {
        let mut file = self.segment(turn.session)?;
        let begin_ns = monotonic_ns();
        let turn = Turn { time: turn.time.min(self.most), ..*turn };
        let end_ns = turn.end_ns(begin_ns);
        let (mut took, mut at, mut start_ns) = (Vec::new(), 0, begin_ns);
        while start_ns < end_ns || took.is_empty() {
            turn.session.check()?;
            if at == SEGMENT_BYTES {
                at = 0;
                if self.beside == Beside::Changes {
                    file = self.segment(turn.session)?;
                }
            }
            file.write_at(&self.block, at)?;
            file.sync(SyncKind::Data)?;
            let ack_ns = monotonic_ns();
            took.push((start_ns - begin_ns, ack_ns - start_ns));
            (at, start_ns) = (at + BLOCK_BYTES, ack_ns);
        }
        Ok(took)
    }
}

/// The neighbour writes at its rate until `stop` is set.
fn disturb(session: &Session<'_>, stop: &AtomicBool) -> Result<(), WayError> {
    let file = session.new_file(NEIGHBOUR, &OpenFile::new_file())?;
    let piece = incompressible(PIECE_BYTES, 7);
    let begin_ns = monotonic_ns();
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) && session.check().is_ok() {
        file.write_at(&piece, written % NEIGHBOUR_FILE_BYTES)?;
        written += PIECE_BYTES as u64;
        let due_ns = begin_ns + written * 1_000_000_000 / NEIGHBOUR_BYTES_PER_S;
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
    }
    Ok(())
}

impl TakesTurns for Writes {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        let stop = AtomicBool::new(false);
        let took = if self.beside == Beside::Neighbour {
            thread::scope(|scope| {
                let neighbour = scope.spawn(|| disturb(turn.session, &stop));
                let took = self.writes(turn);
                stop.store(true, Ordering::Relaxed);
                let gone = || WayError::Invalid("the neighbour's thread panicked".into());
                neighbour.join().map_err(|_| gone())??;
                took
            })?
        } else {
            self.writes(turn)?
        };
        // What is still in the page cache must not disturb the next way.
        turn.session.clear(NEIGHBOUR)?;
        let mut round = Recorder::new();
        took.iter().for_each(|(_, ns)| round.record(*ns));
        self.latency.merge(&round);
        let found = round.finish();
        self.strip = strip(&took, found.p50_ns);
        let figures = vec![
            figure("p50 of a round", Unit::Ns, found.p50_ns as f64),
            figure("p99 of a round", Unit::Ns, found.p99_ns as f64),
            figure("worst of a round", Unit::Ns, found.max_ns as f64),
        ];
        Ok(Sample::of(1, found.p999_ns).with(figures))
    }

    fn finish(&mut self, way: &mut Way, _: &mut Vec<String>) {
        way.latency = Some(self.latency.finish());
        way.facts = vec![("strip".into(), std::mem::take(&mut self.strip))];
    }
}

/// The slowest write of each part of the time, beside the median: `.` as fast, `#` 100 times as
/// long, `1` to `9` between, each about 1.6 times the one before.
fn strip(took: &[(u64, u64)], median_ns: u64) -> String {
    let last = took.last().map_or(1, |(start_ns, _)| start_ns + 1);
    let mut slowest = [0; PARTS];
    for &(start_ns, ns) in took {
        let part = (start_ns as usize * PARTS / last as usize).min(PARTS - 1);
        slowest[part] = ns.max(slowest[part]);
    }
    let mark = |ns: u64| match (ns as f64 / median_ns.max(1) as f64).log10() * 5.0 {
        _ if ns == 0 => '_',
        step if step < 1.0 => '.',
        step if step < 10.0 => char::from(b'0' + step as u8),
        _ => '#',
    };
    slowest.into_iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strip_shows_when_it_was_slow() {
        let steady: Vec<(u64, u64)> = (0..240).map(|n| (n * 100, 100)).collect();
        assert_eq!(strip(&steady, 100), ".".repeat(PARTS));
        let mut burst = steady;
        burst[15].1 = 10_000;
        burst[125].1 = 1_000;
        let shown = strip(&burst, 100);
        assert_eq!((shown.find('#'), shown.find('5')), (Some(1), Some(12)), "{shown}");
    }

    #[test]
    fn each_way_has_its_tail_and_its_strip() {
        let all = crate::experiment::testing::run(&latency(1), Some(Duration::from_millis(600)));
        let table = &all.expect("a result")[0];
        assert_eq!(table.ways.len(), 6);
        for way in table.ways.iter().filter(|way| way.is_measured()) {
            assert_eq!(way.facts[0].1.len(), PARTS, "{}", way.name);
            assert!(way.latency.as_ref().is_some_and(|latency| latency.count > 0), "{}", way.name);
        }
    }
}
