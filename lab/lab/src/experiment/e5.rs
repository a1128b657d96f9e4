//! E5: a key-value store's log with its blocks reserved ahead and without (article 3): threads that
//! each wait for their 128-byte record, on our log and on a plain file.
//!
//! *Owns*: the loads, and the statement. *May not touch*: the measuring (`crate::log`), the plain
//! file's groups (`e5_group`).

use std::time::Duration;

use inkstone_io::Preparation;

use crate::log::ROOM_NEEDED_BYTES;
use crate::log::beside::{Question, beside_floor};
use crate::rounds::Trial;

use super::e5_group::{COUNT, PUBLISHED_RECORDS, RECORD_BYTES, THREADS, preallocation};
use super::part::{Part, Size};
use super::statement::{Band, Ground::Here, Source, Statement, speed};
use super::ways::{NEW, prepared, small};

/// Without a budget: the published run takes less on any disk.
const TIME: Duration = Duration::from_secs(10);
/// The log's share of the budget; its floor gets the same share again.
const SHARE: f64 = 0.21;
/// The share of the ways with and without blocks reserved ahead.
const PREALLOCATION_SHARE: f64 = 0.5;

pub(super) fn parts(size: Size) -> Vec<Part> {
    vec![Part::Trial(log((size == Size::Published).then_some(PUBLISHED_RECORDS)))]
}

/// The load on the log, and the floor; then with blocks reserved ahead and without. `records`: the
/// most of each thread in a turn.
pub(super) fn log(records: Option<u64>) -> Trial {
    // First its log, later two logs at a time and a plain file.
    Trial::new("log", (1 + COUNT, 3 * ROOM_NEEDED_BYTES, 16.0), move |scene| {
        let pace = scene.pace;
        scene.progress.step("the log and its floor");
        let mut log = beside_floor(
            scene,
            &Question {
                names: ("log", OURS),
                threads: THREADS,
                record_bytes: RECORD_BYTES,
                time: pace.budget.map_or(TIME, |budget| budget.mul_f64(SHARE)),
                records,
            },
        );
        log.notes.push(match records {
            Some(records) => format!(
                "{records} records a thread in each round; published: 1,000, \
             once"
            ),
            None => "published: 1,000 records a thread; here as many as fit into the time, which \
             is more"
                .into(),
        });
        let mut found = vec![log];
        if scene.session.check().is_ok() {
            found.push(preallocation(scene, records, &pace.part(PREALLOCATION_SHARE))?);
        }
        Ok(found)
    })
}

const OURS: &str = "inkstone";

pub(super) const STATEMENTS: &[Statement] = &[Statement {
    id: "fallocate-ten-percent",
    says: "fallocate makes a synced log about 10% faster.",
    source: Source::Article(3, "whose own figures show 1.1%"),
    by: speed(Here, &[small(NEW)], small(prepared(Preparation::Fallocate))),
    band: Band::between(1.05, 1.15),
}];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::beside::FLOOR;

    #[test]
    fn the_log_stands_beside_its_floor_and_with_blocks_reserved_or_not() {
        use crate::experiment::testing::{ROUNDS, check};
        const RECORDS: u64 = 20;
        let all = check(&log(Some(RECORDS)), &["log", "log-preallocation"]);
        assert_eq!(all[0].baseline.as_deref(), Some(FLOOR));
        for way in all[1].ways.iter().filter(|way| way.is_measured()) {
            let latency = way.latency.as_ref().expect("timed one by one");
            let each = u64::from(ROUNDS * THREADS) * RECORDS;
            assert_eq!(latency.count, each, "{}: each record once", way.name);
            let per_flush = way.figure("records per flush").expect("counted");
            assert!((1.0..=8.0).contains(&per_flush), "{}: {per_flush}", way.name);
        }
    }
}
