//! A log of one raft group.
//!
//! *Owns*: opening it, and its end. *May not touch*: what the group does (`group.rs`).

use std::path::Path;
use std::sync::Arc;

use inkstone::{AnyDirectory, OsDirectory};
use inkstone_streams::Streams;

use crate::error::{Error, Result};
use crate::group::{Group, Shared};
use crate::options::{Options, refuse_periodic};

/// A log of one raft group. It ends with this value.
pub(crate) struct Alone {
    shared: Arc<Shared>,
}

impl Alone {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<(Self, Arc<Group>)> {
        refuse_periodic(&options.log)?;
        let streams = Streams::open(path, options.below())?;
        let directory = OsDirectory::open(path).map_err(inkstone::Error::from)?;
        Self::of(streams, AnyDirectory::new(directory), options)
    }

    pub(crate) fn open_in(
        directory: AnyDirectory,
        options: &Options,
    ) -> Result<(Self, Arc<Group>)> {
        refuse_periodic(&options.log)?;
        let streams = Streams::open_in(directory.clone(), options.below())?;
        Self::of(streams, directory, options)
    }

    fn of(
        streams: Streams,
        directory: AnyDirectory,
        options: &Options,
    ) -> Result<(Self, Arc<Group>)> {
        let expected = options.raft_group;
        let others = streams.reader().ids(None, 2)?.into_iter().find(|id| *id != expected);
        if let Some(came) = others {
            return Err(Error::OtherRaftGroup { path: directory.path().into(), expected, came });
        }
        let shared = Shared::of_one(streams, directory, options.memory_bytes);
        let log = Self { shared };
        let group = log.shared.group(expected)?;
        Ok((log, group))
    }

    /// Makes everything durable, and ends the log.
    pub(crate) fn close(&self) -> Result<()> {
        self.shared.close()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.close();
    }
}
