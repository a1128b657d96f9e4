//! The bytes of each step, and what is left of them in a directory.
//!
//! *Owns*: which bytes belong where, and comparing, byte by byte, what is found with what was
//! acknowledged. *May not touch*: how they got there.
//!
//! Step 0 is what a file held before the first step. No byte of a step is zero, and no byte equals
//! that of another step at the same place: so each byte shows whether it is new, old or never
//! written.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::plain::{BLOCK_BYTES, Before, Plan, Shape, Trial};

/// The file that holds all steps.
pub const DATA: &str = "data";
/// The file that is renamed to [`DATA`].
pub const NEW: &str = "data.new";

/// The file of one step, where each has its own.
pub fn file_of(step: usize) -> String {
    format!("step-{step}")
}

/// The bytes of a step: from the seed, 1 to 255, different from all others at the same place.
pub fn bytes_of(seed: u64, step: usize, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| ((rng.u64(..255) + step as u64) % 255) as u8 + 1).collect()
}

/// What is left of the acknowledged steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Steps of which nothing is there.
    pub lost: Vec<usize>,
    /// Steps of which a part is there.
    pub torn: Vec<usize>,
    /// Steps in whose place is something that was never written there, or nothing where something
    /// old should be.
    pub garbage: Vec<usize>,
    /// The first that is not whole, in words.
    pub words: String,
    /// Of a file that is written in batches: a block that is there after one that is not,
    /// acknowledged or not, in words.
    pub hole: Option<String>,
}

enum Piece {
    Whole,
    Old,
    Torn,
    Garbage,
}

impl Left {
    /// How many acknowledged steps are not there whole.
    pub fn missing(&self) -> usize {
        self.lost.len() + self.torn.len() + self.garbage.len()
    }

    /// Whether something is there that is neither whole nor cleanly missing.
    pub fn is_damaged(&self) -> bool {
        !self.torn.is_empty() || !self.garbage.is_empty()
    }

    fn add(&mut self, step: usize, piece: Piece, words: impl FnOnce() -> String) {
        match piece {
            Piece::Whole => return,
            Piece::Old => self.lost.push(step),
            Piece::Torn => self.torn.push(step),
            Piece::Garbage => self.garbage.push(step),
        }
        if self.words.is_empty() {
            self.words = words();
        }
    }
}

/// Reads what is left in `directory` after `acked` steps were acknowledged.
pub fn look(trial: &Trial, directory: &Path, acked: usize) -> Result<Left, String> {
    let plan = trial.strategy.plan();
    let seen = Seen { trial, plan, directory, acked };
    match plan.shape {
        Shape::Slots => seen.slots(),
        Shape::Batches => seen.batches(),
        Shape::Size => seen.size(),
        Shape::Files => seen.files(),
        Shape::Replaced => seen.replaced(),
    }
}

struct Seen<'a> {
    trial: &'a Trial,
    plan: Plan,
    directory: &'a Path,
    acked: usize,
}

