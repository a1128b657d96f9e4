//! The states that one power cut may leave, and iterating over all of them or over some.
//!
//! *Owns*: which items of a cut are chosen together, one by one, or at random. *May not touch*:
//! what an item is (`inkstone_sim`), what is done with a state.

use std::path::Path;

use inkstone_io::{Directory, File, OpenFile, SyncKind};
use inkstone_sim::{Fate, Item, ItemKind, PowerCut, SimDisk};
use inkstone_subject::Lie;

/// How the states of a cut are explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Each item by itself: any sector, size or name is there or not.
    Items,
    /// Each write whole or not at all.
    Writes,
    /// Each sector is there, is not, or holds garbage.
    Garbage,
    /// Each size is there or not; all data, none, or any of it.
    Sizes,
    /// Each creation, rename and removal is there or not; all data, none, or any of it.
    Names,
    /// Any of them, and then a bit rots in a file that is in use.
    Rot,
    /// Any of them, and then a piece of such a file is ruined.
    Ruin,
}

/// Whether files of that name are never read: one that is not a segment yet is removed unread.
pub fn is_unread(name: &str) -> bool {
    name.ends_with(".new")
}

/// Draws of the choices that are not enumerated, per enumerated state.
const DRAWS: u64 = 4;

#[derive(Debug)]
pub struct Space {
    cut: PowerCut,
    pick: Pick,
    /// For each item, which choice decides on it; `None`: drawn at random.
    choices: Vec<Option<u32>>,
    count: u32,
}

impl Space {
    pub fn of(cut: PowerCut, pick: Pick) -> Self {
        let mut writes: Vec<u64> = Vec::new();
        let mut count = 0;
        let mut next = || {
            count += 1;
            Some(count - 1)
        };
        let mut choose = |item: &Item| match (&item.what, pick) {
            (ItemKind::Sector { .. }, _) if is_unread(&item.file) => None,
            (ItemKind::Sector { .. } | ItemKind::Size { .. }, Pick::Writes) => {
                let known = writes.iter().position(|write| *write == item.write);
                let at = known.unwrap_or_else(|| {
                    writes.push(item.write);
                    writes.len() - 1
                });
                Some(at as u32)
            }
            (ItemKind::Sector { .. }, Pick::Sizes | Pick::Names) => None,
            (ItemKind::Size { .. } | ItemKind::Cut { .. }, Pick::Names) => None,
            (ItemKind::Create | ItemKind::Rename { .. } | ItemKind::Remove, Pick::Sizes) => None,
            (_, Pick::Writes) => None,
            _ => next(),
        };
        let choices = cut.items().iter().map(&mut choose).collect();
        let count = if pick == Pick::Writes { writes.len() as u32 } else { count };
        Self { cut, pick, choices, count }
    }

    /// How many outcomes a choice has.
    fn fates(&self) -> u64 {
        if self.pick == Pick::Garbage { 3 } else { 2 }
    }

    fn draws_unread_only(&self) -> bool {
        matches!(self.pick, Pick::Items | Pick::Garbage)
    }

    /// How many states [`Space::state`] enumerates, if they are no more than the subsets of
    /// `all_of` items.
    pub fn enumerated(&self, all_of: usize) -> Option<u64> {
        if let Pick::Rot | Pick::Ruin = self.pick {
            return None;
        }
        let count = self.fates().checked_pow(self.count).filter(|count| *count <= 1 << all_of)?;
        let is_complete = self.choices.iter().all(Option::is_some);
        Some(if is_complete || self.draws_unread_only() { count } else { count * DRAWS })
    }

    /// State `number` of those.
    pub fn state(&self, number: u64, seed: u64) -> SimDisk {
        let total = self.fates().pow(self.count);
        let mut digits = Vec::with_capacity(self.count as usize);
        let mut rest = number % total;
        for _ in 0..self.count {
            digits.push(rest % self.fates());
            rest /= self.fates();
        }
        // The first two draws are none and all; one random draw is enough for what nobody reads.
        let draw = if self.draws_unread_only() { DRAWS } else { number / total };
        self.found(&digits, draw, seed ^ number)
    }

