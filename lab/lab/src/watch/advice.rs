//! What a program's own settings can do about a cause.
//!
//! *Owns*: the table of settings, each with its source; docs/watch.md shows the same table. *May
//! not touch*: how much it would help (`predict`).

use serde::{Deserialize, Serialize};

use super::cause::Cause;

/// A setting of the watched program that answers the cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The program.
    pub program: String,
    /// The setting, as its users write it.
    pub setting: String,
    /// What it does.
    pub effect: String,
    /// Where that is written.
    pub source: String,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The program.
    pub program: &'static str,
    /// Beginnings of the names of its processes.
    pub names: &'static [&'static str],
    /// A part of the paths of the files in question; empty: all.
    pub path: &'static str,
    /// The causes that it answers.
    pub causes: &'static [Cause],
    /// The setting.
    pub setting: &'static str,
    /// What it does.
    pub effect: &'static str,
    /// Where that is written.
    pub source: &'static str,
}

const BLOCKS: &[Cause] = &[Cause::Grows, Cause::Reserved, Cause::ReservedBeyond, Cause::Holes];

/// The settings, the first that fits is named.
pub const SETTINGS: &[Setting] = &[
    Setting {
        program: "PostgreSQL",
        names: &["postgres", "postmaster"],
        path: "pg_wal",
        causes: BLOCKS,
        setting: "wal_init_zero = on, wal_recycle = on, and a larger min_wal_size",
        effect: "segments are written with zeros before use, and used again",
        source: "https://www.postgresql.org/docs/current/runtime-config-wal.html",
    },
    Setting {
        program: "PostgreSQL",
        names: &["postgres", "postmaster"],
        path: "pg_wal",
        causes: &[Cause::TimeStamps],
        setting: "wal_sync_method = fdatasync",
        effect: "time stamps need no journal",
        source: "https://www.postgresql.org/docs/current/runtime-config-wal.html",
    },
    Setting {
        program: "PostgreSQL",
        names: &["postgres", "postmaster"],
        path: "pg_wal",
        causes: &[Cause::CopyOnWrite],
        setting: "wal_init_zero = off and wal_recycle = off",
        effect: "zeros and old segments are of no use where each write goes to a new place",
        source: "https://www.postgresql.org/docs/current/runtime-config-wal.html",
    },
    Setting {
        program: "MySQL",
        names: &["mysqld", "mariadbd"],
        path: "",
        causes: &[Cause::TimeStamps],
        setting: "innodb_use_fdatasync = ON",
        effect: "time stamps need no journal",
        source: "https://dev.mysql.com/worklog/task/?id=14452",
    },
    Setting {
        program: "RocksDB",
        names: &["rocksdb", "db_bench", "tikv-server", "cockroach", "mysqld"],
        path: ".log",
        causes: BLOCKS,
        setting: "recycle_log_file_num above 0",
        effect: "old log files are written over",
        source: "https://github.com/facebook/rocksdb/blob/main/include/rocksdb/options.h",
    },
    Setting {
        program: "MongoDB",
        names: &["mongod"],
        path: "journal",
        causes: BLOCKS,
        setting: "wiredTigerEngineConfigString: log=(zero_fill=true)",
        effect: "log files are written with zeros ahead of use",
        source: "https://source.wiredtiger.com/develop/group__wt.html",
    },
    Setting {
        program: "Redis",
        names: &["redis-server", "valkey-server"],
        path: "",
        causes: BLOCKS,
        setting: "appendfsync everysec",
        effect: "one fsync a second in place of one for each command; a power loss can take a \
                 second of writes",
        source: "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/",
    },
    Setting {
        program: "Kafka",
        names: &["kafka"],
        path: "",
        causes: &[Cause::Grows, Cause::TimeStamps],
        setting: "log.flush.interval.messages and log.flush.interval.ms left at their defaults",
        effect: "durability comes from replicas, and files are synced when they are full",
        source: "https://kafka.apache.org/documentation/#brokerconfigs",
    },
    Setting {
        program: "NATS",
        names: &["nats-server"],
        path: "",
        causes: &[Cause::Grows, Cause::TimeStamps],
        setting: "jetstream { sync_interval: 2m }, its default",
        effect: "durability comes from replicas; with one replica a power loss can take what came \
                 since",
        source: "https://docs.nats.io/running-a-nats-service/configuration#jetstream",
    },
    Setting {
        program: "SQLite",
        names: &[],
        path: "-journal",
        causes: &[Cause::CreatedAgain, Cause::Grows, Cause::Names, Cause::TimeStamps],
        setting: "PRAGMA journal_mode = WAL",
        effect: "one sync for each commit in place of three or four, and no file is created",
        source: "https://www.sqlite.org/pragma.html#pragma_journal_mode",
    },
    Setting {
        program: "etcd",
        names: &["etcd"],
        path: ".wal",
        causes: BLOCKS,
        setting: "--wal-dir on a disk of its own",
        effect: "etcd has no setting that writes its segments ahead: it reserves them. A disk of \
                 its own takes others' requests out of its way",
        source: "https://etcd.io/docs/latest/op-guide/configuration/",
    },
];

/// The setting that answers this cause, if the program has one.
pub fn advice(process: &str, path: &str, cause: Cause) -> Option<Advice> {
    let fits = |setting: &&Setting| {
        let is_named = setting.names.iter().any(|name| process.starts_with(name));
        // Any program may have SQLite in it: the file's name says it.
        let is_it = is_named || setting.names.is_empty();
        is_it && path.contains(setting.path) && setting.causes.contains(&cause)
    };
    SETTINGS.iter().find(fits).map(|setting| Advice {
        program: setting.program.into(),
        setting: setting.setting.into(),
        effect: setting.effect.into(),
        source: setting.source.into(),
    })
}
