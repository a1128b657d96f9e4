//! A lone writer of durable 4 KiB: how predictable its writes are (E6, article 5), and what a
//! change of segment costs by where the next one comes from (E10, article 2).
//!
//! *Owns*: that writer, its segments, the neighbour. *May not touch*: the rounds.
//!
//! Every way renames or creates durably (the directory is synced) before it writes into the next
//! segment. A helper thread prepares files ahead and removes old ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, Directory, NamedChoice, OpenFile, Preparation, SyncKind};

use crate::histogram::Recorder;
use crate::result::{Unit, figure};
use crate::rounds::{Running, Sample, TakesTurns, Trial, Turn, timed};
use crate::stage::{Session, WayError, incompressible};
use crate::stats::median;
use crate::writing::size_name;

const BLOCK_BYTES: u64 = 4096;
/// Segments that a way has at the same time: the active one, the next, and those before.
const LIVE: u64 = 4;
const PREPARED: &str = "segment-next";
const NEIGHBOUR: &str = "neighbour";
/// The neighbour's rate, in pieces of 1 MiB, over a file that it begins again.
const NEIGHBOUR_BYTES_PER_S: u64 = 200_000_000;
const NEIGHBOUR_FILE_BYTES: u64 = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;

inkstone_io::named_choice! {
    /// Where the next segment comes from.
    Next, "way" {
        Same = "the same blocks", "there is no change";
        Create = "create on demand", "a new file, which grows with each write";
        Fill = "fill on demand", "a new file, filled with zeros while the writer waits";
        Ahead = "prepare ahead, rename",
            "a thread fills the next file with zeros before it is needed";
        Recycle = "recycle by rename", "the oldest file, renamed and overwritten";
    }
}

/// How predictable a write is: alone, beside a neighbour that fills the page cache, and across
/// changes. Each turn is measured for at most so long.
pub(super) fn latency(turn_s: u64) -> Trial {
    const SEGMENT_BYTES: u64 = 1 << 20;
    let needs = (2 * LIVE * SEGMENT_BYTES + NEIGHBOUR_FILE_BYTES, 24.0);
    let title = "4 KiB writes with fdatasync over a written file: the 99.9th percentile of a round";
    Trial::new(("latency", title), Unit::TailNs, needs, move |scene| {
        let mut ways = Vec::new();
        for (next, beside, words) in [
            (Next::Same, false, "alone"),
            (Next::Same, true, "beside a neighbour"),
            (Next::Fill, false, "across changes of segment"),
        ] {
            for (access, kind) in [(Access::Buffered, "buffered"), (Access::Direct, "direct")] {
                let block = incompressible(BLOCK_BYTES as usize);
                let writer = Writer {
                    beside,
                    most: Duration::from_secs(turn_s),
                    is_tail: true,
                    ..Writer::new(next, access, SEGMENT_BYTES, block)
                };
                let work = scene.site.can_open(access).map(|()| writer.takes_turns());
                ways.push(Running::new(format!("{kind}, {words}"), work));
            }
        }
        Ok(ways)
    })
    .note(
        "neighbour: a thread that writes 200 MB/s through the page cache, without a sync; changes: \
         each 1 MiB the next file is created, filled with zeros and synced while the writer waits",
    )
}

/// So many changes between segments of this size. With 1 MiB a segment has 256 writes, so the
/// 99.9th percentile is a change. Published are 16 changes of 64 MiB: 1 GiB.
pub(super) fn practice(segment_bytes: u64, changes: u64) -> Trial {
    const WAYS: [Next; 3] = [Next::Create, Next::Ahead, Next::Recycle];
    let title = format!(
        "A lone writer of durable 4 KiB (O_DIRECT if there is one, fdatasync) whose segments of {} \
         change",
        size_name(segment_bytes)
    );
    let needs = ((2 * LIVE * segment_bytes).max(256 << 20), 20.0);
    Trial::new(("practice", title), Unit::OperationsPerS, needs, move |scene| {
        let is_direct = scene.site.can_open(Access::Direct).is_ok();
        let access = if is_direct { Access::Direct } else { Access::Buffered };
        let way = |next: Next| {
            let block = incompressible(BLOCK_BYTES as usize);
            let writes = changes * segment_bytes / BLOCK_BYTES;
            let writer = Writer { writes, ..Writer::new(next, access, segment_bytes, block) };
            Running::of(next.name(), writer.takes_turns())
        };
        Ok(WAYS.map(way).into())
    })
    .note(
        "a change: the time from the last write of one segment until the next segment can take a \
         write; it is part of the latency of the write that waits for it",
    )
}

