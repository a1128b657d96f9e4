//! Many streams in one log behind one trait.
//!
//! *Owns*: the trait. *May not touch*: any store's calls: each has a file of its own.

use anyhow::Result;

use crate::engine::Groups;

/// Many streams in one log, open in a directory of its own. A record's number in its stream is that
/// of its head, from 0.
pub trait Many: Send + Sync {
    /// For one thread.
    fn writer(&self) -> Box<dyn ManyWriter + '_>;

    /// Gives back what nothing needs any more, for a store that has to be asked.
    fn purge(&self) -> Result<()> {
        Ok(())
    }

    /// The number of a stream's first record, and the one after its last.
    fn bounds(&self, stream: u32) -> Result<(u64, u64)>;

    /// Shows every record of a stream, in order.
    fn read(&self, stream: u32, show: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// What is still in the background comes to an end.
    fn rest(&self) {}

    /// Bytes and writes of its groups so far, if it tells.
    fn groups(&self) -> Option<Groups> {
        None
    }

    /// Bytes that it moved by itself so far, and what its log did, if it tells.
    fn moved(&self) -> Option<(u64, String)> {
        None
    }

    /// How it is made durable and fast here, in a few words.
    fn how(&self) -> String;

    /// Ends it in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One thread's way into [`Many`] streams.
pub trait ManyWriter {
    /// Appends one record to each of these streams, all as one commit.
    fn append(&mut self, records: &[(u32, &[u8])], wait: Wait) -> Result<()>;

    /// Gives up the records of these streams before these numbers, without waiting.
    fn truncate(&mut self, before: &[(u32, u64)]) -> Result<()>;

    /// On `Ok` everything that was appended is on stable storage.
    fn sync(&mut self) -> Result<()>;
}

/// What an append waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Durable,
    Nothing,
}
