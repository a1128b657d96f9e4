//! What a run means for engines that people run: their settings, each with its reason, its figure and its source.
//!
//! *Owns*: the table of rules. *May not touch*: figures; a rule whose cells were not measured says nothing.
//!
//! Each rule names two cells that differ as the engine's setting makes its log differ. What the setting does is taken from the
//! engine's own documentation or source, which stands beside it. There is no rule for RocksDB's `wal_bytes_per_sync`: it
//! starts write-back of what is not synced yet, and the lab measures no such thing.

use crate::result::{CellResult, EngineAdvice, Measured, Relative, Run, Verdict};
use crate::stats::relative;

/// A setting that makes an engine's log like one cell or like the other.
struct Rule {
    engine: &'static str,
    /// The cells: what is compared with, and what is judged.
    base: &'static str,
    other: &'static str,
    /// What to set where the other is faster, slower, or cannot be told.
    faster: &'static str,
    slower: &'static str,
    tie: &'static str,
    /// What the setting does.
    why: &'static str,
    source: &'static str,
}

const POSTGRESQL: &str = "PostgreSQL documentation, 19.5 Write Ahead Log (runtime-config-wal)";
const ROCKSDB: &str = "RocksDB include/rocksdb/options.h and db/db_impl/db_impl_open.cc (SanitizeOptions)";
const MYSQL: &str = "MySQL Reference Manual, InnoDB startup options and system variables";

const RULES: [Rule; 8] = [
    Rule {
        engine: "PostgreSQL",
        base: "new fdatasync",
        other: "reuse fdatasync",
        faster: "wal_recycle = on (the default)",
        slower: "wal_recycle = off",
        tie: "wal_recycle: either",
        why: "a recycled WAL file is overwritten, a new one gets its blocks while it is written",
        source: POSTGRESQL,
    },
    Rule {
        engine: "PostgreSQL",
        base: "fallocate fdatasync",
        other: "zeros fdatasync",
        faster: "wal_init_zero = on (the default)",
        slower: "wal_init_zero = off",
        tie: "wal_init_zero: either",
        why: "files filled with zeros against blocks that are only reserved (off leaves the file sparse, which saves no more)",
        source: POSTGRESQL,
    },
    Rule {
        engine: "PostgreSQL",
        base: "reuse fdatasync",
        other: "reuse o-dsync",
        faster: "wal_sync_method = open_datasync",
        slower: "wal_sync_method = fdatasync (the default)",
        tie: "wal_sync_method = fdatasync (the default; open_datasync is no faster)",
        why: "O_DSYNC writes against fdatasync on recycled files",
        source: POSTGRESQL,
    },
    Rule {
        engine: "RocksDB",
        base: "fallocate fdatasync",
        other: "reuse fdatasync",
        faster: "recycle_log_file_num > 0, with a wal_recovery_mode that keeps it on",
        slower: "recycle_log_file_num = 0 (the default)",
        tie: "recycle_log_file_num: either",
        why: "a recycled WAL is overwritten, a fallocated one converts unwritten blocks at each sync. Opening sets it to 0 \
              without an error in recovery modes that do not go with it: kTolerateCorruptedTailRecords, and in older releases \
              kPointInTimeRecovery (the default) and kAbsoluteConsistency: look for it in the LOG file",
        source: ROCKSDB,
    },
    Rule {
        engine: "RocksDB",
        base: "new fdatasync",
        other: "fallocate fdatasync",
        faster: "allow_fallocate = true (the default)",
        slower: "allow_fallocate = false",
        tie: "allow_fallocate: either",
        why: "a WAL whose blocks are reserved ahead against one that gets them while it is written",
        source: ROCKSDB,
    },
    Rule {
        engine: "SQLite",
        base: "new fdatasync",
        other: "reuse fdatasync",
        faster: "journal_mode = WAL and journal_size_limit = -1 (the default): never truncate the WAL",
        slower: "journal_mode = WAL; keeping a long WAL file gains nothing",
        tie: "journal_mode = WAL; keeping or truncating the WAL file makes no difference",
        why: "after a checkpoint SQLite overwrites its WAL from the start; one that was truncated grows again",
        source: "SQLite documentation, pragma journal_size_limit and Write-Ahead Logging",
    },
    Rule {
        engine: "MySQL",
        base: "reuse fsync",
        other: "reuse fdatasync",
        faster: "innodb_use_fdatasync = ON",
        slower: "innodb_use_fdatasync = OFF",
        tie: "innodb_use_fdatasync: either",
        why: "with innodb_flush_method = fsync or O_DIRECT the redo log is synced by fsync, or by fdatasync with this",
        source: MYSQL,
    },
    Rule {
        engine: "MySQL",
        base: "reuse fsync",
        other: "reuse o-sync",
        faster: "innodb_flush_method = O_DSYNC",
        slower: "innodb_flush_method: not O_DSYNC",
        tie: "innodb_flush_method: O_DSYNC gains the redo log nothing",
        why: "O_DSYNC makes InnoDB open its redo log with O_SYNC; O_DIRECT is about data files only",
        source: MYSQL,
    },
];

