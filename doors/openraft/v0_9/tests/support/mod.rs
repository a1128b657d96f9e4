//! A state machine in memory: what openraft's suite needs beside a log store. For tests only.

use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard};

use openraft::storage::RaftStateMachine;
use openraft::{
    BasicNode, EntryPayload, LogId, OptionalSend, RaftLogId, RaftSnapshotBuilder, Snapshot,
    SnapshotMeta, StorageError, StoredMembership,
};

openraft::declare_raft_types!(
    /// openraft's defaults: data is text.
    pub(crate) Types
);

/// All texts that were applied, in order.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    texts: Vec<String>,
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    snapshot: Option<(SnapshotMeta<u64, BasicNode>, Vec<u8>)>,
}

/// Clones are the same state machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine(Arc<Mutex<Contents>>);

impl Machine {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().expect("no test panics with it")
    }
}

type Result<T> = std::result::Result<T, StorageError<u64>>;

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        let contents = self.contents();
        Ok((contents.applied, contents.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<String>>
    where
        I: IntoIterator<Item = openraft::Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut contents = self.contents();
        let mut answers = Vec::new();
        for entry in entries {
            let id = *entry.get_log_id();
            contents.applied = Some(id);
            answers.push(match entry.payload {
                EntryPayload::Blank => String::new(),
                EntryPayload::Normal(text) => {
                    contents.texts.push(text.clone());
                    format!("applied {text}")
                }
                EntryPayload::Membership(membership) => {
                    contents.membership = StoredMembership::new(Some(id), membership);
                    String::new()
                }
            });
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<()> {
        let bytes = snapshot.into_inner();
        let mut contents = self.contents();
        contents.texts = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
        contents.applied = meta.last_log_id;
        contents.membership = meta.last_membership.clone();
        contents.snapshot = Some((meta.clone(), bytes));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>> {
        let kept = self.contents().snapshot.clone();
        Ok(kept.map(|(meta, bytes)| Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) }))
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>> {
        let mut contents = self.contents();
        let meta = SnapshotMeta {
            last_log_id: contents.applied,
            last_membership: contents.membership.clone(),
            snapshot_id: contents.applied.map_or_else(String::new, |id| id.to_string()),
        };
        let bytes = contents.texts.join("\n").into_bytes();
        contents.snapshot = Some((meta.clone(), bytes.clone()));
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}
