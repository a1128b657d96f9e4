//! What a power loss leaves: any subset of what was not durable, sampled from a seed or chosen item
//! by item.
//!
//! *Owns*: the instant of a cut and the disks found after it. *May not touch*: the disk itself,
//! which continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::content::{PAGE_BYTES, blocks_of};
use crate::durable::settle_in;
use crate::options::{DirectoryOrder, NewBlocks};
use crate::pending::{Change, Entry, NameChange, NameEntry, Place};
use crate::state::{Snapshot, State};

/// What happens to an item in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is on the medium.
    Kept,
    /// It is not.
    Dropped,
    /// The sector holds neither the old nor the new bytes. An item that is not a sector is dropped.
    Garbage,
}

/// Something that a crash keeps whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The file's name when the power was cut; for a rename its old name.
    pub file: Arc<str>,
    /// The write or operation that it belongs to; the sectors of one write share it. Numbers rise
    /// with time.
    pub write: u64,
    pub what: ItemKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// A sector that was written.
    Sector {
        offset: u64,
        place: Place,
    },
    /// The file's growth to this size.
    Size {
        to_bytes: u64,
    },
    /// The file's shrinking to this size.
    Cut {
        to_bytes: u64,
    },
    Create,
    Rename {
        to: Arc<str>,
    },
    Remove,
}

/// A disk at the instant of a power cut, with every state that may be found afterwards. It shares
/// everything that does not change with the disk itself, which continues.
#[derive(Clone)]
pub struct PowerCut {
    /// The files as on the medium.
    from: Snapshot,
    items: Vec<Item>,
    /// Which entry or name, and which of its sectors, each item is.
    sources: Vec<Source>,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Sector { entry: usize, offset: u64 },
    Whole { entry: usize },
    Name { name: usize },
}

impl PowerCut {
    pub(crate) fn of(mut from: Snapshot) -> Self {
        for inode in from.inodes.values_mut() {
            inode.view = inode.medium.clone();
            inode.size_bytes = inode.stable_bytes;
            inode.open = 0;
            inode.is_error_due = false;
            inode.is_tainted = false;
            inode.takes_room = true;
        }
        // On the medium, a file that shrank only in memory has its old length and its old blocks.
        for entry in &from.pending {
            if let Change::Cut { to, had, .. } = &entry.change {
                let inode = from.inodes.get_mut(&entry.inode).expect("an entry is of a file");
                inode.blocks.restore(*to, had);
            }
        }
        for directory in &mut from.directories {
            directory.view = directory.stable.clone();
        }
        let mut cut = Self { from, items: Vec::new(), sources: Vec::new() };
        cut.list_items();
        cut
    }

    /// Lists entries and names in one order of arrival, each split into the parts that a crash
    /// keeps whole.
    fn list_items(&mut self) {
        let mut names = self.from.pending_names.iter().enumerate().peekable();
        for (number, entry) in self.from.pending.iter().enumerate() {
            while let Some((name, earlier)) = names.next_if(|(_, name)| name.order < entry.order) {
                self.items.push(item_of_name(earlier));
                self.sources.push(Source::Name { name });
            }
            let file = &self.from.inodes[&entry.inode].name;
            let mut push = |what, source| {
                self.items.push(Item { file: Arc::clone(file), write: entry.write, what });
                self.sources.push(source);
            };
            match entry.change {
                Change::Cut { to, .. } => {
                    push(ItemKind::Cut { to_bytes: to }, Source::Whole { entry: number });
                }
                Change::Data { place, .. } => {
                    for offset in entry.range().step_by(self.from.options.sector_bytes) {
                        push(
                            ItemKind::Sector { offset, place },
                            Source::Sector { entry: number, offset },
                        );
                    }
                }
                Change::Size { to } => {
                    push(ItemKind::Size { to_bytes: to }, Source::Whole { entry: number })
                }
            }
        }
        for (name, later) in names {
            self.items.push(item_of_name(later));
            self.sources.push(Source::Name { name });
        }
    }

    /// What was not durable, in order of arrival.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The number of the operation at which the power was cut: the disk's last one. For a cut from
    /// `SimDisk::take_epochs` that is the operation that was about to make something durable.
    pub fn operation(&self) -> u64 {
        self.from.operation
    }