/// etcd's own measure of a disk that is fast enough: the 99th percentile of a WAL sync.
const ETCD_P99_NS: u64 = 10_000_000;
/// With fewer commits a 99th percentile is a single value.
const COMMITS_MIN: u64 = 100;

/// What the run says of settings. Nothing where nothing was measured.
pub fn advise(run: &Run) -> Vec<EngineAdvice> {
    let mut advice: Vec<EngineAdvice> = RULES.iter().filter_map(|rule| rule.advice(run)).collect();
    advice.extend(etcd(run));
    advice
}

impl Rule {
    fn advice(&self, run: &Run) -> Option<EngineAdvice> {
        let found = compare(run, self.base, self.other)?;
        let setting = match found.verdict {
            Verdict::Faster => self.faster,
            Verdict::Slower => self.slower,
            Verdict::Tie | Verdict::Unknown => self.tie,
        };
        Some(EngineAdvice {
            engine: self.engine.into(),
            setting: setting.into(),
            reason: format!("{}: {}", self.why, figure(&found)),
            source: self.source.into(),
        })
    }
}

/// etcd reserves its WAL with fallocate and syncs it by fdatasync; there is no setting for that, but a limit of its own.
fn etcd(run: &Run) -> Option<EngineAdvice> {
    let commit = &measured(run, "fallocate fdatasync")?.commit;
    if commit.count < COMMITS_MIN {
        return None;
    }
    let p99_ms = commit.p99_ns as f64 / 1e6;
    let setting = if commit.p99_ns < ETCD_P99_NS {
        "its WAL can be here"
    } else {
        "give its WAL another disk (--wal-dir): this one is too slow for it"
    };
    let mut reason = format!(
        "it reserves its WAL with fallocate and asks for a 99th percentile of a sync below 10 ms: {p99_ms:.2} ms here"
    );
    if let Some(found) = compare(run, "fallocate fdatasync", "reuse fdatasync") {
        reason.push_str(&format!("; overwriting, which it does not do, would be {}", figure(&found)));
    }
    let source = "etcd FAQ (wal_fsync_duration_seconds) and client/pkg/fileutil/preallocate_unix.go";
    Some(EngineAdvice { engine: "etcd".into(), setting: setting.into(), reason, source: source.into() })
}

fn measured<'a>(run: &'a Run, name: &str) -> Option<&'a Measured> {
    let named = |cell: &&CellResult| cell.name == name;
    run.cells.iter().find(named)?.outcome.measured()
}

/// Two cells of the run by name, compared: the first as baseline.
fn compare(run: &Run, base: &str, other: &str) -> Option<Relative> {
    let compared = relative(&measured(run, base)?.rounds, &measured(run, other)?.rounds, run.seed)?;
    (compared.verdict != Verdict::Unknown).then_some(compared)
}

