//! Reads write batches in the order of their ids.
//!
//! *Owns*: where a reader stands, and the trait `WalIterator`. *May not touch*: writing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use inkstone::{Cursor, Lsn};
use slatedb::RowEntry;
use slatedb::wal::{WalError, WalIterator, WalRows};

use crate::blocking::blocking;
use crate::error::{data, of_log};
use crate::rows::decode;
use crate::state::Shared;
use crate::wals::DatabaseWal;

/// So many bytes of records are decoded at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// So long a bounded range waits for a record that a writer in another process has made durable
/// and not published yet.
const PATIENCE: Duration = Duration::from_secs(1);

/// The write batches of a range.
pub struct LogIterator {
    /// Where it stands; elsewhere while `step` runs.
    place: Option<ReadPlace>,
    /// A step that was begun and not awaited to its end goes on with the next call.
    step: Option<Pin<Box<Going>>>,
}

type Going = dyn Future<Output = (ReadPlace, Step)> + Send;

type Step = Result<Option<WalRows>, WalError>;

struct ReadPlace {
    wal: DatabaseWal,
    next: u64,
    /// One above the last id of the range; `None` goes on for ever.
    end: Option<u64>,
    /// With the writer of this process whose log it reads.
    cursor: Option<(Cursor, Option<Arc<Shared>>)>,
    /// The writer that counts what a restart replays.
    counter: Option<Arc<Shared>>,
}

impl LogIterator {
    pub(crate) fn new(
        wal: DatabaseWal,
        next: u64,
        end: Option<u64>,
        counter: Option<&Arc<Shared>>,
    ) -> Self {
        let counter = counter.map(Arc::clone);
        let place = ReadPlace { wal, next: next.max(1), end, cursor: None, counter };
        Self { place: Some(place), step: None }
    }
}

#[async_trait]
impl WalIterator for LogIterator {
    async fn next(&mut self) -> Result<Option<WalRows>, WalError> {
        if let Some(place) = self.place.take() {
            self.step = Some(Box::pin(place.step()));
        }
        let Some(step) = &mut self.step else { return Ok(None) };
        let (place, answer) = step.await;
        (self.place, self.step) = (Some(place), None);
        answer
    }
}

impl ReadPlace {
    async fn step(mut self) -> (Self, Step) {
        loop {
            if self.end.is_some_and(|end| self.next >= end) {
                return (self, Ok(None));
            }
            if self.cursor.is_none() {
                let (wal, next) = (self.wal.clone(), Lsn::new(self.next));
                let opened = blocking(move || {
                    wal.reader().map(|found| found.map(|(reader, of)| (reader.from(next), of)))
                });
                match opened.await {
                    Ok(None) if self.end.is_some() => {
                        let missing = WalError::WalTruncated(self.next);
                        return (self, Err(missing));
                    }
                    // No writer has been here yet.
                    Ok(None) => blocking(|| std::thread::sleep(PATIENCE / 20)).await,
                    Ok(found) => self.cursor = found,
                    Err(error) => return (self, Err(error)),
                }
            }
            let Some((mut cursor, living)) = self.cursor.take() else { continue };
            let is_beside = living.is_none();
            let (wal, next, end) = (self.wal.clone(), self.next, self.end);
            let (cursor, read) = blocking(move || {
                let read = gather(&wal, &mut cursor, next, end, is_beside);
                (cursor, read)
            })
            .await;
            match read {
                Ok(Some((rows, last, bytes))) => {
                    if let Some(counter) = &self.counter {
                        counter.note_replay(last, bytes);
                    }
                    self.next = last.saturating_add(1);
                    self.cursor = Some((cursor, living));
                    return (self, Ok(Some(WalRows { rows, last_consumed_wal_file_id: last })));
                }
                Ok(None) => match &living {
                    // A writer that has ended is asked no more: another one may have come.
                    Some(writer) if !writer.is_open() => {}
                    _ if self.end.is_some() => {
                        let missing = WalError::WalTruncated(self.next);
                        return (self, Err(missing));
                    }
                    Some(writer) => match writer.log.durable_at(Lsn::new(self.next)).await {
                        Ok(_) => self.cursor = Some((cursor, living)),
                        // The log has failed, and its writer may not know yet.
                        Err(_) => blocking(|| std::thread::sleep(PATIENCE / 20)).await,
                    },
                    None => self.cursor = Some((cursor, living)),
                },
                // The files of a log that was closed may belong to its next writer.
                Err(_) if living.as_ref().is_some_and(|writer| !writer.is_open()) => {}
                Err(error) => return (self, Err(error)),
            }
        }
    }
}

/// Rows, the last id they are from, and the bytes of their records.
type Gathered = (Vec<RowEntry>, u64, u64);

/// The next records, as many as make a chunk. Beside a writer it waits a moment for the first.
fn gather(
    wal: &DatabaseWal,
    cursor: &mut Cursor,
    mut next: u64,
    end: Option<u64>,
    is_beside: bool,
) -> Result<Option<Gathered>, WalError> {
    let mut gathered: Option<Gathered> = None;
    let mut bytes = 0;
    while bytes < CHUNK_BYTES && end.is_none_or(|end| next < end) {
        let record = match cursor.next() {
            Ok(None) if gathered.is_none() && is_beside => cursor.next_within(PATIENCE),
            answer => answer,
        };
        let record = match record {
            Ok(Some(record)) => record,
            Ok(None) => break,
            // What was read is shown first, and the error with the next call.
            Err(_) if gathered.is_some() => {
                cursor.seek(Lsn::new(next));
                break;
            }
            Err(error) => return Err(of_log(error)),
        };
        let id = record.lsn.get();
        if id != next {
            return Err(WalError::WalTruncated(next));
        }
        bytes += record.bytes.len();
        let more = decode(record.bytes.to_vec())
            .map_err(|error| data(format!("{}: WAL id {id}: {error}", wal.path())))?;
        let (rows, last, sum) = gathered.get_or_insert_with(|| (Vec::new(), 0, 0));
        rows.extend(more);
        (*last, *sum) = (id, bytes as u64);
        next = id.saturating_add(1);
    }
    Ok(gathered)
}
