//! SQLite: a table of records in WAL mode, synchronous = FULL. One connection, because it has one
//! writer anyway.
//!
//! *Owns*: every call to rusqlite. *May not touch*: what is measured.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;

use super::{Engine, Follower, Setup, Writer};
use crate::news::News;
use crate::record::{Checker, head};

/// Unsynced records are one transaction, up to this size: then its log is folded back.
const TRANSACTION_BYTES: usize = 256 << 20;
const READ_MAP_BYTES: i64 = 4 << 30;

/// A follower in another process hears nothing: it asks so often.
const ASK_AGAIN: Duration = Duration::from_millis(1);

struct Peer {
    path: PathBuf,
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
    connection.execute(
        "CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, record BLOB NOT NULL)",
        [],
    )?;
    Ok(Box::new(Peer { path: path.to_path_buf(), connection: Mutex::new(connection) }))
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
        format!(
            "version {}, WAL, synchronous = FULL, one connection behind a mutex",
            rusqlite::version()
        )
    }

    /// The log is folded back into the file, so that each turn begins with a log whose file is
    /// written.
    fn rest(&self) -> Result<()> {
        self.lock().query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))?;
        Ok(())
    }

    fn follower(&self, from: &[u64]) -> Result<Box<dyn Follower + '_>> {
        follower(&self.path, from)
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
fn row_id(thread: u32, number: u64) -> Result<i64> {
    Ok((i64::from(thread) << 40) | i64::try_from(number)?)
}

/// A follower, with a connection of its own: it reads beside the writer.
pub fn follower(path: &Path, from: &[u64]) -> Result<Box<dyn Follower>> {
    Ok(Box::new(Behind { connection: connect(path)?, seen: from.to_vec() }))
}

/// Asks for the rows behind those that it has seen, thread by thread.
struct Behind {
    connection: Connection,
    seen: Vec<u64>,
}

impl Follower for Behind {
    fn take(
        &mut self,
        news: Option<&News>,
        most: Duration,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<u64> {
        let mut count = 0;
        for (thread, seen) in self.seen.iter_mut().enumerate() {
            if news.is_some_and(|news| news.count(thread) == *seen) {
                continue;
            }
            let (thread, first) = (thread as u32, *seen);
            let mut rows = self.connection.prepare_cached(
                "SELECT record FROM log WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 4096",
            )?;
            let mut rows = rows.query((row_id(thread, first)?, row_id(thread + 1, 0)?))?;
            while let Some(row) = rows.next()? {
                show(row.get_ref(0)?.as_blob()?);
                *seen += 1;
            }
            count += *seen - first;
        }
        match news {
            Some(news) if count == 0 => news.wait(&self.seen, most),
            None if count == 0 => std::thread::sleep(ASK_AGAIN.min(most)),
            _ => {}
        }
        Ok(count)
    }
}

fn insert(connection: &Connection, record: &[u8]) -> Result<()> {
    let (thread, number) = head(record).context("a record has a head")?;
    let id = row_id(thread, number)?;
    connection
        .prepare_cached("INSERT INTO log (id, record) VALUES (?1, ?2)")?
        .execute((id, record))?;
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