/// `2.1 times as fast here (95%: 2.0 to 2.3)`, or that it is a tie.
fn figure(relative: &Relative) -> String {
    let Relative { speedup, low, high, .. } = relative;
    match relative.verdict {
        Verdict::Faster => format!("{speedup:.2} times as fast here (95%: {low:.2} to {high:.2})"),
        Verdict::Slower => format!("slower here: {speedup:.2} of the speed (95%: {low:.2} to {high:.2})"),
        Verdict::Tie | Verdict::Unknown => {
            format!("no measurable difference here ({speedup:.2}, 95%: {low:.2} to {high:.2})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{cell, run};
    use crate::result::{DurableFinding, Outcome};

    fn of(cells: &[(&str, f64)]) -> Run {
        run(cells.iter().map(|(name, us)| cell(name, *us, DurableFinding::Seen { commits: 10 })).collect())
    }

    fn settings(run: &Run, engine: &str) -> Vec<String> {
        advise(run)
            .into_iter()
            .filter(|advice| advice.engine == engine)
            .map(|advice| advice.setting)
            .collect()
    }

    #[test]
    fn advice_changes_with_the_findings() {
        let all = |reuse, zeros, dsync, fallocate, data| {
            of(&[
                ("new fsync", 310.0),
                ("new fdatasync", 300.0),
                ("fallocate fdatasync", fallocate),
                ("zeros fdatasync", zeros),
                ("reuse fdatasync", reuse),
                ("reuse o-dsync", dsync),
                ("reuse fsync", data),
            ])
        };
        let ext4 = all(100.0, 100.0, 80.0, 250.0, 150.0);
        assert_eq!(
            settings(&ext4, "PostgreSQL"),
            [
                "wal_recycle = on (the default)",
                "wal_init_zero = on (the default)",
                "wal_sync_method = open_datasync"
            ]
        );
        let rocksdb = settings(&ext4, "RocksDB");
        assert!(rocksdb[0].starts_with("recycle_log_file_num > 0"), "{rocksdb:?}");
        assert!(rocksdb[1].starts_with("allow_fallocate = true"), "{rocksdb:?}");
        assert_eq!(settings(&ext4, "MySQL"), ["innodb_use_fdatasync = ON"]);
        let copying = all(400.0, 400.0, 500.0, 390.0, 400.0);
        assert_eq!(
            settings(&copying, "PostgreSQL"),
            ["wal_recycle = off", "wal_init_zero: either", "wal_sync_method = fdatasync (the default)"]
        );
        assert_eq!(
            settings(&copying, "RocksDB"),
            ["recycle_log_file_num: either", "allow_fallocate = false"]
        );
        assert_eq!(settings(&copying, "MySQL"), ["innodb_use_fdatasync: either"]);
        assert!(settings(&copying, "SQLite")[0].contains("gains nothing"));
    }

    #[test]
    fn nothing_is_said_where_nothing_was_measured_and_every_word_has_a_source_and_a_figure() {
        assert!(advise(&of(&[("new fsync", 300.0), ("reuse rwf-dsync", 100.0)])).is_empty());
        let some = of(&[("new fdatasync", 300.0), ("reuse fdatasync", 100.0)]);
        let engines: Vec<String> = advise(&some).into_iter().map(|advice| advice.engine).collect();
        assert_eq!(engines, ["PostgreSQL", "SQLite"]);
        for advice in advise(&some) {
            assert!(advice.reason.contains("3.00 times as fast here"), "{}", advice.reason);
            assert!(!advice.source.is_empty());
        }
    }

    #[test]
    fn etcd_has_a_limit_of_its_own() {
        for (p99_ns, word) in [(9_000_000, "can be here"), (11_000_000, "another disk")] {
            let mut run = of(&[("fallocate fdatasync", 200.0)]);
            if let Outcome::Measured(measured) = &mut run.cells[0].outcome {
                (measured.commit.count, measured.commit.p99_ns) = (1000, p99_ns);
            }
            assert!(settings(&run, "etcd")[0].contains(word));
        }
        assert!(
            settings(&of(&[("fallocate fdatasync", 200.0)]), "etcd").is_empty(),
            "no commits, no percentile"
        );
    }
}