impl Seen<'_> {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let path = self.directory.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        }
    }

    fn bytes_of(&self, step: usize) -> Vec<u8> {
        bytes_of(self.trial.seed, step, self.plan.record_bytes())
    }

    fn slots(&self) -> Result<Left, String> {
        let found = self.read(DATA)?;
        let mut left = Left::default();
        let len = self.plan.record_bytes();
        let written_before = self.plan.before == Before::Written;
        let old = if written_before { self.bytes_of(0) } else { vec![0; len] };
        for step in 1..=self.acked {
            let place = (step - 1) * len;
            let bytes = found.as_deref().unwrap_or_default();
            let there = &bytes[place.min(bytes.len())..(place + len).min(bytes.len())];
            let piece = if found.is_none() {
                Piece::Garbage
            } else {
                compare(there, &self.bytes_of(step), &old)
            };
            left.add(step, piece, || match &found {
                None => format!("{DATA} is missing"),
                Some(bytes) => format!("step {step}: {}", describe(there, bytes.len(), len)),
            });
        }
        Ok(left)
    }

    /// As slots; and among all blocks, also those of the step in progress, a block that is not
    /// whole before one that is there at least in part.
    fn batches(&self) -> Result<Left, String> {
        let mut left = self.slots()?;
        let found = self.read(DATA)?.unwrap_or_default();
        let steps = 1..=self.trial.steps.min(self.acked + 1);
        let written: Vec<u8> = steps.flat_map(|step| self.bytes_of(step)).collect();
        let mut missing = None;
        for (number, expected) in written.chunks(BLOCK_BYTES).enumerate() {
            let place = number * BLOCK_BYTES;
            let there = &found[place.min(found.len())..(place + BLOCK_BYTES).min(found.len())];
            let is_there = there.iter().zip(expected).any(|(byte, new)| byte == new);
            match (missing, is_there) {
                (Some(first), true) => {
                    left.hole = Some(format!(
                        "block {number} is there, but block {first} is not, in a file of {} bytes",
                        found.len()
                    ));
                    break;
                }
                (None, _) if there != expected => missing = Some(number),
                _ => {}
            }
        }
        Ok(left)
    }

    fn size(&self) -> Result<Left, String> {
        let found = self.read(DATA)?;
        let mut left = Left::default();
        for step in 1..=self.acked {
            let piece = match &found {
                None => Piece::Garbage,
                Some(bytes) if bytes.len() < step * self.plan.record_bytes() => Piece::Old,
                Some(_) => Piece::Whole,
            };
            left.add(step, piece, || match &found {
                None => format!("{DATA} is missing"),
                Some(bytes) => format!("step {step}: {DATA} has {} bytes", bytes.len()),
            });
        }
        Ok(left)
    }

    fn files(&self) -> Result<Left, String> {
        let mut left = Left::default();
        for step in 1..=self.acked {
            let name = file_of(step);
            let expected = self.bytes_of(step);
            let found = self.read(&name)?;
            let piece = match &found {
                None => Piece::Old,
                Some(bytes) if bytes.len() > expected.len() => Piece::Garbage,
                // The name is there: an empty file is not the same as no file.
                Some(bytes) => match compare(bytes, &expected, &vec![0; expected.len()]) {
                    Piece::Old => Piece::Torn,
                    other => other,
                },
            };
            left.add(step, piece, || match &found {
                None => format!("{name} is missing"),
                Some(bytes) => {
                    format!("{name} is there: {}", describe(bytes, bytes.len(), expected.len()))
                }
            });
        }
        Ok(left)
    }

    fn replaced(&self) -> Result<Left, String> {
        let mut left = Left::default();
        let Some(found) = self.read(DATA)? else {
            left.add(self.acked, Piece::Garbage, || {
                format!("{DATA} is missing, the old one and the new one")
            });
            return Ok(left);
        };
        // One more than acknowledged: the step in progress.
        let version = (0..=self.acked + 1).rev().find(|&step| self.bytes_of(step) == found);
        match version {
            Some(version) => (version + 1..=self.acked).for_each(|step| {
                left.add(step, Piece::Old, || format!("{DATA} is that of step {version}, whole"));
            }),
            None => left.add(self.acked, Piece::Garbage, || {
                let what = describe(&found, found.len(), self.plan.record_bytes());
                format!("{DATA} is neither the old one nor the new one: {what}")
            }),
        }
        Ok(left)
    }
}

/// Missing bytes at the end count as zeros: the file is shorter there.
fn compare(there: &[u8], new: &[u8], old: &[u8]) -> Piece {
    if there == new {
        return Piece::Whole;
    }
    let (mut some_new, mut all_known) = (false, true);
    for (at, (new, old)) in new.iter().zip(old).enumerate() {
        let byte = there.get(at).copied().unwrap_or(0);
        some_new |= byte == *new;
        all_known &= byte == *new || byte == *old;
    }
    match (all_known, some_new) {
        (true, true) => Piece::Torn,
        (true, false) => Piece::Old,
        (false, _) => Piece::Garbage,
    }
}

fn describe(there: &[u8], file_bytes: usize, record_bytes: usize) -> String {
    let zeros = there.iter().filter(|byte| **byte == 0).count();
    format!(
        "{} of {record_bytes} bytes there, {zeros} of them zero, in a file of {file_bytes} bytes",
        there.len()
    )
}

#[cfg(test)]
mod tests {
    use super::super::plain::Plain;
    use super::*;
    use crate::kernel::machine::FsKind;

    fn in_directory(strategy: Plain, test: impl FnOnce(&Trial, &Path)) {
        let directory = std::env::temp_dir()
            .join(format!("inkstone-content-{}-{strategy}", std::process::id()));
        fs::create_dir_all(&directory).expect("created");
        test(&Trial { kind: FsKind::Ext4, strategy, seed: 5, steps: 4 }, &directory);
        fs::remove_dir_all(&directory).expect("removed");
    }

    fn numbers(left: &Left) -> [Vec<usize>; 3] {
        [left.lost.clone(), left.torn.clone(), left.garbage.clone()]
    }