    fn found(&self, digits: &[u64], draw: u64, seed: u64) -> SimDisk {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x7370_6163_6521);
        self.cut.state(|index, item| match self.choices[index] {
            Some(choice) => match digits[choice as usize] {
                0 => Fate::Dropped,
                1 => Fate::Kept,
                _ if matches!(item.what, ItemKind::Sector { .. }) => Fate::Garbage,
                _ => Fate::Kept,
            },
            None if draw == 1 || draw > 1 && rng.bool() => Fate::Kept,
            None => Fate::Dropped,
        })
    }

    /// One of them, and what else was done to it.
    pub fn sample(&self, seed: u64) -> (SimDisk, Option<Damage>) {
        if let Pick::Items | Pick::Rot | Pick::Ruin = self.pick {
            let found = self.cut.sample(seed);
            let damage = match self.pick {
                Pick::Items => None,
                pick => damage(&found, seed, pick),
            };
            return (found, damage);
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let digits: Vec<u64> = (0..self.count).map(|_| rng.u64(..self.fates())).collect();
        (self.found(&digits, rng.u64(..DRAWS), seed), None)
    }
}

/// What was done to a disk beside the cut.
#[derive(Debug)]
pub struct Damage {
    pub lie: Lie,
    pub note: String,
}

/// Damages a file that is in use.
fn damage(disk: &SimDisk, seed: u64, pick: Pick) -> Option<Damage> {
    const PIECE: usize = 64;
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x726F_7421);
    let image = disk.image();
    let is_in_use = |path: &Path| path.extension().is_some_and(|extension| extension == "ink");
    let files: Vec<_> = image.iter().filter(|(path, _)| is_in_use(path)).collect();
    if files.is_empty() {
        return None;
    }
    let (path, bytes) = files[rng.usize(..files.len())];
    // By pieces, since most of a file is zeros behind its last group.
    let is_zero = |piece: &&[u8]| **piece == [0; PIECE][..piece.len()];
    let zeros = PIECE * bytes.rchunks(PIECE).take_while(is_zero).count();
    let used = bytes.len().saturating_sub(zeros).max(1);
    let at = rng.u64(..used as u64);
    let name = path.file_name()?.to_string_lossy();
    let parent = path.parent()?;
    if pick == Pick::Ruin {
        let file = disk.directory(parent).open(&name, &OpenFile::existing()).ok()?;
        return ruin(&file, bytes, at, &mut rng);
    }
    let mask = 1 << rng.u32(..8);
    disk.rot(parent, &name, at, mask);
    Some(Damage { lie: Lie::Flipped, note: format!("{mask:#x} at byte {at} of {name} rots: ") })
}

/// Cuts a file short, or writes something over a piece of it: zeros, noise, or bytes of another
/// place, which are sound and not here.
fn ruin(file: &impl File, bytes: &[u8], at: u64, rng: &mut fastrand::Rng) -> Option<Damage> {
    let at = if rng.u8(..8) == 0 { 0 } else { at };
    let count = rng.usize(1..9000).min(bytes.len() - at as usize);
    let (what, piece) = match rng.u8(..4) {
        0 => ("zeros", Some(vec![0; count])),
        1 => ("noise", Some(std::iter::repeat_with(|| rng.u8(..)).take(count).collect())),
        2 => {
            let from = rng.usize(..=bytes.len() - count);
            ("bytes of another place", Some(bytes[from..from + count].to_vec()))
        }
        _ => ("gone, with all behind them", None),
    };
    match &piece {
        Some(piece) => file.write_at(piece, at).ok()?,
        None => file.set_len(at).ok()?,
    }
    file.sync(SyncKind::All).ok()?;
    let name = file.path().display();
    let note = format!("{count} bytes from byte {at} of {name} are {what}: ");
    Some(Damage { lie: Lie::Damaged, note })
}
