//! The states in which a power cut may leave a disk, computed from a recording of what reached it.
//!
//! *Owns*: which sectors may be there and which not, and choosing among the states. *May not
//! touch*: what is checked in a state.
//!
//! Everything before the last flush is on the medium. Of the later writes, each sector (512 bytes)
//! is there or not, independently; of several versions of a sector the newest one that is there is
//! found. A discard is there whole or not at all.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::image::{Image, SECTOR_BYTES};
use super::recording::{Entry, Recording};

/// What a crash keeps whole or not at all.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The entry of the recording that it is a part of.
    pub entry: usize,
    pub sector: u64,
    /// How many: one, but for a discard.
    pub sectors: u64,
    /// The entry's bytes, and the position of this sector in them; `None`: zeros.
    data: Option<(Arc<[u8]>, usize)>,
}

impl Unit {
    /// The bytes of a written sector; `None`: all its sectors become zeros.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.data.as_ref().map(|(bytes, at)| &bytes[*at..*at + SECTOR_BYTES])
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
                    units.extend((0..bytes.len() / SECTOR_BYTES).map(|index| Unit {
                        entry: number,
                        sector: sector + index as u64,
                        sectors: 1,
                        data: Some((Arc::clone(bytes), index * SECTOR_BYTES)),
                    }));
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

    pub fn kept(&self, subset: Subset) -> Kept {
        keep(&self.units, subset)
    }

    /// Parses which units are kept from a command line: a [`Subset`], or `exactly:0110`, a digit
    /// for each unit.
    pub fn kept_by_words(&self, words: &str) -> Result<Kept, String> {
        let Some(digits) = words.strip_prefix("exactly:") else {
            return Ok(self.kept(words.parse()?));
        };
        if digits.len() != self.units.len()
            || digits.bytes().any(|digit| !matches!(digit, b'0' | b'1'))
        {
            let units = self.units.len();
            return Err(format!(
                "{words:?}: {units} units are in flight there, so take {units} digits 0 or 1"
            ));
        }
        Ok(digits.bytes().map(|digit| digit == b'1').collect())
    }

    pub fn state(&self, kept: &[bool]) -> Image {
        let mut image = self.durable.clone();
        let there = self.units.iter().zip(kept).filter(|(_, kept)| **kept);
        there.for_each(|(unit, _)| unit.apply(&mut image));
        image
    }
}

/// A way to choose the units that are there. As text it is what a command line takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subset {
    None,
    All,
    /// This many units from the start.
    Prefix(usize),
    /// All but this unit.
    Without(usize),
    /// Only this unit.
    Only(usize),
    /// The units whose bits are set in a number; for cuts of up to 64 units.
    Bits(u64),
    /// Whole writes, each with even odds.
    Writes(u64),
    /// Whole writes up to some write, of which any part is there.
    Torn(u64),
    /// Single sectors, with odds that are drawn too.
    Sectors(u64),
}

impl fmt::Display for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::Prefix(count) => write!(f, "prefix:{count}"),
            Self::Without(unit) => write!(f, "without:{unit}"),
            Self::Only(unit) => write!(f, "only:{unit}"),
            Self::Bits(bits) => write!(f, "bits:{bits}"),
            Self::Writes(seed) => write!(f, "writes:{seed}"),
            Self::Torn(seed) => write!(f, "torn:{seed}"),
            Self::Sectors(seed) => write!(f, "sectors:{seed}"),
        }
    }
}

impl FromStr for Subset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, number) = text.split_once(':').unwrap_or((text, "0"));
        let number: u64 =
            number.parse().map_err(|_| format!("{text:?}: {number:?} is not a number"))?;
        Ok(match word {
            "none" => Self::None,
            "all" => Self::All,
            "prefix" => Self::Prefix(number as usize),
            "without" => Self::Without(number as usize),
            "only" => Self::Only(number as usize),
            "bits" => Self::Bits(number),
            "writes" => Self::Writes(number),
            "torn" => Self::Torn(number),
            "sectors" => Self::Sectors(number),
            _ => {
                return Err(format!(
                    "{text:?}: take none, all, prefix:N, without:N, only:N, bits:N, writes:SEED, \
                     torn:SEED or sectors:SEED"
                ));
            }
        })
    }
}

