//! One writing of the lab: a way of writing with its sizes, its pass and the state of the page
//! cache; and its name.
//!
//! *Owns*: which ways are valid, and their names. *May not touch*: files, which are the runner's.

use inkstone_host::EngineKind;
use inkstone_io::{Access, Durability, NamedChoice, Preparation, Reuse, Strategy, named_choice};

named_choice! {
    /// Which pass over the blocks is measured.
    Pass, "pass" {
        First = "first", "the first pass over the prepared file";
        Second = "second", "a second pass over the same blocks";
    }
}

named_choice! {
    /// Whether the file's pages are in memory when the pass begins.
    Cache, "cache" {
        Warm = "warm", "the page cache as the preparation left it";
        Cold = "cold", "the file's pages dropped before the pass";
    }
}

/// One writing: everything that a run of it needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Writing {
    /// The way of writing.
    pub strategy: Strategy,
    /// What makes the system calls.
    pub engine: EngineKind,
    /// Bytes of one write, which is one commit.
    pub write_bytes: u64,
    /// Bytes of the file; a pass writes it once from front to back.
    pub file_bytes: u64,
    /// Which pass is measured.
    pub pass: Pass,
    /// The page cache before the pass.
    pub cache: Cache,
    /// Between preparation (or first pass) and the measured pass: a pause, in milliseconds.
    pub pause_ms: u64,
}

/// The default bytes of one write.
pub const WRITE_BYTES: u64 = 4096;
/// 8 MiB: 2,048 commits of 4 KiB, seconds per way on most disks.
pub const FILE_BYTES: u64 = 8 << 20;
/// About as much as raft-engine and RocksDB reserve at a time.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// By default a file has at least this many steps: a single step would be the same as `fallocate`.
const STEPS_MIN: u64 = 16;

/// The smallest write, 512 B.
pub const WRITE_BYTES_MIN: u64 = 512;
/// The largest write, 1 MiB.
pub const WRITE_BYTES_MAX: u64 = 1 << 20;

impl Writing {
    /// A writing of this strategy by the calling thread, with the default sizes.
    const fn of(strategy: Strategy) -> Self {
        Self {
            strategy,
            engine: EngineKind::Caller,
            write_bytes: WRITE_BYTES,
            file_bytes: FILE_BYTES,
            pass: Pass::First,
            cache: Cache::Warm,
            pause_ms: 0,
        }
    }

    /// Bytes of a step, for the preparations in steps: the sixteenth part of the file, at most 1
    /// MiB, and at least one write.
    pub fn step_bytes(&self) -> u64 {
        let bytes = (self.file_bytes / STEPS_MIN).min(STEP_BYTES_MAX).next_multiple_of(4096);
        bytes.max(self.write_bytes)
    }

    /// How many commits a whole pass has.
    pub fn commits(&self) -> u64 {
        self.file_bytes / self.write_bytes
    }

    /// Refuses sizes and combinations that contradict each other.
    ///
    /// # Errors
    /// The reason, as a sentence without a full stop.
    pub fn check(&self) -> Result<(), String> {
        self.strategy.check()?;
        self.check_engine()?;
        self.check_sizes()?;
        let (step_bytes, file_bytes) = (self.step_bytes(), self.file_bytes);
        if self.strategy.preparation.in_steps() && step_bytes >= file_bytes {
            return Err(format!(
                "a step of {step_bytes} bytes covers the whole file of {file_bytes}: that is one \
                 call, as without steps; take a larger --size"
            ));
        }
        if self.strategy.access == Access::Direct && self.cache == Cache::Cold {
            return Err(
                "cache cold means nothing with access direct, which bypasses the page cache".into(),
            );
        }
        Ok(())
    }

    fn check_engine(&self) -> Result<(), String> {
        let (Strategy { access, durability, .. }, engine) = (self.strategy, self.engine);
        let has_offsets = matches!(access, Access::Buffered | Access::Direct);
        if engine != EngineKind::Caller && !has_offsets {
            return Err(format!(
                "engine {engine} writes by file descriptor and offset, and access {access} does not"
            ));
        }
        let is_sync = matches!(durability, Durability::Fsync | Durability::Fdatasync);
        if engine == EngineKind::UringLinked && !is_sync {
            return Err(format!(
                "engine uring-linked links a write to its fsync or fdatasync, not to {durability}"
            ));
        }
        Ok(())
    }