    #[test]
    fn slots_are_whole_old_torn_or_garbage() {
        in_directory(Plain::OverwriteOnly, |trial, directory| {
            let seen = |bytes: &[u8]| {
                fs::write(directory.join(DATA), bytes).expect("written");
                look(trial, directory, 4).expect("read")
            };
            assert_eq!(
                numbers(&look(trial, directory, 2).expect("read")),
                [vec![], vec![], vec![1, 2]]
            );
            let old = bytes_of(5, 0, 1000);
            let mut bytes: Vec<u8> = (1..=4).flat_map(|step| bytes_of(5, step, 1000)).collect();
            assert_eq!(seen(&bytes), Left::default());
            bytes[1000..2000].copy_from_slice(&old);
            bytes[2000..2512].copy_from_slice(&old[..512]);
            bytes[3999] = 0;
            let left = seen(&bytes);
            assert_eq!(numbers(&left), [vec![2], vec![3], vec![4]]);
            assert!(left.words.starts_with("step 2: "), "{}", left.words);
            assert_eq!(
                numbers(&seen(&bytes[..1000])),
                [vec![], vec![], vec![2, 3, 4]],
                "zeros were never there"
            );
        });
        in_directory(Plain::WriteOnly, |trial, directory| {
            let bytes: Vec<u8> = (1..=4).flat_map(|step| bytes_of(5, step, 1000)).collect();
            fs::write(directory.join(DATA), &bytes[..2500]).expect("written");
            assert_eq!(
                numbers(&look(trial, directory, 4).expect("read")),
                [vec![4], vec![3], vec![]]
            );
        });
    }

    #[test]
    fn a_hole_is_a_block_beyond_one_that_is_not_there() {
        in_directory(Plain::AppendBatchFdatasync, |trial, directory| {
            let block = BLOCK_BYTES;
            let whole: Vec<u8> = (1..=4).flat_map(|step| bytes_of(5, step, 8 * block)).collect();
            let seen = |bytes: &[u8], acked| {
                fs::write(directory.join(DATA), bytes).expect("written");
                look(trial, directory, acked).expect("read")
            };
            // Nothing, a prefix, a prefix that ends within a block, zeros after it: no hole.
            let mut zeros = whole.clone();
            zeros[3 * block + 512..].fill(0);
            for bytes in [&[][..], &whole[..3 * block], &whole[..3 * block + 512], &zeros, &whole] {
                assert_eq!(seen(bytes, 0), Left::default());
            }
            let mut bytes = whole.clone();
            bytes[2 * block..3 * block].fill(0);
            let left = seen(&bytes, 0);
            assert_eq!(
                (left.missing(), left.hole.is_some()),
                (0, true),
                "not acknowledged: a hole, and no loss"
            );
            assert!(
                left.hole
                    .is_some_and(|hole| hole.starts_with("block 3 is there, but block 2 is not"))
            );
            bytes[2 * block..3 * block].copy_from_slice(&whole[2 * block..3 * block]);
            bytes[9 * block - 1] = 0;
            assert!(
                seen(&bytes, 1).hole.is_some(),
                "of the step that was being done: torn, and more behind it"
            );
            assert_eq!(numbers(&seen(&bytes, 2)), [vec![], vec![2], vec![]]);
            assert_eq!(seen(&bytes, 1).missing(), 0);
        });
    }

    #[test]
    fn a_file_with_a_name_must_be_whole() {
        in_directory(Plain::NewFileClose, |trial, directory| {
            fs::write(directory.join(file_of(1)), bytes_of(5, 1, 4096)).expect("written");
            fs::write(directory.join(file_of(2)), []).expect("written");
            fs::write(directory.join(file_of(3)), bytes_of(5, 2, 4096)).expect("written");
            let left = look(trial, directory, 4).expect("read");
            assert_eq!(numbers(&left), [vec![4], vec![2], vec![3]]);
            assert!(left.is_damaged() && left.missing() == 3);
        });
    }

    #[test]
    fn a_replaced_file_is_one_of_its_versions() {
        in_directory(Plain::Replace, |trial, directory| {
            let seen = |bytes: &[u8]| {
                fs::write(directory.join(DATA), bytes).expect("written");
                numbers(&look(trial, directory, 2).expect("read"))
            };
            let none: Vec<usize> = Vec::new();
            assert_eq!(seen(&bytes_of(5, 3, 4096)), [none.clone(), none.clone(), none.clone()]);
            assert_eq!(seen(&bytes_of(5, 2, 4096)), [none.clone(), none.clone(), none.clone()]);
            assert_eq!(seen(&bytes_of(5, 0, 4096)), [vec![1, 2], none.clone(), none.clone()]);
            assert_eq!(seen(&bytes_of(5, 4, 4096)), [none.clone(), none.clone(), vec![2]]);
            assert_eq!(seen(&[]), [none.clone(), none, vec![2]]);
        });
    }

    #[test]
    fn a_size_counts_in_records() {
        in_directory(Plain::SetLenOnly, |trial, directory| {
            fs::write(directory.join(DATA), vec![0; 2 * 4096]).expect("written");
            assert_eq!(
                numbers(&look(trial, directory, 4).expect("read")),
                [vec![3, 4], vec![], vec![]]
            );
        });
    }
}
