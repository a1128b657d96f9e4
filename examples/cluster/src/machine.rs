//! The state machine: keys and values in memory, made again from the last snapshot and the log
//! after it.
//!
//! *Owns*: what each request does, and the bytes of a snapshot. *May not touch*: the log, the disk
//! (`snapshots.rs` does), the network.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};

use crate::runtime::blocking;
use crate::snapshots::Snapshots;
use crate::types::{
    LogId, Request, Response, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, Value,
};

type Values = BTreeMap<String, Value>;

#[derive(Debug, Clone, Default)]
struct State {
    values: Values,
    applied: Option<LogId>,
    membership: StoredMembership,
}

impl State {
    fn of(snapshot: &Snapshot) -> io::Result<Self> {
        let values = postcard::from_bytes(&snapshot.snapshot).map_err(|why| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the bytes of a snapshot are damaged: {why}"),
            )
        })?;
        let meta = &snapshot.meta;
        Ok(Self { values, applied: meta.last_log_id, membership: meta.last_membership.clone() })
    }

    fn change(&mut self, request: Request) -> Response {
        match request {
            Request::Put { key, value } => {
                self.values.insert(key, vec![value]);
                Response::Pieces(1)
            }
            Request::Append { key, value } => {
                let pieces = self.values.entry(key).or_default();
                pieces.push(value);
                Response::Pieces(pieces.len() as u64)
            }
        }
    }
}

/// The state of one node. Clones are the same: openraft gets one, and who answers clients reads
/// another.
#[derive(Debug, Clone)]
pub struct StateMachine {
    state: Arc<RwLock<State>>,
    snapshots: Snapshots,
}

impl StateMachine {
    /// The state as of the newest snapshot; openraft applies what the log has after it.
    ///
    /// # Errors
    /// Those of reading the snapshot.
    pub fn new(snapshots: Snapshots) -> io::Result<Self> {
        let state = snapshots.read()?.as_ref().map(State::of).transpose()?.unwrap_or_default();
        Ok(Self { state: Arc::new(RwLock::new(state)), snapshots })
    }

    /// What is under a key, as far as this node has applied the log.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.read().values.get(key).cloned()
    }

    /// The keys that begin so, as far as this node has applied the log.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let state = self.read();
        let keys = state.values.range(prefix.to_owned()..).map(|(key, _)| key);
        keys.take_while(|key| key.starts_with(prefix)).cloned().collect()
    }

    /// The number of keys, and a checksum over everything: two nodes that applied the same entries
    /// have the same.
    pub fn fingerprint(&self) -> (u64, u64) {
        let state = self.read();
        // FNV-1a: it must be the same in every version of the program.
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (key, value) in &state.values {
            add(key.as_bytes());
            add(&(value.len() as u64).to_le_bytes());
            value.iter().for_each(|piece| add(piece));
        }
        (state.values.len() as u64, sum)
    }

    pub fn applied(&self) -> Option<LogId> {
        self.read().applied
    }

    /// The log id of the last membership that this node has applied.
    pub(crate) fn membership_entry(&self) -> Option<LogId> {
        *self.read().membership.log_id()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let state = self.read();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut state = self.write();
            state.applied = Some(entry.log_id);
            let response = match entry.payload {
                EntryPayload::Blank => Response::None,
                EntryPayload::Normal(request) => state.change(request),
                EntryPayload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Response::None
                }
            };
            drop(state);
            if let Some(responder) = responder {
                responder.send(response);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        // A copy: entries are applied while the snapshot is written. It shares the values' bytes.
        Builder { state: self.read().clone(), snapshots: self.snapshots.clone() }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        bytes: Bytes,
    ) -> Result<(), io::Error> {
        let state = State::of(&Snapshot { meta: meta.clone(), snapshot: bytes.clone() })?;
        // First on disk, then in memory: when this returns, openraft purges the log.
        self.snapshots.save(meta.clone(), bytes).await?;
        *self.write() = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        self.snapshots.newest_snapshot().await
    }
}

/// Writes one snapshot: the state as it was when this was made.
#[derive(Debug)]
pub struct Builder {
    state: State,
    snapshots: Snapshots,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let State { values, applied, membership } = std::mem::take(&mut self.state);
        let bytes: Bytes =
            blocking(move || postcard::to_stdvec(&values)).await?.map_err(io::Error::other)?.into();
        let meta = SnapshotMeta { last_log_id: applied, last_membership: membership };
        self.snapshots.save(meta.clone(), bytes.clone()).await?;
        Ok(Snapshot { meta, snapshot: bytes })
    }
}
