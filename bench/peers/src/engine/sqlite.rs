//! SQLite: a table of records in WAL mode, synchronous = FULL. One connection, because it has one writer anyway.
//!
//! *Owns*: every call to rusqlite. *May not touch*: what is measured.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;

use super::{Engine, Setup, Writer};
use crate::record::{Checker, head};

/// Unsynced records are one transaction, up to this size: then its log is folded back.
const TRANSACTION_BYTES: usize = 256 << 20;
const READ_MAP_BYTES: i64 = 4 << 30;

struct Peer {
    connection: Mutex<Connection>,
}

fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path.join("log.sqlite"))?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    ensure!(mode == "wal", "SQLite gives journal mode {mode} where WAL was asked for");
    connection.pragma_update(None, "synchronous", "FULL")?;
    let level: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    ensure!(level == 2, "SQLite gives synchronous {level} where FULL (2) was asked for");
    Ok(connection)
}

pub fn open(path: &Path, _: Setup) -> Result<Box<dyn Engine>> {
    let connection = connect(path)?;
    connection
        .execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, record BLOB NOT NULL)", [])?;
    Ok(Box::new(Peer { connection: Mutex::new(connection) }))
}

impl Peer {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Peer {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Appender { peer: self, transaction_bytes: None }))
    }

    fn how(&self) -> String {
        format!("version {}, WAL, synchronous = FULL, one connection behind a mutex", rusqlite::version())
    }

    /// The log is folded back into the file, so that each turn begins with a log whose file is written.
    fn rest(&self) -> Result<()> {
        self.lock().query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let connection = self.connection.into_inner().unwrap_or_else(PoisonError::into_inner);
        connection.close().map_err(|(_, error)| error.into())
    }
}

struct Appender<'a> {
    peer: &'a Peer,
    /// Bytes in the open transaction, if there is one.
    transaction_bytes: Option<usize>,
}

/// Rows of a thread are in its order.
fn insert(connection: &Connection, record: &[u8]) -> Result<()> {
    let (thread, number) = head(record).context("a record has a head")?;
    let id = (i64::from(thread) << 40) | i64::try_from(number)?;
    connection.prepare_cached("INSERT INTO log (id, record) VALUES (?1, ?2)")?.execute((id, record))?;
    Ok(())
}

impl Writer for Appender<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let connection = self.peer.lock();
        if self.transaction_bytes.is_none() {
            connection.execute_batch("BEGIN IMMEDIATE")?;
        }
        insert(&connection, record)?;
        drop(connection);
        let bytes = self.transaction_bytes.unwrap_or(0) + record.len();
        self.transaction_bytes = Some(bytes);
        if bytes >= TRANSACTION_BYTES { self.sync() } else { Ok(()) }
    }

    /// Outside a transaction each statement is one of its own, durable when it returns.
    fn append_durable(&mut self, record: &[u8]) -> Result<()> {
        insert(&self.peer.lock(), record)
    }

    fn sync(&mut self) -> Result<()> {
        if self.transaction_bytes.take().is_some() {
            self.peer.lock().execute_batch("COMMIT")?;
        }
        Ok(())
    }
}

/// It has no checksums in its main file: it verifies less than the others.
pub fn read_all(path: &Path, checker: &mut Checker) -> Result<()> {
    let connection = connect(path)?;
    connection.pragma_update(None, "mmap_size", READ_MAP_BYTES)?;
    let mut statement = connection.prepare("SELECT record FROM log ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        checker.see(row.get_ref(0)?.as_blob()?);
    }
    Ok(())
}