/// The writer's side of the helper thread: the segments that are not needed any more, and whether
/// the next one is ready.
struct Helper {
    old: Sender<String>,
    ready: Receiver<Result<(), WayError>>,
}

struct Writer {
    next: Next,
    access: Access,
    segment_bytes: u64,
    /// The most writes of a turn, and its longest time.
    writes: u64,
    most: Duration,
    /// Whether a neighbour writes beside it.
    beside: bool,
    /// Whether a round's value is the 99.9th percentile of its writes.
    is_tail: bool,
    block: AlignedBuf,
}

/// What was seen in a turn.
#[derive(Default)]
struct Counted {
    latency: Recorder,
    change_ns: Vec<f64>,
    /// How many changes had to wait for the helper.
    waited: u64,
    total_ns: u64,
}

impl Writer {
    fn new(next: Next, access: Access, segment_bytes: u64, block: AlignedBuf) -> Self {
        let (writes, most, beside, is_tail) = (u64::MAX, Duration::MAX, false, false);
        Self { next, access, segment_bytes, writes, most, beside, is_tail, block }
    }

    /// The file of segment `number`, ready to be written.
    fn change(
        &self,
        session: &Session<'_>,
        number: u64,
        helper: &Helper,
        counted: &mut Counted,
    ) -> Result<LabFile, WayError> {
        let name = segment(number);
        let gone = || WayError::Invalid("the helper thread has ended".into());
        match self.next {
            Next::Same | Next::Create => {}
            Next::Fill => prepare(session, &name, self.access, self.segment_bytes)?,
            Next::Ahead => {
                let answer = helper.ready.try_recv().or_else(|_| {
                    counted.waited += 1;
                    helper.ready.recv()
                });
                answer.map_err(|_| gone())??;
                session.directory.rename(PREPARED, &name)?;
            }
            Next::Recycle => session.directory.rename(&segment(number - LIVE), &name)?,
        }
        let is_new = self.next == Next::Create;
        let how = if is_new { OpenFile::new_file() } else { OpenFile::existing() };
        let file = session.directory.open(&name, &how.access(self.access))?;
        session.directory.sync()?;
        if self.next != Next::Recycle {
            helper.old.send(segment(number - LIVE)).map_err(|_| gone())?;
        }
        Ok(file)
    }

    fn run(&self, turn: &Turn<'_>, helper: &Helper) -> Result<Counted, WayError> {
        let per_segment = self.segment_bytes / BLOCK_BYTES;
        let (mut latency, mut counted) = (Recorder::new(), Counted::default());
        let how = OpenFile::existing().access(self.access);
        let mut file = turn.session.directory.open(&segment(LIVE - 1), &how)?;
        let turn = Turn { time: turn.time.min(self.most), ..*turn };
        let begin_ns = monotonic_ns();
        let (_, end_ns) = turn.repeat(self.writes, &mut latency, |done| {
            let within = done % per_segment;
            if within == 0 && self.next != Next::Same {
                let start_ns = monotonic_ns();
                let number = LIVE + done / per_segment;
                file = self.change(turn.session, number, helper, &mut counted)?;
                counted.change_ns.push((monotonic_ns() - start_ns) as f64);
            }
            file.write_at(&self.block, within * BLOCK_BYTES)?;
            Ok(file.sync(SyncKind::Data)?)
        })?;
        Ok(Counted { latency, total_ns: end_ns - begin_ns, ..counted })
    }

