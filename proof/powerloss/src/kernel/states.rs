//! The states in which a power cut may leave a disk, computed from a recording of what reached it.
//!
//! *Owns*: which sectors may be there and which not, and choosing among the states. *May not
//! touch*: what is checked in a state.
//!
//! Everything before the last flush is on the medium. Of the later writes, each sector (512 bytes)
//! is there or not, independently; of several versions of a sector the newest one that is there is
//! found. A discard is there whole or not at all, and so is a superblock of btrfs and of ext4: it
//! has 4 KiB and 1 KiB, one checksum for all of it, a mount reads one of its copies alone, before
//! any journal, and half of it mounts nowhere. Such a state says nothing of the program that wrote
//! there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use inkstone_sim::Style;

use super::image::{Image, SECTOR_BYTES};
use super::recording::{Entry, Recording};

/// The superblock of a file system that is checked as a whole.
struct Superblock {
    /// It and the copies that a mount may read.
    at_sectors: &'static [u64],
    sectors: usize,
    magic_at: usize,
    magic: &'static [u8],
}

const SUPERBLOCKS: [Superblock; 2] = [BTRFS, EXT4];
const BTRFS: Superblock =
    Superblock { at_sectors: &[128, 131_072], sectors: 8, magic_at: 64, magic: b"_BHRfS_M" };
const EXT4: Superblock =
    Superblock { at_sectors: &[2], sectors: 2, magic_at: 56, magic: &[0x53, 0xEF] };

/// What a crash keeps whole or not at all.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The entry of the recording that it is a part of.
    pub entry: usize,
    pub sector: u64,
    /// How many: one, but for a discard and a superblock.
    pub sectors: u64,
    /// The entry's bytes, and the position of this sector in them; `None`: zeros.
    data: Option<(Arc<[u8]>, usize)>,
}

impl Unit {
    /// The bytes that are written; `None`: all its sectors become zeros.
    pub fn bytes(&self) -> Option<&[u8]> {
        let len = self.sectors as usize * SECTOR_BYTES;
        self.data.as_ref().map(|(bytes, at)| &bytes[*at..*at + len])
    }

    /// Puts it on the medium.
    pub fn apply(&self, image: &mut Image) {
        let at = self.sector * SECTOR_BYTES as u64;
        match self.bytes() {
            Some(bytes) => image.write(at, bytes),
            None => image.clear(at, self.sectors * SECTOR_BYTES as u64),
        }
    }
}

/// Plays a recording from its start.
#[derive(Debug, Clone)]
pub struct Player<'a> {
    recording: &'a Recording,
    next: usize,
    durable: Image,
    since: usize,
}

impl<'a> Player<'a> {
    /// A player onto a disk that holds `base` (for a whole recording: zeros).
    pub fn new(recording: &'a Recording, base: Image) -> Self {
        Self { recording, next: 0, durable: base, since: 0 }
    }

    /// Plays up to this many entries, counted from the recording's start. It never goes back.
    pub fn play(&mut self, to: usize) {
        let entries = &self.recording.entries;
        let to = to.min(entries.len());
        if let Some(flush) = (self.next..to).rfind(|&at| entries[at] == Entry::Flush) {
            entries[self.since..flush].iter().for_each(|entry| entry.apply(&mut self.durable));
            self.since = flush + 1;
        }
        self.next = self.next.max(to);
    }

    pub fn cut(&self) -> Cut {
        let unflushed = &self.recording.entries[self.since..self.next];
        Cut::of(self.durable.clone(), self.since, unflushed)
    }
}

/// The moment at which the power is cut, with everything that may be found afterwards.
#[derive(Debug, Clone)]
pub struct Cut {
    /// This many entries had reached the disk.
    pub entry: usize,
    /// What is there for sure.
    pub durable: Image,
    /// What may be there, in the order of writing.
    pub units: Vec<Unit>,
}

/// Which units are there.
pub type Kept = Vec<bool>;

