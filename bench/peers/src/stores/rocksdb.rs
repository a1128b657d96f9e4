//! RocksDB with recycled logs: a record's head is its key, the rest its value.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::path::Path;

use anyhow::Result;
use rocksdb::{DB, DBCompressionType, DBRecoveryMode, Options, ReadOptions, WriteOptions};

use crate::record::{Checker, HEAD_BYTES};
use crate::store::{Setup, Store, Writer};

/// A log is as long as a memtable lives.
const MEMTABLE_BYTES: usize = 32 << 20;
const RECYCLED_LOGS: usize = 4;
const READ_AHEAD_BYTES: usize = 2 << 20;

struct Peer {
    db: DB,
}

pub fn open(path: &Path, _: Setup) -> Result<Box<dyn Store>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    // 7.8 recycles no log in its default recovery mode, and says nothing.
    options.set_wal_recovery_mode(DBRecoveryMode::SkipAnyCorruptedRecord);
    options.set_recycle_log_file_num(RECYCLED_LOGS);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_write_buffer_number(4);
    // A log's keys come in order: nothing is to be merged, and records do not compress.
    options.set_disable_auto_compactions(true);
    options.set_compression_type(DBCompressionType::None);
    Ok(Box::new(Peer { db: DB::open(&options, path)? }))
}

impl Store for Peer {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        let (mut durable, mut later) = (WriteOptions::default(), WriteOptions::default());
        durable.set_sync(true);
        later.set_sync(false);
        Ok(Box::new(Appender { db: &self.db, durable, later }))
    }

    fn read(&self, _: u32, _: u64, seen: &mut Checker) -> Result<()> {
        let mut how = ReadOptions::default();
        how.set_verify_checksums(true);
        how.fill_cache(false);
        how.set_readahead_size(READ_AHEAD_BYTES);
        let mut record = Vec::new();
        let mut rows = self.db.raw_iterator_opt(how);
        rows.seek_to_first();
        while let Some((key, value)) = rows.item() {
            record.clear();
            record.extend_from_slice(key);
            record.extend_from_slice(value);
            seen.see(&record);
            rows.next();
        }
        Ok(rows.status()?)
    }

    fn how(&self) -> String {
        format!(
            "WriteOptions::sync; {RECYCLED_LOGS} logs recycled (recovery mode \
             SkipAnyCorruptedRecord); no compaction"
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Appender<'a> {
    db: &'a DB,
    durable: WriteOptions,
    later: WriteOptions,
}

impl Writer for Appender<'_> {
    fn append(&mut self, _: u32, record: &[u8]) -> Result<()> {
        let (key, value) = record.split_at(HEAD_BYTES);
        Ok(self.db.put_opt(key, value, &self.later)?)
    }

    fn append_durable(&mut self, _: u32, record: &[u8]) -> Result<()> {
        let (key, value) = record.split_at(HEAD_BYTES);
        Ok(self.db.put_opt(key, value, &self.durable)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }
}