    /// How many epochs were recorded before this: what was acknowledged while
    /// `SimDisk::epochs_recorded` returned this number or a lower one must be found.
    pub fn epoch(&self) -> u64 {
        self.from.epoch
    }

    pub(crate) fn seed(&self) -> u64 {
        self.from.seed
    }

    pub(crate) fn sampled(&self, seed: u64) -> State {
        let mut rng = fastrand::Rng::with_seed(seed ^ self.from.seed);
        let data = Style::draw(&mut rng, self.items.len());
        let size = Style::draw(&mut rng, self.items.len());
        let names = Style::draw(&mut rng, self.items.len());
        // An order among directory operations leaves prefixes only: all of them equally likely.
        let is_journal = self.from.options.directory_order == DirectoryOrder::Prefix;
        let mut names_left =
            if is_journal { rng.usize(..=self.from.pending_names.len()) } else { 0 };
        let garbage =
            if self.from.options.garbage_at_crash && rng.bool() { rng.u32(1..=8) } else { 0 };
        self.found(rng.u64(..), |index, item| {
            let kept = match item.what {
                ItemKind::Sector { .. } if garbage > 0 && rng.u32(..16) < garbage => {
                    return Fate::Garbage;
                }
                ItemKind::Sector { .. } => data.keeps(index, item.write, &mut rng),
                ItemKind::Size { .. } | ItemKind::Cut { .. } => {
                    size.keeps(index, item.write, &mut rng)
                }
                _ if is_journal => {
                    let kept = names_left > 0;
                    names_left = names_left.saturating_sub(1);
                    kept
                }
                _ => names.keeps(index, item.write, &mut rng),
            };
            if kept { Fate::Kept } else { Fate::Dropped }
        })
    }

    /// The disk as found if each item had this fate.
    pub(crate) fn found(&self, seed: u64, mut fate: impl FnMut(usize, &Item) -> Fate) -> State {
        let mut state = State::new(seed, self.from.options);
        state.inodes = self.from.inodes.clone();
        state.directories = self.from.directories.clone();
        state.next_inode = self.from.next_inode;
        state.removed = self.from.removed.clone();
        if self.from.options.new_blocks != NewBlocks::Zeros {
            self.fill_new_blocks(&mut state);
        }
        let mut run = Run::default();
        let mut names_end = false;
        for (index, (item, &source)) in self.items.iter().zip(&self.sources).enumerate() {
            let fate = fate(index, item);
            match source {
                Source::Sector { entry, offset } if fate == Fate::Kept => {
                    let end = offset + self.from.options.sector_bytes as u64;
                    if !run.extend(entry, offset, end) {
                        run.apply(&self.from.pending, &mut state);
                        run = Run { entry, start: offset, end };
                    }
                }
                Source::Sector { entry, offset } => {
                    run.apply(&self.from.pending, &mut state);
                    run = Run::default();
                    if fate == Fate::Garbage {
                        let garbage: Vec<u8> = std::iter::repeat_with(|| state.rng.u8(..))
                            .take(self.from.options.sector_bytes)
                            .collect();
                        let inode = state.inode_mut(self.from.pending[entry].inode);
                        inode.medium.write(offset, &garbage);
                    }
                }
                Source::Whole { entry } if fate == Fate::Kept => {
                    run.apply(&self.from.pending, &mut state);
                    run = Run::default();
                    let entry = &self.from.pending[entry];
                    let inode = state.inode_mut(entry.inode);
                    if let Change::Cut { to, .. } = entry.change {
                        inode.blocks.cut(to);
                    }
                    settle_in(inode, entry);
                }
                Source::Name { name } if fate == Fate::Kept && !names_end => {
                    let entry = &self.from.pending_names[name];
                    entry.change.apply(&mut state.directories[entry.directory].view);
                }
                Source::Name { .. } => {
                    names_end = self.from.options.directory_order == DirectoryOrder::Prefix
                }
                Source::Whole { .. } => {}
            }
        }
        run.apply(&self.from.pending, &mut state);
        power_up(&mut state);
        state
    }