    /// The part of [`Writing::check`] that is about sizes alone.
    ///
    /// # Errors
    /// As [`Writing::check`].
    pub fn check_sizes(&self) -> Result<(), String> {
        let Self { write_bytes, file_bytes, .. } = *self;
        if !(WRITE_BYTES_MIN..=WRITE_BYTES_MAX).contains(&write_bytes)
            || !write_bytes.is_power_of_two()
        {
            return Err(format!(
                "a write of {write_bytes} bytes: take a power of two from 512 to 1048576"
            ));
        }
        if file_bytes == 0 || !file_bytes.is_multiple_of(write_bytes.max(4096)) {
            let unit = write_bytes.max(4096);
            return Err(format!(
                "a file of {file_bytes} bytes: take a multiple of {unit}, for whole writes and \
                 blocks"
            ));
        }
        Ok(())
    }

    /// The published name of this way: `new`, `fallocate`, `zeros`, `reuse`, `reuse+zero-range`.
    fn way(&self) -> String {
        match (self.strategy.reuse, self.strategy.preparation) {
            (Reuse::New, Preparation::None) => "new".into(),
            (Reuse::New, preparation) => preparation.name().into(),
            (Reuse::Reuse, Preparation::None) => "reuse".into(),
            (Reuse::Reuse, preparation) => format!("reuse+{preparation}"),
        }
    }

    /// A unique name: the way, the durability, and what differs from the default.
    pub fn name(&self) -> String {
        let mut parts = vec![self.way()];
        if self.strategy.access != Access::Buffered {
            parts.push(self.strategy.access.name().into());
        }
        parts.push(match self.strategy.durability {
            Durability::None => "no-sync".into(),
            durability => durability.name().into(),
        });
        if self.engine != EngineKind::Caller {
            parts.push(self.engine.name().into());
        }
        if self.write_bytes != WRITE_BYTES {
            parts.push(size_name(self.write_bytes));
        }
        if self.pass == Pass::Second {
            parts.push("second-pass".into());
        }
        if self.cache == Cache::Cold {
            parts.push("cold".into());
        }
        parts.join(" ")
    }
}

/// What two writings differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Thing {
    /// The blocks that are written: new ones, prepared ones, those of an earlier file.
    Blocks,
    /// How bytes get into the file.
    Access,
    /// What makes a write durable.
    Durability,
    /// Who makes the calls.
    Engine,
    /// The pass over the blocks.
    Pass,
}

impl Writing {
    /// The writing of this name, with the default size of the file: the inverse of
    /// [`Writing::name`].
    ///
    /// # Errors
    /// The word that no way has, as a sentence without a full stop.
    pub fn named(name: &str) -> Result<Self, String> {
        let mut words = name.split(' ');
        let blocks = words.next().unwrap_or_default();
        let unknown = |word: &str| format!("no way is called {name:?}: {word:?} is no word of one");
        let preparation = |word: &str| Preparation::from_name(word).ok_or_else(|| unknown(word));
        let (reuse, preparation) = match blocks.split_once('+') {
            Some(("reuse", prepared)) => (Reuse::Reuse, preparation(prepared)?),
            Some(_) => return Err(unknown(blocks)),
            None if blocks == "new" => (Reuse::New, Preparation::None),
            None if blocks == "reuse" => (Reuse::Reuse, Preparation::None),
            None => (Reuse::New, preparation(blocks)?),
        };
        let (access, durability) = (Access::Buffered, Durability::None);
        let mut writing = Self::of(Strategy { preparation, reuse, access, durability });
        for word in words {
            let strategy = &mut writing.strategy;
            if let Some(access) = Access::from_name(word) {
                strategy.access = access;
            } else if let Some(engine) = EngineKind::from_name(word) {
                writing.engine = engine;
            } else if let Some(durability) = Durability::from_name(word) {
                strategy.durability = durability;
            } else if let Some(bytes) = size_named(word) {
                writing.write_bytes = bytes;
            } else {
                match word {
                    "no-sync" => {}
                    "second-pass" => writing.pass = Pass::Second,
                    "cold" => writing.cache = Cache::Cold,
                    _ => return Err(unknown(word)),
                }
            }
        }
        Ok(writing)
    }

    /// What two writings of the same load differ in. Nothing if the loads differ: bytes of a write
    /// or of the file, state of the page cache.
    pub fn differences(&self, other: &Self) -> Vec<Thing> {
        let load = |one: &Self| (one.write_bytes, one.file_bytes, one.cache, one.pause_ms);
        let blocks = |one: &Self| (one.strategy.preparation, one.strategy.reuse);
        if load(self) != load(other) {
            return Vec::new();
        }
        let (one, two) = (self.strategy, other.strategy);
        let things = [
            (blocks(self) != blocks(other), Thing::Blocks),
            (one.access != two.access, Thing::Access),
            (one.durability != two.durability, Thing::Durability),
            (self.engine != other.engine, Thing::Engine),
            (self.pass != other.pass, Thing::Pass),
        ];
        things.into_iter().filter_map(|(differs, thing)| differs.then_some(thing)).collect()
    }

