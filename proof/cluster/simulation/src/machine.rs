//! One machine: a disk, a node that runs on it, and the task that flushes its log.
//!
//! *Owns*: starting, killing, cutting the power, and what the disk lies about when a mistake is
//! made. *May not touch*: when that happens.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use inkstone_io::Result as DiskResult;
use inkstone_openraft::{LogStore, StreamsOptions, Waits};
use inkstone_sim::hooked::{Call, FileCall, Hook};
use inkstone_sim::{
    DirectoryOrder, DiskOptions, Effect, Fate, Fault, NewBlocks, OperationKind, SimDisk,
};
use inkstone_streams::Streams;
use replicated_log::node::{Node, NodeOptions};
use replicated_log::snapshots::Snapshots;
use replicated_log::storage::{Identity, Storage};
use replicated_log::types::TypeConfig;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::mistake::Mistake;
use crate::network::CLUSTER;
use crate::world::{Flusher, Slot, Waiting, World};

#[derive(Debug, Clone)]
pub struct Settings {
    pub node: NodeOptions,
    pub log: inkstone::Options,
}

/// A sync is acknowledged, and makes nothing durable.
fn lie(disk: &SimDisk) {
    disk.inject(Fault::new(Effect::LostSync).on(OperationKind::Sync).times(u64::MAX));
}

/// The mistake that snapshots are not durable: every sync of their files is a lie.
struct Lies(SimDisk);

impl Hook for Lies {
    fn before(&self, call: &Call<'_>) -> DiskResult<()> {
        let is_sync = matches!(
            call,
            Call::Submit { .. } | Call::Complete | Call::OfFile { call: FileCall::Sync, .. }
        );
        if is_sync {
            lie(&self.0);
        }
        Ok(())
    }

    fn after(&self) {
        self.0.clear_faults();
    }
}

impl World {
    /// A machine with an empty disk, on which nothing runs. Returns its id.
    pub fn new_machine(&self) -> u64 {
        let id = self.machines() + 1;
        let disk = self.new_disk(id);
        self.lock().slots.push(Slot::new(disk));
        id
    }

    pub fn new_disk(&self, number: u64) -> SimDisk {
        let options = DiskOptions {
            directory_order: if self.happens(500) {
                DirectoryOrder::Any
            } else {
                DirectoryOrder::Prefix
            },
            new_blocks: if self.happens(300) { NewBlocks::Stale } else { NewBlocks::Zeros },
            ..DiskOptions::default()
        };
        SimDisk::new(self.seed().wrapping_mul(8).wrapping_add(number), options)
    }

    /// Starts the node on what its disk has.
    pub async fn start(&self, id: u64, settings: &Settings) -> io::Result<()> {
        let (disk, generation) = {
            let mut state = self.lock();
            let slot = state.slot(id);
            slot.generation += 1;
            slot.waits = Waiting::default();
            (slot.disk.clone(), slot.generation)
        };
        let wake = Arc::new(Notify::new());
        let (world, woken) = (self.clone(), Arc::clone(&wake));
        let due = move |what| {
            world.due(id, generation, what);
            woken.notify_one();
        };
        let options =
            inkstone_openraft::Options::new().log(settings.log.clone()).memory_bytes(1 << 16);
        let log = LogStore::open_unthreaded_in(&disk.directory("/log"), options, due)?;
        let mut snapshots = disk.directory("/snapshots");
        if self.makes(Mistake::SnapshotNotDurable) {
            snapshots = snapshots.hooked(Arc::new(Lies(disk.clone())));
        }
        // The pieces of a snapshot have up to 256 KiB.
        let larger = settings.log.clone().segment_bytes(1 << 20).record_bytes_max(300 << 10);
        let of_streams = StreamsOptions::new().log(larger).own_mover(false);
        let snapshots = Streams::open_in(&snapshots, of_streams).map_err(io::Error::other)?;
        let snapshots = Snapshots::new(Arc::new(snapshots), 0)?;
        let task = tokio::spawn(self.clone().flush_when_due(id, generation, log.clone(), wake))
            .abort_handle();
        let storage =
            Storage::of(Identity { cluster: CLUSTER, node: id, group: 0 }, log.clone(), snapshots)
                .await?;
        let mut options = settings.node.clone();
        if self.makes(Mistake::LeaderRestore) {
            options.config.enable_leader_restore = None;
        }
        let node = Node::start(storage, options, self.network(id, generation)).await?;
        self.note(format_args!(
            "node {id} starts, applied {:?}",
            node.machine().applied().map(|id| id.index)
        ));
        let mut state = self.lock();
        let slot = state.slot(id);
        slot.node = Some(node);
        slot.flusher = Some(Flusher { log, task });
        Ok(())
    }