impl Cut {
    /// What is there for sure, and the entries since, of which the first has this number.
    pub fn of(durable: Image, since: usize, unflushed: &[Entry]) -> Self {
        let mut units = Vec::new();
        for (number, entry) in (since..).zip(unflushed) {
            match entry {
                Entry::Write { sector, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() / SECTOR_BYTES * SECTOR_BYTES {
                        let sector = sector + (at / SECTOR_BYTES) as u64;
                        let sectors = whole_sectors(sector, &bytes[at..]);
                        let data = Some((Arc::clone(bytes), at));
                        units.push(Unit { entry: number, sector, sectors: sectors as u64, data });
                        at += sectors * SECTOR_BYTES;
                    }
                }
                Entry::Discard { sector, sectors } => {
                    let (sector, sectors) = (*sector, *sectors);
                    units.push(Unit { entry: number, sector, sectors, data: None });
                }
                Entry::Flush | Entry::Mark(_) => {}
            }
        }
        Self { entry: since + unflushed.len(), durable, units }
    }

    pub fn state(&self, kept: &[bool]) -> Image {
        let mut image = self.durable.clone();
        let there = self.units.iter().zip(kept).filter(|(_, kept)| **kept);
        there.for_each(|(unit, _)| unit.apply(&mut image));
        image
    }
}

/// How many sectors at the beginning of `bytes` are there together or not at all.
fn whole_sectors(sector: u64, bytes: &[u8]) -> usize {
    let is_here = |block: &&Superblock| {
        block.at_sectors.contains(&sector)
            && bytes.len() >= block.sectors * SECTOR_BYTES
            && bytes[block.magic_at..].starts_with(block.magic)
    };
    SUPERBLOCKS.iter().find(is_here).map_or(1, |block| block.sectors)
}

/// A way to choose the units that are there. As text it is what a command line takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subset {
    None,
    All,
    /// The units whose bits are set in a number; for cuts of up to 64 units.
    Bits(u64),
    /// As a simulated disk draws them, from this seed.
    Drawn(u64),
}

impl fmt::Display for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::Bits(bits) => write!(f, "bits:{bits}"),
            Self::Drawn(seed) => write!(f, "drawn:{seed}"),
        }
    }
}

impl FromStr for Subset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, number) = text.split_once(':').unwrap_or((text, "0"));
        match (word, number.parse()) {
            ("none", Ok(0)) => Ok(Self::None),
            ("all", Ok(0)) => Ok(Self::All),
            ("bits", Ok(number)) => Ok(Self::Bits(number)),
            ("drawn", Ok(number)) => Ok(Self::Drawn(number)),
            _ => Err(format!("{text:?}: take none, all, bits:N or drawn:SEED")),
        }
    }
}

/// Which of `units` a subset keeps.
pub fn keep(units: &[Unit], subset: Subset) -> Kept {
    let count = units.len();
    match subset {
        Subset::None => vec![false; count],
        Subset::All => vec![true; count],
        Subset::Bits(bits) => (0..count).map(|unit| unit < 64 && bits >> unit & 1 == 1).collect(),
        Subset::Drawn(seed) => {
            let mut rng = fastrand::Rng::with_seed(seed);
            let style = Style::draw(&mut rng, count);
            let units = units.iter().enumerate();
            units.map(|(at, unit)| style.keeps(at, unit.entry as u64, &mut rng)).collect()
        }
    }
}

