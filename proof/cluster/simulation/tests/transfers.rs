//! A transfer of a snapshot that openraft cancels ends at once.
//!
//! When it went on, a deposed leader tried again under its old vote, with a snapshot that it had
//! got of a newer leader since, and a node that had not heard of that leader panicked.

use std::time::Duration;

use bytes::Bytes;
use openraft::BasicNode;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use replicated_log::types::{Snapshot, SnapshotMeta, Vote};
use replicated_log_simulation::world::World;

#[test]
fn a_cancelled_transfer_ends_and_is_not_tried_again() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let world = World::new(1, None, false);
        let (from, to) = (world.new_machine(), world.new_machine());
        let mut peer = world.network(from, 0).new_client(to, &BasicNode::default()).await;
        let mut send = async |cancel: Duration| {
            let snapshot = Snapshot { meta: SnapshotMeta::default(), snapshot: Bytes::new() };
            let cancel = async move {
                tokio::time::sleep(cancel).await;
                ReplicationClosed::new("the leader was deposed")
            };
            let option = RPCOption::new(Duration::from_secs(1));
            peer.full_snapshot(Vote::new_committed(1, from), snapshot, cancel, option).await
        };
        let cancelled = send(Duration::ZERO).await;
        assert!(matches!(cancelled, Err(StreamingError::Closed(_))), "{cancelled:?}");
        let refused = send(Duration::from_secs(9)).await;
        assert!(matches!(refused, Err(StreamingError::Unreachable(_))), "{refused:?}");
    });
}