    pub async fn init(&self) -> io::Result<()> {
        let members: BTreeMap<u64, String> =
            (1..=self.machines()).map(|id| (id, format!("node-{id}"))).collect();
        match self.live(1) {
            Some((node, _)) => node.init(members).await,
            None => Ok(()),
        }
    }

    fn due(&self, id: u64, generation: u64, what: Waits) {
        let mut state = self.lock();
        let state = &mut *state;
        let slot = state.slot(id);
        if slot.generation != generation {
            return;
        }
        match what {
            Waits::Vote => {
                slot.waits.vote = true;
                state.counts.add("votes", true);
            }
            Waits::Truncation => {
                slot.waits.truncation = true;
                state.counts.add("truncations", true);
            }
            _ => slot.waits.entries = true,
        }
        let is_watched = state
            .watched
            .is_some_and(|(wanted, on)| wanted == what && on.is_none_or(|on| on == id));
        if is_watched && state.seen.is_none() {
            state.seen = Some(id);
        }
    }

    async fn flush_when_due(
        self,
        id: u64,
        generation: u64,
        log: LogStore<TypeConfig>,
        wake: Arc<Notify>,
    ) {
        loop {
            wake.notified().await;
            let (from, to) = self.lock().slot(id).flush_ms;
            let ms = from + self.below(to - from + 1);
            self.sleep(ms).await;
            self.while_stopped(id).await;
            if let Err(why) = self.flush(id, generation, &log) {
                self.note(format_args!("node {id}: a flush failed: {why}"));
            }
        }
    }