    /// Fills new blocks with what they show if their data was lost, before any data is applied.
    fn fill_new_blocks(&self, state: &mut State) {
        for source in &self.sources {
            let Source::Sector { entry, offset } = *source else { continue };
            let number = self.from.pending[entry].inode;
            let inode = &self.from.inodes[&number];
            let block = offset / PAGE_BYTES as u64;
            if offset < inode.stable_bytes
                || inode.blocks.settled.has(block)
                || inode.blocks.reserved.has(block)
            {
                continue;
            }
            let len = self.from.options.sector_bytes;
            let bytes = if self.from.options.new_blocks == NewBlocks::Garbage {
                std::iter::repeat_with(|| state.rng.u8(..)).take(len).collect()
            } else {
                self.from.removed.get(offset, len)
            };
            state.inode_mut(number).medium.write(offset, &bytes);
        }
    }
}

/// Adjacent sectors of one entry, applied together.
#[derive(Default)]
struct Run {
    entry: usize,
    start: u64,
    end: u64,
}

impl Run {
    fn extend(&mut self, entry: usize, offset: u64, end: u64) -> bool {
        let follows = self.end > self.start && self.entry == entry && self.end == offset;
        if follows {
            self.end = end;
        }
        follows
    }

    fn apply(&self, entries: &[Entry], state: &mut State) {
        if self.end > self.start {
            let entry = &entries[self.entry];
            let inode = state.inode_mut(entry.inode);
            // The file got this block after it had shrunk.
            inode.blocks.allocated.set(blocks_of(self.start, self.end - self.start), true);
            settle_in(inode, &entry.part(self.start..self.end));
        }
    }
}

fn item_of_name(entry: &NameEntry) -> Item {
    let (file, what) = match &entry.change {
        NameChange::Create { name, .. } => (name, ItemKind::Create),
        NameChange::Rename { from, to, .. } => (from, ItemKind::Rename { to: Arc::clone(to) }),
        NameChange::Remove { name, .. } => (name, ItemKind::Remove),
    };
    Item { file: Arc::clone(file), write: entry.order, what }
}

/// Turns the files and names on the medium into a disk that was just powered on: files without a
/// name are gone, nothing is beyond a file's end, memory shows what the medium has.
fn power_up(state: &mut State) {
    let mut found = BTreeMap::new();
    for (number, directory) in state.directories.iter_mut().enumerate() {
        directory.stable = directory.view.clone();
        for (name, inode) in &directory.view {
            let Some(mut file) = state.inodes.remove(inode) else { continue };
            file.name = Arc::clone(name);
            file.directory = number;
            file.size_bytes = file.stable_bytes;
            file.medium.cut(file.stable_bytes);
            file.view = file.medium.clone();
            state.used_blocks += file.blocks.allocated.count();
            found.insert(*inode, file);
        }
    }
    state.inodes = found;
}

/// How a sampled crash chooses among what a disk may keep.
#[derive(Debug, Clone, Copy)]
pub enum Style {
    None,
    All,
    /// Each by itself, with this chance in 256.
    Each(u8),
    /// Each write whole or not.
    Writes(u64),
    /// What arrived before this, or after.
    Before(usize),
    After(usize),
    AllBut(usize),
    Only(usize),
}

impl Style {
    /// One for so many items.
    pub fn draw(rng: &mut fastrand::Rng, items: usize) -> Self {
        let any = rng.usize(..items.max(1));
        match rng.u32(..10) {
            0 => Self::None,
            1 => Self::All,
            2 | 3 => Self::Each([26, 128, 230][rng.usize(..3)]),
            4 | 5 => Self::Writes(rng.u64(..)),
            6 => Self::Before(any),
            7 => Self::After(any),
            8 => Self::AllBut(any),
            _ => Self::Only(any),
        }
    }

    /// Whether it keeps this item, which is of this write.
    pub fn keeps(self, index: usize, write: u64, rng: &mut fastrand::Rng) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Each(chance) => rng.u8(..) < chance,
            Self::Writes(salt) => {
                let mixed = (write ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                mixed >> 63 == 1
            }
            Self::Before(cut) => index < cut,
            Self::After(cut) => index > cut,
            Self::AllBut(one) => index != one,
            Self::Only(one) => index == one,
        }
    }
}
