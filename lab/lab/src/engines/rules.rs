//! The rules: settings of common engines; for each, the two cells that differ as the engine's log
//! differs by that setting; and the source.
//!
//! *Owns*: the table. *May not touch*: figures, and when there is advice.
//!
//! There is no rule for RocksDB's `wal_bytes_per_sync`: it starts write-back of unsynced bytes,
//! which the lab does not measure.

/// A setting that makes an engine's log like one cell or like the other.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) engine: &'static str,
    /// The cell to compare with; then the cell to judge.
    pub(super) base: &'static str,
    pub(super) other: &'static str,
    /// What to set if the judged cell is faster, slower, or equally fast.
    pub(super) faster: &'static str,
    pub(super) slower: &'static str,
    pub(super) same: &'static str,
    /// What the setting does.
    pub(super) why: &'static str,
    /// The file and function, or the page and section, that says so.
    pub(super) source: &'static str,
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        engine: "PostgreSQL",
        base: "zeros fdatasync",
        other: "reuse fdatasync",
        faster: "wal_recycle = on (the default)",
        slower: "wal_recycle = off",
        same: "wal_recycle: either (off still fills each new file with zeros, which these figures leave out)",
        why: "a recycled WAL file is overwritten; with wal_init_zero = on (the default) a new one is filled with zeros and \
         synced, then overwritten in the same way",
        source: "PostgreSQL src/backend/access/transam/xlog.c, XLogFileInitInternal and RemoveXlogFile",
    },
    Rule {
        engine: "PostgreSQL",
        base: "sparse fdatasync",
        other: "zeros fdatasync",
        faster: "wal_init_zero = on (the default)",
        slower: "wal_init_zero = off",
        same: "wal_init_zero: either",
        why: "on fills a new WAL file with zeros; off writes its last byte only, so each commit allocates blocks; the cell \
         `sparse` sets the size by ftruncate, which leaves the same hole",
        source: "PostgreSQL src/backend/access/transam/xlog.c, XLogFileInitInternal; documentation 19.5.1, wal_init_zero",
    },
    Rule {
        engine: "PostgreSQL",
        base: "reuse fdatasync",
        other: "reuse o-dsync",
        faster: "wal_sync_method = open_datasync",
        slower: "wal_sync_method = fdatasync (the default)",
        same: "wal_sync_method: either of fdatasync (the default) and open_datasync",
        why: "O_DSYNC writes compared with fdatasync, on recycled files",
        source: "PostgreSQL src/backend/access/transam/xlog.c, get_sync_bit and issue_xlog_fsync; documentation 19.5.1, \
                 wal_sync_method",
    },
    Rule {
        engine: "RocksDB",
        base: "keep-size fdatasync",
        other: "reuse fdatasync",
        faster: "recycle_log_file_num > 0, with a wal_recovery_mode that keeps it on",
        slower: "recycle_log_file_num = 0 (the default)",
        same: "recycle_log_file_num: either",
        why: "a recycled WAL is overwritten; a new one is reserved with KEEP_SIZE, so each sync converts unwritten blocks and \
              writes the grown size. Opening sets it to 0 without an error where WAL_ttl_seconds or WAL_size_limit_MB is above 0, \
              in kTolerateCorruptedTailRecords and kAbsoluteConsistency, and in older releases in kPointInTimeRecovery (the \
              default): look for it in the LOG file",
        source: "RocksDB db/db_impl/db_impl_open.cc, SanitizeOptions and CreateWAL; env/fs_posix.cc, OptimizeForLogWrite \
                 (fallocate_with_keep_size)",
    },
    Rule {
        engine: "RocksDB",
        base: "new fdatasync",
        other: "keep-size fdatasync",
        faster: "allow_fallocate = true (the default)",
        slower: "allow_fallocate = false",
        same: "allow_fallocate: either",
        why: "a WAL whose blocks are reserved ahead with KEEP_SIZE, compared with one that gets them while it is written",
        source: "RocksDB include/rocksdb/options.h, allow_fallocate; env/fs_posix.cc, OptimizeForLogWrite; env/io_posix.cc, \
                 PosixWritableFile::Allocate",
    },
    Rule {
        engine: "RocksDB",
        base: "keep-size-steps fdatasync 512B",
        other: "fallocate-steps fdatasync 512B",
        faster: "a FileSystem whose OptimizeForLogWrite sets fallocate_with_keep_size = false (no option of a database does)",
        slower: "fallocate_with_keep_size = true for the WAL (what OptimizeForLogWrite sets)",
        same: "fallocate_with_keep_size: either",
        why: "a WAL that is reserved a step ahead: with KEEP_SIZE its size grows with each record, with mode 0 once a step",
        source: "RocksDB env/fs_posix.cc, OptimizeForLogWrite (whose comment calls false the faster one); env/io_posix.cc, \
                 PosixWritableFile::Allocate",
    },
    Rule {
        engine: "SQLite",
        base: "new fdatasync",
        other: "reuse fdatasync",
        faster: "journal_mode = WAL and journal_size_limit = -1 (the default): never truncate the WAL",
        slower: "journal_mode = WAL; keeping a long WAL file gains nothing",
        same: "journal_size_limit: either (journal_mode = WAL)",
        why: "after a checkpoint SQLite overwrites its WAL from the start; one that was truncated grows again",
        source: "SQLite documentation, PRAGMA journal_size_limit, and Write-Ahead Logging (wal.html), section 2; src/os_unix.c, \
                 full_fsync (fdatasync where it is configured)",
    },
    Rule {
        engine: "MySQL",
        base: "reuse fsync",
        other: "reuse fdatasync",
        faster: "innodb_use_fdatasync = ON (the default of 8.4, not of 8.0)",
        slower: "innodb_use_fdatasync = OFF (the default of 8.0, not of 8.4)",
        same: "innodb_use_fdatasync: either",
        why: "with innodb_flush_method = fsync or O_DIRECT the redo log is synced by fsync; with this, by fdatasync",
        source: "MySQL 8.4 Reference Manual 1.4, table 1.1 (what is new since 8.0), and 17.14, innodb_use_fdatasync",
    },
    Rule {
        engine: "MySQL",
        base: "reuse fsync",
        other: "reuse o-sync",
        faster: "innodb_flush_method = O_DSYNC",
        slower: "innodb_flush_method: not O_DSYNC",
        same: "innodb_flush_method: either, for the redo log",
        why: "O_DSYNC makes InnoDB open its redo log with O_SYNC; O_DIRECT is about data files only",
        source: "MySQL 8.4 Reference Manual 17.14, innodb_flush_method",
    },
];

/// The source of etcd's own limit, which is not in [`RULES`] because etcd has no setting for it.
pub(super) const ETCD: &str = "etcd FAQ (wal_fsync_duration_seconds); client/pkg/fileutil/preallocate_unix.go, preallocExtend \
                               (fallocate mode 0)";