    /// A turn with its helper, and the neighbour if there is one.
    fn with_others(&self, turn: &Turn<'_>) -> Result<Counted, WayError> {
        let (session, access, bytes) = (turn.session, self.access, self.segment_bytes);
        // As in a service that has run for a while: all its segments exist and are written.
        for number in 0..LIVE {
            drop(session.written_file(&segment(number), bytes, access, 1)?);
        }
        let ((old, to_remove), (done, ready)) = (channel::<String>(), channel());
        if self.next == Next::Ahead {
            // Before the clock starts, the first one is ready, as every later one should be.
            prepare(session, PREPARED, access, bytes)?;
            let _ = done.send(Ok(()));
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(move || {
                for old in to_remove {
                    // A turn that has ended no longer receives, and removes what is left.
                    if self.next == Next::Ahead {
                        drop(done.send(prepare(session, PREPARED, access, bytes)));
                    }
                    drop(session.directory.remove(&old));
                }
            });
            let neighbour = self.beside.then(|| scope.spawn(|| disturb(session, &stop)));
            // The helper ends when its channel is closed.
            let counted = self.run(turn, &Helper { old, ready });
            stop.store(true, Ordering::Relaxed);
            let gone = |_| WayError::Invalid("the neighbour's thread panicked".into());
            neighbour.map_or(Ok(Ok(())), |thread| thread.join()).map_err(gone)??;
            counted
        })
    }

    fn takes_turns(self) -> impl TakesTurns {
        timed(move |turn, latency| self.turn(turn, latency))
    }

    fn turn(&self, turn: &Turn<'_>, latency: &mut Recorder) -> Result<Sample, WayError> {
        let counted = self.with_others(turn);
        for name in turn.session.directory.plain_files()? {
            if name.starts_with("segment-") {
                turn.session.remove(&name)?;
            }
        }
        // What is still in the page cache must not disturb the next way.
        turn.session.clear(NEIGHBOUR)?;
        let Counted { latency: round, change_ns, waited, total_ns } = counted?;
        latency.merge(&round);
        let change = median(&change_ns).map(|ns| figure("a change", Unit::Ns, ns));
        let mut figures: Vec<_> = change.into_iter().collect();
        if self.next == Next::Ahead {
            let late = 100.0 * waited as f64 / change_ns.len().max(1) as f64;
            figures.push(figure("not ready in time", Unit::Percent, late));
        }
        let sample = match self.is_tail {
            true => Sample::of(1, round.finish().p999_ns),
            false => Sample::of(round.count(), total_ns),
        };
        Ok(sample.with(figures))
    }
}

fn segment(number: u64) -> String {
    format!("segment-{number}")
}

/// Creates a file filled with zeros and syncs it. The later rename makes its name durable.
fn prepare(session: &Session<'_>, name: &str, access: Access, bytes: u64) -> Result<(), WayError> {
    let file = session.directory.open(name, &OpenFile::new_file().access(access))?;
    Ok(file.prepare(Preparation::Zeros, bytes)?)
}

/// The neighbour writes at its rate until `stop` is set.
fn disturb(session: &Session<'_>, stop: &AtomicBool) -> Result<(), WayError> {
    let file = session.new_file(NEIGHBOUR, &OpenFile::new_file())?;
    let piece = incompressible(PIECE_BYTES);
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

#[cfg(test)]
mod tests {
    use super::*;

    use inkstone_host::LabDirectory;

    #[test]
    fn each_way_changes_as_often_as_it_should_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = LabDirectory::at(directory.path()).expect("a directory");
        let stop = AtomicBool::new(false);
        let session = Session { directory: &files, stop: &stop, device: None };
        for &next in Next::ALL {
            let block = incompressible(BLOCK_BYTES as usize);
            let writer = Writer::new(next, Access::Buffered, 16 << 10, block);
            let beside = next == Next::Same;
            let writer = Writer { writes: 24, beside, ..writer };
            let turn = Turn { session: &session, time: Duration::MAX };
            let seen = writer.with_others(&turn).unwrap_or_else(|error| panic!("{next}: {error}"));
            let changes = if next == Next::Same { 0 } else { 6 };
            assert_eq!((seen.latency.count(), seen.change_ns.len()), (24, changes), "{next}");
            for name in files.list().expect("names") {
                files.remove(&name).expect("removed");
            }
            let mut latency = Recorder::new();
            let sample = writer.turn(&turn, &mut latency);
            let sample = sample.unwrap_or_else(|error| panic!("{next}: {error}"));
            assert_eq!((sample.amount, latency.count()), (24, 24), "{next}");
            assert_eq!(files.list().expect("names"), Vec::<String>::new(), "{next}");
        }
    }

    #[test]
    fn both_tables_have_their_ways_timed_write_by_write() {
        use crate::experiment::testing::{check, run};
        let practice = check(&practice(64 << 10, 2));
        let latency = run(&latency(1), Some(Duration::from_millis(600))).expect("a result");
        for (table, ways) in [(practice, 3), (latency, 6)] {
            assert_eq!(table.ways.len(), ways);
            for way in table.ways.iter().filter(|way| way.is_measured()) {
                assert!(way.latency.as_ref().is_some_and(|one| one.count > 0), "{}", way.name);
            }
        }
    }
}
