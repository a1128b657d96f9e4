//! The handle of a disk: creating one, cutting its power, planning its faults, reading what
//! happened.
//!
//! *Owns*: the lock around the state. *May not touch*: what the operations do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::counters::Counters;
use crate::crash::{Fate, Item, PowerCut};
use crate::fault::{Event, Fault};
use crate::options::DiskOptions;
use crate::state::State;

/// A disk in memory. Clones are handles of the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk. The same seed and the same calls give the same disk, byte for byte.
    ///
    /// # Panics
    /// If `sector_bytes` is not a power of two from 512 to 4096.
    pub fn new(seed: u64, options: DiskOptions) -> Self {
        let sector = options.sector_bytes;
        assert!(sector.is_power_of_two(), "a sector of {sector} bytes");
        assert!((512..=4096).contains(&sector), "a sector of {sector} bytes");
        Self::from_state(State::new(seed, options))
    }

    pub(crate) fn from_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Ignores poisoning: a panic of another holder may leave a half-done operation, but then the
    /// test fails anyway.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk at this instant, with every state that a power loss now may leave.
    pub fn power_cut(&self) -> PowerCut {
        PowerCut::of(self.lock().snapshot())
    }

    /// A disk as found after a power loss now, drawn from `seed`. This one continues.
    pub fn crash(&self, seed: u64) -> Self {
        self.power_cut().sample(seed)
    }

    /// A disk as found after a power loss now; each item that was not durable gets this fate. This
    /// one continues.
    pub fn crash_with(&self, mut fate: impl FnMut(&Item) -> Fate) -> Self {
        self.power_cut().state(|_, item| fate(item))
    }

    /// What is not durable, in order of arrival.
    pub fn unflushed(&self) -> Vec<Item> {
        self.power_cut().items().to_vec()
    }

    /// From now on, records the disk before each operation that makes something durable (a sync, a
    /// durable write, a sync of a directory), unless everything is durable already. The subsets of
    /// these cuts are all possible crash states.
    pub fn record_epochs(&self) {
        self.lock().epochs = Some(Vec::new());
    }

    /// What [`SimDisk::record_epochs`] has recorded since the last call.
    pub fn take_epochs(&self) -> Vec<PowerCut> {
        let epochs = self.lock().epochs.as_mut().map(std::mem::take).unwrap_or_default();
        epochs.into_iter().map(PowerCut::of).collect()
    }

    /// How many epochs were recorded since the disk was created. A caller that notes this number
    /// with each acknowledgement knows for every [`PowerCut`] what was acknowledged before it: see
    /// [`PowerCut::epoch`].
    pub fn epochs_recorded(&self) -> u64 {
        self.lock().epochs_recorded
    }

    /// Plans a fault.
    ///
    /// # Panics
    /// If its effect cannot happen to operations of its kind.
    pub fn inject(&self, fault: Fault) {
        self.lock().plans.add(fault);
    }

    /// Removes all plans that have not fired.
    pub fn clear_faults(&self) {
        self.lock().plans.clear();
    }

    /// Changes the disk's options from now on, including its rates of faults. The size of a sector
    /// stays.
    pub fn change_options(&self, change: impl FnOnce(&mut DiskOptions)) {
        let mut state = self.lock();
        let sector_bytes = state.options.sector_bytes;
        change(&mut state.options);
        state.options.sector_bytes = sector_bytes;
    }

    pub fn options(&self) -> DiskOptions {
        self.lock().options
    }

    /// Flips the bits of `mask` in a byte on the medium, as bit rot does. In memory too if the page
    /// is clean.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn rot(&self, directory: impl AsRef<Path>, file: &str, at: u64, mask: u8) {
        let mut state = self.lock();
        let number = state.directory(directory.as_ref());
        let inode =
            *state.directories[number].view.get(file).unwrap_or_else(|| panic!("no file {file:?}"));
        state.rot(inode, at, mask);
    }

    /// Drops every clean page, so that buffered reads see what the device has. Memory pressure may
    /// do that at any time.
    pub fn drop_caches(&self) {
        self.lock().drop_caches();
    }

    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// How many operations there were: the number of the last one.
    pub fn operations(&self) -> u64 {
        self.lock().operation
    }

    /// Every fault that fired, in order.
    pub fn history(&self) -> Vec<Event> {
        self.lock().history.clone()
    }

    /// Every file with its content as programs see it, by path.
    pub fn image(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.lock().image()
    }

    /// The content of the file at this path, as programs see it, if there is one.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        self.lock().content(path)
    }

    /// How long all files are together.
    pub fn size_bytes(&self) -> u64 {
        self.lock().size_bytes()
    }

    /// Whether a file on the medium holds `bytes` at a multiple of 8: at least 8 of them, not all
    /// zeros.
    pub fn medium_has(&self, bytes: &[u8]) -> bool {
        self.lock().medium_has(bytes)
    }
}

/// How many items [`PowerCut::subsets`] enumerates at most.
const MAX_ENUMERATED_ITEMS: usize = 20;

impl PowerCut {
    /// The disk as found if each item had this fate. With [`crate::DirectoryOrder::Prefix`] a
    /// directory operation after one that was not kept is not kept either, whatever its fate.
    pub fn state(&self, fate: impl FnMut(usize, &Item) -> Fate) -> SimDisk {
        SimDisk::from_state(self.found(self.seed(), fate))
    }

    /// The disk as found if exactly the items of the bits in `kept` were kept.
    ///
    /// # Panics
    /// If there are more than 64 items: they have no bits.
    pub fn subset(&self, kept: u64) -> SimDisk {
        let count = self.items().len();
        assert!(count <= 64, "{count} items in 64 bits");
        self.state(|index, _| if kept >> index & 1 == 1 { Fate::Kept } else { Fate::Dropped })
    }

    /// Every subset, from none to all; `None` if there are more than 20 items.
    pub fn subsets(&self) -> Option<impl Iterator<Item = SimDisk> + '_> {
        let count = self.items().len();
        (count <= MAX_ENUMERATED_ITEMS).then(|| (0..1_u64 << count).map(|kept| self.subset(kept)))
    }

    /// A disk as it may be found, drawn from a seed: everything or nothing, any subset, only whole
    /// writes, only what arrived first, all but one, one torn write.
    pub fn sample(&self, seed: u64) -> SimDisk {
        SimDisk::from_state(self.sampled(seed))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("SimDisk")
            .field("seed", &state.seed)
            .field("operations", &state.operation)
            .field("files", &state.inodes.len())
            .field("not_durable", &(state.pending.len() + state.pending_names.len()))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PowerCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PowerCut")
            .field("operation", &self.operation())
            .field("items", &self.items().len())
            .finish_non_exhaustive()
    }
}
