//! The reader: ranges of WAL ids, in the writer's process and in others.
//!
//! *Owns*: the trait `WalReader`. *May not touch*: writing.

use std::ops::Bound;

use async_trait::async_trait;
use slatedb::wal::{WalError, WalFileRange, WalIterator, WalReader};

use crate::error::internal;
use crate::iterator::LogIterator;
use crate::wals::DatabaseWal;

#[async_trait]
impl WalReader for DatabaseWal {
    async fn iterator(&self, range: WalFileRange) -> Result<Box<dyn WalIterator>, WalError> {
        let first = match range.0 {
            Bound::Included(first) => first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => {
                return Err(internal("a range of WAL ids must have a start"));
            }
        };
        let end = match range.1 {
            Bound::Included(last) => Some(last.saturating_add(1)),
            Bound::Excluded(end) => Some(end),
            Bound::Unbounded => None,
        };
        Ok(Box::new(LogIterator::new(self.clone(), first, end)))
    }

    async fn last_wal_file_id(&self, replay_after_wal_id: u64) -> Result<u64, WalError> {
        Ok(self.last_id().await?.max(replay_after_wal_id))
    }
}