/// At most `most` subsets of `units`, no two of them equal: every one if there are so few;
/// otherwise none or all, and drawn ones.
pub fn choose(units: &[Unit], most: usize, seed: u64) -> Vec<(Subset, Kept)> {
    let count = units.len();
    let with_kept = |subset| {
        let kept = keep(units, subset);
        (subset, kept)
    };
    if count < 20 && 1_usize << count <= most {
        let every = (0..1 << count).map(Subset::Bits);
        return every.map(with_kept).collect();
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    let first = if rng.bool() { Subset::All } else { Subset::None };
    let drawn = std::iter::repeat_with(|| Subset::Drawn(rng.u64(..)));
    let mut seen = std::collections::HashSet::new();
    std::iter::once(first)
        .chain(drawn.take(most.saturating_mul(16)))
        .map(with_kept)
        .filter(|(_, kept)| seen.insert(kept.clone()))
        .take(most)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, sectors: usize, value: u8) -> Entry {
        Entry::Write { sector, bytes: vec![value; sectors * SECTOR_BYTES].into() }
    }

    fn first_bytes(image: &Image) -> Vec<u8> {
        let mut bytes = vec![0; 4 * SECTOR_BYTES];
        image.read(0, &mut bytes);
        bytes.iter().copied().step_by(SECTOR_BYTES).collect()
    }

    #[test]
    fn every_state_of_a_small_cut() {
        let mark = Entry::Mark("x".into());
        let entries = vec![
            write(0, 2, 1),
            Entry::Flush,
            mark,
            write(1, 2, 2),
            write(1, 1, 3),
            Entry::Flush,
            write(0, 1, 9),
        ];
        let recording = Recording { entries };
        let mut player = Player::new(&recording, Image::new(4096));
        player.play(1);
        assert_eq!((player.cut().units.len(), first_bytes(&player.cut().durable)), (2, vec![0; 4]));
        player.play(5);
        let cut = player.cut();
        let mut found: Vec<_> = choose(&cut.units, 1000, 1)
            .iter()
            .map(|(subset, kept)| {
                let again = subset.to_string().parse().expect("its own words");
                assert_eq!(keep(&cut.units, again), *kept, "{subset}");
                first_bytes(&cut.state(kept))
            })
            .collect();
        assert_eq!(found.len(), 8);
        found.sort();
        found.dedup();
        // The older version of sector 1 never wins over the newer one.
        let expected =
            [[1, 1, 0, 0], [1, 1, 2, 0], [1, 2, 0, 0], [1, 2, 2, 0], [1, 3, 0, 0], [1, 3, 2, 0]];
        assert_eq!(found, expected);
        player.play(7);
        assert_eq!(first_bytes(&player.cut().durable), [1, 3, 2, 0]);
        assert_eq!(player.cut().units.len(), 1);
    }

    #[test]
    fn large_cuts_are_sampled_and_no_state_twice() {
        let entries = (0..10).map(|index| write(index * 8, 8, 1)).collect();
        let recording = Recording { entries };
        let mut player = Player::new(&recording, Image::new(1 << 20));
        player.play(10);
        let units = player.cut().units;
        let chosen = choose(&units, 200, 7);
        assert_eq!(chosen.len(), 200);
        let mut kept: Vec<_> = chosen.iter().map(|(_, kept)| kept.clone()).collect();
        kept.sort();
        kept.dedup();
        assert_eq!(kept.len(), 200);
        for (subset, kept) in chosen {
            let again = subset.to_string().parse().expect("its own words");
            assert_eq!(keep(&units, again), kept, "{subset}");
        }
        assert!("some:1".parse::<Subset>().expect_err("no subset").contains("drawn:SEED"));
    }

    /// Neither mounts half of one: "superblock checksum mismatch", "invalid superblock checksum".
    #[test]
    fn a_superblock_is_whole_or_not_there() {
        for Superblock { at_sectors, sectors, magic_at, magic } in SUPERBLOCKS {
            let mut bytes = vec![7; (2 + sectors) * SECTOR_BYTES];
            let at = 2 * SECTOR_BYTES + magic_at;
            bytes[at..at + magic.len()].copy_from_slice(magic);
            let units_at = |sector| {
                let entries = [Entry::Write { sector, bytes: bytes.clone().into() }];
                Cut::of(Image::new(1 << 20), 0, &entries).units
            };
            let first = at_sectors[0];
            let units = units_at(first - 2);
            let found: Vec<_> = units.iter().map(|unit| (unit.sector, unit.sectors)).collect();
            assert_eq!(found, [(first - 2, 1), (first - 1, 1), (first, sectors as u64)]);
            assert_eq!(units[2].bytes(), Some(&bytes[2 * SECTOR_BYTES..]));
            assert_eq!(units_at(300).len(), 2 + sectors, "elsewhere it is a file's");
        }
    }

    #[test]
    fn a_discard_is_whole_or_not_there() {
        let entries = vec![write(0, 4, 5), Entry::Flush, Entry::Discard { sector: 1, sectors: 2 }];
        let recording = Recording { entries };
        let mut player = Player::new(&recording, Image::new(4096));
        player.play(3);
        let cut = player.cut();
        assert_eq!(first_bytes(&cut.state(&keep(&cut.units, Subset::All))), [5, 0, 0, 5]);
        assert_eq!(first_bytes(&cut.state(&keep(&cut.units, Subset::None))), [5; 4]);
    }
}
