//! Which setting of the watched program answers a cause.
//!
//! *Owns*: the table of settings, each with its source; docs/watch.md has the same table. *May not
//! touch*: how much a setting would help (`predict`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::cause::Cause;

/// A setting of the watched program that answers the cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The program.
    pub program: Cow<'static, str>,
    /// The setting, as users write it.
    pub setting: Cow<'static, str>,
    /// What it does.
    pub effect: Cow<'static, str>,
    /// Its documentation.
    pub source: Cow<'static, str>,
}

/// One row of the table.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Prefixes of the names of its processes.
    names: &'static [&'static str],
    /// A part of the paths that it applies to; empty for all.
    path: &'static str,
    /// The causes that it answers.
    causes: &'static [Cause],
    pub(super) advice: Advice,
}

const BLOCKS: &[Cause] = &[Cause::Grows, Cause::Reserved, Cause::ReservedBeyond, Cause::Holes];
const POSTGRES: &[&str] = &["postgres", "postmaster"];
const POSTGRES_WAL: &str = "https://www.postgresql.org/docs/current/runtime-config-wal.html";

/// The settings. The first one that fits is named.
pub const SETTINGS: &[Setting] = &[
    setting(
        ("PostgreSQL", POSTGRES, "pg_wal", BLOCKS),
        "wal_init_zero = on, wal_recycle = on, and a larger min_wal_size",
        "segments are written with zeros before use, and used again",
        POSTGRES_WAL,
    ),
    setting(
        ("PostgreSQL", POSTGRES, "pg_wal", &[Cause::TimeStamps]),
        "wal_sync_method = fdatasync",
        "time stamps need no journal",
        POSTGRES_WAL,
    ),
    setting(
        ("PostgreSQL", POSTGRES, "pg_wal", &[Cause::CopyOnWrite]),
        "wal_init_zero = off and wal_recycle = off",
        "zeros and old segments are of no use where each write goes to a new place",
        POSTGRES_WAL,
    ),
    setting(
        ("MySQL", &["mysqld", "mariadbd"], "", &[Cause::TimeStamps]),
        "innodb_use_fdatasync = ON",
        "time stamps need no journal",
        "https://dev.mysql.com/worklog/task/?id=14452",
    ),
    setting(
        ("RocksDB", &["rocksdb", "db_bench", "tikv-server", "cockroach", "mysqld"], ".log", BLOCKS),
        "recycle_log_file_num above 0",
        "old log files are written over",
        "https://github.com/facebook/rocksdb/blob/main/include/rocksdb/options.h",
    ),
    setting(
        ("MongoDB", &["mongod"], "journal", BLOCKS),
        "wiredTigerEngineConfigString: log=(zero_fill=true)",
        "log files are written with zeros ahead of use",
        "https://source.wiredtiger.com/develop/group__wt.html",
    ),
    setting(
        ("Redis", &["redis-server", "valkey-server"], "", BLOCKS),
        "appendfsync everysec",
        "one fsync a second in place of one for each command; a power loss can take a \
         second of writes",
        "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/",
    ),
    setting(
        ("Kafka", &["kafka"], "", &[Cause::Grows, Cause::TimeStamps]),
        "log.flush.interval.messages and log.flush.interval.ms left at their defaults",
        "durability comes from replicas, and files are synced when they are full",
        "https://kafka.apache.org/documentation/#brokerconfigs",
    ),
    setting(
        ("NATS", &["nats-server"], "", &[Cause::Grows, Cause::TimeStamps]),
        "jetstream { sync_interval: 2m }, its default",
        "durability comes from replicas; with one replica a power loss can take what came \
         since",
        "https://docs.nats.io/running-a-nats-service/configuration#jetstream",
    ),
    setting(
        (
            "SQLite",
            &[],
            "-journal",
            &[Cause::CreatedAgain, Cause::Grows, Cause::Names, Cause::TimeStamps],
        ),
        "PRAGMA journal_mode = WAL",
        "one sync for each commit in place of three or four, and no file is created",
        "https://www.sqlite.org/pragma.html#pragma_journal_mode",
    ),
    setting(
        ("etcd", &["etcd"], ".wal", BLOCKS),
        "--wal-dir on a disk of its own",
        "etcd has no setting that writes its segments ahead: it reserves them. A disk of \
         its own takes others' requests out of its way",
        "https://etcd.io/docs/latest/op-guide/configuration/",
    ),
];

const fn setting(
    (program, names, path, causes): (
        &'static str,
        &'static [&'static str],
        &'static str,
        &'static [Cause],
    ),
    setting: &'static str,
    effect: &'static str,
    source: &'static str,
) -> Setting {
    let [program, setting] = [Cow::Borrowed(program), Cow::Borrowed(setting)];
    let [effect, source] = [Cow::Borrowed(effect), Cow::Borrowed(source)];
    Setting { names, path, causes, advice: Advice { program, setting, effect, source } }
}

/// The setting that answers this cause, if the program has one. A separate disk helps only if
/// others' requests were in progress.
pub fn advice(process: &str, path: &str, cause: Cause, is_beside: bool) -> Option<Advice> {
    let fits = |setting: &&Setting| {
        let is_named = setting.names.iter().any(|name| process.starts_with(name));
        // Any program may embed SQLite, so the file's name decides.
        let is_it = is_named || setting.names.is_empty();
        let helps = setting.advice.program != "etcd" || is_beside;
        is_it && helps && path.contains(setting.path) && setting.causes.contains(&cause)
    };
    SETTINGS.iter().find(fits).map(|setting| setting.advice.clone())
}
