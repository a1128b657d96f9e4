//! The state machine: keys and values in memory, made again from the last snapshot and the log
//! after it.
//!
//! *Owns*: what each request does, and the bytes of a snapshot. *May not touch*: the log, the disk
//! (`snapshots.rs` does), the network.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};

use crate::snapshots::Snapshots;
use crate::types::{LogId, Request, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, Value};

#[derive(Debug, Clone, Default)]
struct State {
    values: BTreeMap<String, Value>,
    applied: Option<LogId>,
    membership: StoredMembership,
}

impl State {
    fn of(meta: &SnapshotMeta, bytes: &[u8]) -> io::Result<Self> {
        let values = postcard::from_bytes(bytes)
            .map_err(|why| io::Error::new(ErrorKind::InvalidData, format!("a snapshot: {why}")))?;
        Ok(Self { values, applied: meta.last_log_id, membership: meta.last_membership.clone() })
    }

    fn change(&mut self, request: Request) {
        match request {
            Request::Put { key, value } => drop(self.values.insert(key, vec![value])),
            Request::Append { key, value } => self.values.entry(key).or_default().push(value),
        }
    }

    fn bytes(&self) -> io::Result<Bytes> {
        postcard::to_stdvec(&self.values).map(Bytes::from).map_err(io::Error::other)
    }
}

/// The state of one node. Clones are the same: openraft gets one, and who answers clients reads
/// another.
#[derive(Debug, Clone)]
pub struct StateMachine {
    state: Arc<Mutex<State>>,
    snapshots: Snapshots,
}

impl StateMachine {
    /// The state as of the newest snapshot; openraft applies what the log has after it.
    pub fn new(snapshots: Snapshots) -> io::Result<Self> {
        let state = match snapshots.read()? {
            Some(newest) => State::of(&newest.meta, &newest.snapshot)?,
            None => State::default(),
        };
        Ok(Self { state: Arc::new(Mutex::new(state)), snapshots })
    }

    /// What is under a key, as far as this node has applied the log.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.state().values.get(key).cloned()
    }

    /// A checksum over everything: two nodes that applied the same entries have the same.
    pub fn fingerprint(&self) -> u64 {
        // FNV-1a.
        self.state().bytes().unwrap_or_default().iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let State { applied, membership, .. } = self.state().clone();
        Ok((applied, membership))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut state = self.state();
            state.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(request) => state.change(request),
                EntryPayload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            drop(state);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        // A copy: entries are applied while the snapshot is written. It shares the values' bytes.
        let state = Arc::new(Mutex::new(self.state().clone()));
        Self { state, snapshots: self.snapshots.clone() }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        bytes: Bytes,
    ) -> Result<(), io::Error> {
        let state = State::of(meta, &bytes)?;
        // First on disk, then in memory: when this returns, openraft purges the log.
        self.snapshots.save(meta.clone(), bytes).await?;
        *self.state() = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        self.snapshots.read()
    }
}

impl RaftSnapshotBuilder<TypeConfig> for StateMachine {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let State { applied, membership, .. } = self.state().clone();
        let meta = SnapshotMeta { last_log_id: applied, last_membership: membership };
        let bytes = self.state().bytes()?;
        self.snapshots.save(meta.clone(), bytes.clone()).await?;
        Ok(Snapshot { meta, snapshot: bytes })
    }
}
