//! Reads write batches in the order of their ids.
//!
//! *Owns*: a reader's position, and the trait `WalIterator`. *May not touch*: writing.

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
use crate::wals::{DatabaseWal, Found};

/// How many bytes of records are decoded at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// How long a bounded range waits for a record that a writer in another process has made durable
/// but not published yet.
const PATIENCE: Duration = Duration::from_secs(1);

/// The write batches of a range.
pub struct LogIterator {
    /// The position; while `step` runs, the step has it.
    place: Option<ReadPlace>,
    /// If a call is cancelled, the next one continues its step.
    step: Option<Pin<Box<Going>>>,
}

type Going = dyn Future<Output = (ReadPlace, Step)> + Send;

type Step = Result<Option<WalRows>, WalError>;

struct ReadPlace {
    wal: DatabaseWal,
    next: u64,
    /// One above the last id of the range; `None` if the range has no end.
    end: Option<u64>,
    cursor: Option<(Cursor, Found)>,
}

impl LogIterator {
    pub(crate) fn new(wal: DatabaseWal, next: u64, end: Option<u64>) -> Self {
        let place = ReadPlace { wal, next: next.max(1), end, cursor: None };
        Self { place: Some(place), step: None }
    }

    /// What a writer that has just opened replays: all of its log from `next` on.
    pub(crate) fn replay(wal: DatabaseWal, next: u64, writer: &Arc<Shared>) -> Self {
        let end = Some(writer.log.last().get().saturating_add(1));
        let found = (writer.log.reader(), Some(Arc::clone(writer)));
        let cursor = Some((found.0.from(Lsn::new(next)), found));
        Self { place: Some(ReadPlace { wal, next, end, cursor }), step: None }
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
                match self.wal.reader().await {
                    Ok(None) if self.end.is_some() => {
                        let error = self.wal.missing(None, self.next, self.end).await;
                        return (self, Err(error));
                    }
                    // No writer has opened the log yet. Each look is a request to the store.
                    Ok(None) => blocking(|| std::thread::sleep(PATIENCE)).await,
                    Ok(Some(found)) => {
                        self.cursor = Some((found.0.from(Lsn::new(self.next)), found));
                    }
                    Err(error) => return (self, Err(error)),
                }
            }
            let Some((mut cursor, (reader, living))) = self.cursor.take() else { continue };
            let is_beside = living.is_none();
            let (wal, next, end) = (self.wal.clone(), self.next, self.end);
            let (cursor, read) = blocking(move || {
                let read = gather(&wal, &mut cursor, next, end, is_beside);
                (cursor, read)
            })
            .await;
            match read {
                Ok(Some((rows, last))) => {
                    self.next = last.saturating_add(1);
                    self.cursor = Some((cursor, (reader, living)));
                    return (self, Ok(Some(WalRows { rows, last_consumed_wal_file_id: last })));
                }
                Ok(None) => match &living {
                    // The writer has ended: look for its successor.
                    Some(writer) if !writer.is_open() => {}
                    _ if self.end.is_some() => {
                        let error = self.wal.missing(Some(&reader), self.next, self.end).await;
                        return (self, Err(error));
                    }
                    Some(writer) => match writer.log.durable_at(Lsn::new(self.next)).await {
                        Ok(_) => self.cursor = Some((cursor, (reader, living))),
                        // The log has failed, and the writer's state may not show it yet.
                        Err(_) => blocking(|| std::thread::sleep(PATIENCE / 20)).await,
                    },
                    None => self.cursor = Some((cursor, (reader, living))),
                },
                // The log was closed, and its files may belong to the next writer.
                Err(_) if living.as_ref().is_some_and(|writer| !writer.is_open()) => {}
                Err(WalError::WalTruncated(id)) => {
                    let given_back = self.wal.is_given_back(id);
                    let error = self.wal.truncated(id, self.end, given_back).await;
                    return (self, Err(error));
                }
                Err(error) => return (self, Err(error)),
            }
        }
    }
}

/// Rows, and the last id they are from.
type Gathered = (Vec<RowEntry>, u64);

/// The next chunk of records. Beside a writer this waits a moment for the first one.
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
            // First come the records; the next call returns the error.
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
        let (rows, last) = gathered.get_or_insert_with(|| (Vec::new(), 0));
        rows.extend(more);
        *last = id;
        next = id.saturating_add(1);
    }
    Ok(gathered)
}