/// Which of `units` a subset keeps.
pub fn keep(units: &[Unit], subset: Subset) -> Kept {
    let count = units.len();
    let each = |keeps: &mut dyn FnMut(usize) -> bool| (0..count).map(keeps).collect();
    match subset {
        Subset::None => vec![false; count],
        Subset::All => vec![true; count],
        Subset::Prefix(end) => each(&mut |unit| unit < end),
        Subset::Without(left_out) => each(&mut |unit| unit != left_out),
        Subset::Only(only) => each(&mut |unit| unit == only),
        Subset::Bits(bits) => each(&mut |unit| unit < 64 && bits >> unit & 1 == 1),
        Subset::Writes(seed) => {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut last = None;
            each(&mut |unit| match last {
                Some((entry, kept)) if entry == units[unit].entry => kept,
                _ => last.insert((units[unit].entry, rng.bool())).1,
            })
        }
        Subset::Torn(seed) => {
            let mut rng = fastrand::Rng::with_seed(seed);
            let torn = if count == 0 { 0 } else { units[rng.usize(..count)].entry };
            each(&mut |unit| units[unit].entry < torn || units[unit].entry == torn && rng.bool())
        }
        Subset::Sectors(seed) => {
            let mut rng = fastrand::Rng::with_seed(seed);
            let odds = rng.u8(1..=15);
            each(&mut |_| rng.u8(..16) < odds)
        }
    }
}

/// These units as text for [`Cut::kept_by_words`].
pub fn exactly(kept: &[bool]) -> String {
    let digits: String = kept.iter().map(|kept| if *kept { '1' } else { '0' }).collect();
    format!("exactly:{digits}")
}

/// At most `most` subsets of `units`, no two of them equal: every one if there are so few;
/// otherwise none, all, a selection of prefixes and of subsets without one unit, and random ones.
pub fn choose(units: &[Unit], most: usize, seed: u64) -> Vec<(Subset, Kept)> {
    let count = units.len();
    let mut seen = std::collections::HashSet::new();
    let mut chosen = Vec::new();
    let mut add = |subset: Subset| {
        let kept = keep(units, subset);
        if chosen.len() < most && seen.insert(kept.clone()) {
            chosen.push((subset, kept));
        }
        chosen.len() < most
    };
    if count < 20 && 1_usize << count <= most {
        (0..1 << count).all(|bits| add(Subset::Bits(bits)));
        return chosen;
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    // Few states shall be of different kinds, many shall cover all kinds.
    add([Subset::None, Subset::All][usize::from(rng.bool())]);
    for _ in 0..most.saturating_mul(16) {
        let unit = rng.usize(..count);
        let more = add(match rng.u8(..16) {
            0 => Subset::None,
            1 => Subset::All,
            2 | 3 => Subset::Prefix(unit),
            4 | 5 => Subset::Without(unit),
            6 => Subset::Only(unit),
            7..=9 => Subset::Writes(rng.u64(..)),
            10..=12 => Subset::Torn(rng.u64(..)),
            _ => Subset::Sectors(rng.u64(..)),
        });
        if !more {
            break;
        }
    }
    chosen
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
                assert_eq!(cut.kept_by_words(&subset.to_string()).as_ref(), Ok(kept));
                assert_eq!(cut.kept_by_words(&exactly(kept)).as_ref(), Ok(kept));
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
        assert!(cut.kept_by_words("exactly:01").expect_err("too few").contains("3 digits"));
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
            assert_eq!(
                keep(&units, subset.to_string().parse().expect("its own words")),
                kept,
                "{subset}"
            );
        }
        assert!("some:1".parse::<Subset>().expect_err("no subset").contains("torn:SEED"));
    }

    #[test]
    fn a_discard_is_whole_or_not_there() {
        let entries = vec![write(0, 4, 5), Entry::Flush, Entry::Discard { sector: 1, sectors: 2 }];
        let recording = Recording { entries };
        let mut player = Player::new(&recording, Image::new(4096));
        player.play(3);
        let cut = player.cut();
        assert_eq!(first_bytes(&cut.state(&cut.kept(Subset::All))), [5, 0, 0, 5]);
        assert_eq!(first_bytes(&cut.state(&cut.kept(Subset::None))), [5; 4]);
    }
}
