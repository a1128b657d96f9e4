//! Whether it matters which way runs first (article 4).
//!
//! *Owns*: that work. *May not touch*: how a pass is measured.

use std::time::Duration;

use inkstone_host::monotonic_ns;
use inkstone_io::{AlignedBuf, Directory, OpenFile, SyncKind};

use crate::result::Unit;
use crate::rounds::{Running, Sample, Trial, each};
use crate::stage::{Session, WayError, incompressible};

const FILE: &str = "place";
const BLOCK_BYTES: usize = 4096;
/// Commits of a pass: few, so that a slow disk has rounds enough for an answer too.
const COMMITS: u64 = 64;
/// Ways in article 4's order, so as many passes before the last.
const WAYS: usize = 5;
/// The device's rest before the first.
const REST: Duration = Duration::from_millis(100);

/// The same new file, written and synced block by block: first after a rest, and fifth in a row.
/// Article 4 suspected that the SSD's garbage collection favours whichever way runs first.
pub(super) fn place() -> Trial {
    let title = "4 KiB commits into a new file, by its place in the order of equal files";
    let needs = (COMMITS * BLOCK_BYTES as u64, 10.0);
    Trial::new(("place", title), Unit::CommitsPerS, needs, |_| {
        // Only the last pass is timed. All are whole: a shorter one would be another load.
        let way = |(name, before)| {
            let block = incompressible(BLOCK_BYTES);
            let after = each(move |turn| {
                std::thread::sleep(REST);
                for _ in 0..before {
                    pass(turn.session, &block)?;
                }
                Ok(Sample::of(COMMITS, pass(turn.session, &block)?))
            });
            Running::of(name, after)
        };
        Ok([("fifth in a row", WAYS - 1), ("first, after a rest", 0)].map(way).into())
    })
}

fn pass(session: &Session<'_>, block: &AlignedBuf) -> Result<u64, WayError> {
    let file = session.new_file(FILE, &OpenFile::new_file())?;
    session.directory.sync()?;
    let begin_ns = monotonic_ns();
    for number in 0..COMMITS {
        session.check()?;
        file.write_at(block, number * BLOCK_BYTES as u64)?;
        file.sync(SyncKind::Data)?;
    }
    Ok(monotonic_ns() - begin_ns)
}