    /// What the log's own thread would do.
    fn flush(&self, id: u64, generation: u64, log: &LogStore<TypeConfig>) -> io::Result<()> {
        let (disk, waits, is_current) = {
            let mut state = self.lock();
            state.counts.add("flushes", true);
            let slot = state.slot(id);
            let is_current = slot.generation == generation;
            let waits =
                if is_current { std::mem::take(&mut slot.waits) } else { Waiting::default() };
            (slot.disk.clone(), waits, is_current)
        };
        let lies = is_current
            && (self.makes(Mistake::VoteNotSynced)
                && waits.vote
                && !waits.entries
                && !waits.truncation
                || self.makes(Mistake::CallbackBeforeDurable)
                    && waits.entries
                    && !waits.vote
                    && !waits.truncation);
        let loses = is_current && self.makes(Mistake::TruncationLost) && waits.truncation;
        if lies {
            lie(&disk);
        }
        if loses {
            // A sync that only comes later would be harmless here: the log keeps one order, and the
            // node answers after the next one.
            disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write).times(u64::MAX));
        }
        let synced = log.sync();
        if lies || loses {
            disk.clear_faults();
        }
        synced
    }

    /// The power goes when the disk is about to make something durable for the `nth` time from now
    /// on. [`World::take_down`] must follow.
    pub fn arm(&self, id: u64, nth: u64) {
        let mut state = self.lock();
        let slot = state.slot(id);
        slot.disk.record_epochs();
        slot.cut_at_epoch = Some(slot.disk.epochs_recorded() + nth);
        slot.armed_nth = nth;
    }

    /// Cuts the power of a machine, or kills its process: then the page cache outlives it. What the
    /// dead process still does, it does on a disk that nobody sees, and nobody hears it.
    pub fn take_down(&self, id: u64, is_power: bool) {
        self.check_running(id);
        let (node, flusher, disk, waited, was_hit, nth, generation) = {
            let mut state = self.lock();
            let slot = state.slot(id);
            let Some(node) = slot.node.take() else { return };
            let Some(flusher) = slot.flusher.take() else { return };
            let disk = slot.disk.clone();
            let was_hit =
                slot.cut_at_epoch.take().is_some_and(|epoch| disk.epochs_recorded() >= epoch);
            (node, flusher, disk, slot.waits, was_hit, slot.armed_nth, slot.generation)
        };
        let mut cuts = disk.take_epochs();
        let (cut, is_inside) = if was_hit {
            (cuts.swap_remove(nth as usize - 1), true)
        } else {
            // The log may have been about to write what it had: then the cut comes before, in the
            // middle, or just after it.
            disk.record_epochs();
            let before = disk.power_cut();
            if waited.entries || waited.vote || waited.truncation {
                drop(self.flush(id, generation, &flusher.log));
            }
            let mut cuts = disk.take_epochs();
            let inside = cuts.len() as u64;
            cuts.push(disk.power_cut());
            cuts.push(before);
            let chosen = self.below(inside + 2);
            (cuts.swap_remove(chosen as usize), chosen < inside)
        };
        let seed = self.lock().rng.u64(..);
        let found = if is_power { cut.sample(seed) } else { cut.state(|_, _| Fate::Kept) };
        let items = cut.items().len();
        let word = if is_power { "loses its power" } else { "is killed" };
        self.note(format_args!(
            "node {id} {word}, {items} items not durable, inside a flush: {is_inside}"
        ));
        let mut state = self.lock();
        if is_power {
            state.counts.add("power_cuts", true);
            state.counts.add("cuts_in_a_flush", is_inside);
        } else {
            state.counts.add("kills", true);
        }
        let slot = state.slot(id);
        slot.generation += 1;
        slot.disk = found;
        slot.stopped_until = Instant::now();
        drop(state);
        tokio::spawn(async move {
            drop(node.raft().shutdown().await);
            flusher.task.abort();
        });
    }

    /// Starts a machine that is down, unless somebody does already.
    pub async fn bring_up(&self, id: u64, settings: &Settings) {
        {
            let mut state = self.lock();
            let slot = state.slot(id);
            if slot.is_gone || slot.node.is_some() || std::mem::replace(&mut slot.is_starting, true)
            {
                return;
            }
            state.counts.add("restarts", true);
        }
        let started = tokio::time::timeout(Duration::from_secs(10), self.start(id, settings)).await;
        match started {
            Ok(Ok(())) => (),
            Ok(Err(why)) => self.broken(format!("node {id} does not start: {why}")),
            Err(_) => self.broken(format!("node {id} does not start within 10 s")),
        }
        self.lock().slot(id).is_starting = false;
    }

    /// The machine never runs again.
    pub async fn stop_for_good(&self, id: u64, is_power: bool) {
        self.lock().slot(id).is_gone = true;
        while self.lock().slot(id).is_starting {
            self.sleep(1).await;
        }
        self.take_down(id, is_power);
    }

    /// A node that ended although its disk is sound broke a promise.
    pub fn check_running(&self, id: u64) {
        use openraft::async_runtime::watch::WatchReceiver;
        let Some((node, _)) = self.live(id) else { return };
        let state = node.raft().metrics().borrow_watched().running_state.clone();
        if let Err(why) = state {
            self.broken(format!("node {id} ended by itself: {why}"));
        }
        if let Some(why) = node.lost() {
            self.broken(why);
        }
    }
}