    /// How far a way is from the plainest one: the lower, the plainer. The engine weighs most, and
    /// choices are declared with the plain ones first: blocks that a program writes anyway before
    /// those that it writes twice, calls before flags, one's own calls before an engine's.
    pub fn exoticism(&self) -> [u8; 5] {
        let Strategy { preparation, reuse, access, durability } = self.strategy;
        let blocks = preparation as u8 + reuse as u8;
        [self.engine as u8, access as u8, blocks, durability as u8, self.pass as u8]
    }
}

/// The size of this name, as [`size_name`] gives it.
fn size_named(word: &str) -> Option<u64> {
    let at = word.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = word.split_at(at);
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

/// A size as people write it: powers of two as `512B`, `4KiB`, `1MiB`, `2GiB`, others in bytes.
pub fn size_name(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_what_it_refuses() {
        let mut refused = 0;
        for &access in Access::ALL {
            for &durability in Durability::ALL {
                for &engine in EngineKind::ALL {
                    let (preparation, reuse) = (Preparation::None, Reuse::New);
                    let strategy = Strategy { preparation, reuse, access, durability };
                    let writing = Writing { engine, ..Writing::of(strategy) };
                    let Err(reason) = writing.check() else { continue };
                    refused += 1;
                    let names = [access.name(), durability.name(), engine.name()];
                    let is_named = names.iter().any(|name| reason.contains(name));
                    assert!(is_named, "{}: {reason}", writing.name());
                }
            }
        }
        let all = Access::ALL.len() * Durability::ALL.len() * EngineKind::ALL.len();
        assert!(refused > 0 && refused < all);
    }

    #[test]
    fn a_name_leads_back_to_its_way() {
        for name in [
            "new fsync",
            "reuse direct o-dsync",
            "reuse+zero-range no-sync 512B second-pass cold",
            "keep-size-steps mmap msync",
            "reuse direct fdatasync uring-linked 1MiB",
            "zeros stream-gather no-sync",
        ] {
            assert_eq!(Writing::named(name).expect("a way").name(), name);
        }
        for wrong in ["", "fsync", "new fdatasink", "old+zeros fsync", "new fsync 3XiB"] {
            assert!(Writing::named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_two_ways_of_one_load_differ_in_is_told_whole() {
        let things = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|name| Writing::named(name).expect("a way"));
            one.differences(&other)
        };
        assert_eq!(things("new fsync", "reuse fsync"), [Thing::Blocks]);
        assert_eq!(things("new fsync", "new fdatasync"), [Thing::Durability]);
        assert_eq!(things("new fsync", "new fsync second-pass"), [Thing::Pass]);
        assert_eq!(things("new fsync", "new fsync"), [], "a row beside itself");
        assert_eq!(things("new fsync", "reuse fdatasync"), [Thing::Blocks, Thing::Durability]);
        assert_eq!(things("new fsync", "reuse fsync 512B"), [], "another load");
        assert_eq!(things("new fsync", "new fsync cold"), [], "another load");
    }

    #[test]
    fn plain_ways_are_plainer() {
        let order = [
            "new fsync",
            "new fdatasync",
            "reuse fdatasync",
            "zeros fdatasync",
            "reuse direct fdatasync",
            "reuse direct rwf-dsync",
            "reuse direct rwf-dsync uring",
        ];
        let all = order.map(|name| Writing::named(name).expect("a way").exoticism());
        assert!(all.is_sorted(), "{all:?}");
    }

    #[test]
    fn steps_are_smaller_than_the_file() {
        let way = Writing::named("fallocate-steps fdatasync").expect("a way");
        for (file_bytes, write_bytes, steps) in
            [(64 << 10, 4096, 16), (8 << 20, 512, 16), (64 << 20, 4096, 64), (8 << 20, 1 << 20, 8)]
        {
            let writing = Writing { file_bytes, write_bytes, ..way };
            assert_eq!((writing.check(), file_bytes / writing.step_bytes()), (Ok(()), steps));
        }
        let one = Writing { file_bytes: 4096, write_bytes: 4096, ..way };
        assert!(one.check().is_err_and(|why| why.contains("one call")));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let good = Writing::named("reuse direct o-dsync").expect("a way");
        assert_eq!(good.check(), Ok(()));
        for (write_bytes, file_bytes) in
            [(0, 8192), (513, 8192), (2 << 20, 8 << 20), (4096, 5000), (8192, 12288)]
        {
            let bad = Writing { write_bytes, file_bytes, ..good };
            assert!(bad.check().is_err(), "{write_bytes} {file_bytes}");
        }
    }
}
