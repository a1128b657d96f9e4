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

use super::plain::{BLOCK_BYTES, Before, Shape, Trial};

/// The file that holds all steps.
pub(crate) const DATA: &str = "data";
/// The file that is renamed to [`DATA`].
pub(crate) const NEW: &str = "data.new";

/// The file of one step, where each has its own.
pub(crate) fn file_of(step: usize) -> String {
    format!("step-{step}")
}

/// The bytes of a step: from the seed, 1 to 255, different from all others at the same place.
pub(crate) fn bytes_of(seed: u64, step: usize, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| ((rng.u64(..255) + step as u64) % 255) as u8 + 1).collect()
}

/// The verdict on a state, and the worst one on a row. It follows from what was seen, and from
/// nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing was checked.
    NotRun,
    /// Every acknowledged step was there, whole.
    Held,
    /// Acknowledged steps were missing; nothing was there in part.
    Lost,
    /// Acknowledged steps were there in part, or something else in their place.
    Damaged,
    /// It could not be mounted or read.
    Unreadable,
}

/// What is left of the acknowledged steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Left {
    /// Steps of which nothing is there.
    pub(crate) lost: usize,
    /// Steps that are there in part, or in whose place is something that was never written there.
    pub(crate) damaged: usize,
    /// The first that is not whole, in words.
    pub(crate) words: String,
    /// Of a file that is written in batches: a block that is there after one that is not,
    /// acknowledged or not, in words.
    pub(crate) hole: Option<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Whole,
    Old,
    Damaged,
}

impl Left {
    /// How many acknowledged steps are not there whole.
    pub(crate) fn missing(&self) -> usize {
        self.lost + self.damaged
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self { damaged: 1.., .. } => Verdict::Damaged,
            Self { lost: 1.., .. } => Verdict::Lost,
            _ => Verdict::Held,
        }
    }

    /// What is not whole, in words.
    pub(crate) fn told(&self) -> String {
        let Self { lost, damaged, words, .. } = self;
        format!("{lost} lost, {damaged} damaged: {words}")
    }

    fn add(&mut self, (piece, words): (Piece, String)) {
        self.lost += usize::from(piece == Piece::Old);
        self.damaged += usize::from(piece == Piece::Damaged);
        if piece != Piece::Whole && self.words.is_empty() {
            self.words = words;
        }
    }
}

/// Reads what is left in `directory` after `acked` steps were acknowledged. A file that is there
/// and cannot be read is an error: after a crash this is a finding.
pub(crate) fn look(trial: &Trial, directory: &Path, acked: usize) -> Result<Left, String> {
    judge(trial, acked, &|name| {
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        }
    })
}

/// The bytes of a file by its name, if it is there.
type Read<'a> = &'a dyn Fn(&str) -> Result<Option<Vec<u8>>, String>;

fn judge(trial: &Trial, acked: usize, read: Read<'_>) -> Result<Left, String> {
    let plan = trial.strategy.plan();
    let len = plan.record_bytes();
    let bytes_of = |step| bytes_of(trial.seed, step, len);
    let mut left = Left::default();
    if plan.shape == Shape::Files {
        for step in 1..=acked {
            let name = file_of(step);
            left.add(match read(&name)? {
                None => (Piece::Old, format!("{name} is missing")),
                Some(found) => {
                    // The name is there: an empty file is not the same as no file.
                    let is_whole = found == bytes_of(step);
                    let piece = if is_whole { Piece::Whole } else { Piece::Damaged };
                    (piece, format!("{name} is there: {}", describe(&found, found.len(), len)))
                }
            });
        }
        return Ok(left);
    }
    let is_replaced = plan.shape == Shape::Replaced;
    let Some(found) = read(DATA)? else {
        let missing = (Piece::Damaged, format!("{DATA} is missing"));
        (0..if is_replaced { 1 } else { acked }).for_each(|_| left.add(missing.clone()));
        return Ok(left);
    };
    if is_replaced {
        // One more than acknowledged: the step in progress.
        match (0..=acked + 1).rev().find(|&step| bytes_of(step) == found) {
            Some(version) => (version + 1..=acked).for_each(|_| {
                left.add((Piece::Old, format!("{DATA} is that of step {version}, whole")));
            }),
            None => {
                let what = describe(&found, found.len(), len);
                let words = format!("{DATA} is neither the old one nor the new one: {what}");
                left.add((Piece::Damaged, words));
            }
        }
        return Ok(left);
    }
    let old = if plan.before == Before::Written { bytes_of(0) } else { vec![0; len] };
    for step in 1..=acked {
        let there = piece_of(&found, step - 1, len);
        let piece = match plan.shape {
            Shape::Size if found.len() < step * len => Piece::Old,
            Shape::Size => Piece::Whole,
            _ => compare(there, &bytes_of(step), &old),
        };
        left.add((piece, format!("step {step}: {}", describe(there, found.len(), len))));
    }
    if plan.shape == Shape::Batches {
        let written: Vec<u8> = (1..=trial.steps.min(acked + 1)).flat_map(bytes_of).collect();
        left.hole = hole(&found, &written);
    }
    Ok(left)
}

/// The piece of this number and size, as far as it is there.
fn piece_of(found: &[u8], number: usize, len: usize) -> &[u8] {
    let place = number * len;
    &found[place.min(found.len())..(place + len).min(found.len())]
}

/// A block that is there at least in part, after one that is not whole: also of the step in
/// progress.
fn hole(found: &[u8], written: &[u8]) -> Option<String> {
    let mut missing = None;
    for (number, expected) in written.chunks(BLOCK_BYTES).enumerate() {
        let there = piece_of(found, number, BLOCK_BYTES);
        let is_there = there.iter().zip(expected).any(|(byte, new)| byte == new);
        match missing {
            Some(first) if is_there => {
                let bytes = found.len();
                return Some(format!(
                    "block {number} is there, but block {first} is not, in a file of {bytes} bytes"
                ));
            }
            None if there != expected => missing = Some(number),
            _ => {}
        }
    }
    None
}

/// Missing bytes at the end count as zeros: the file is shorter there.
fn compare(there: &[u8], new: &[u8], old: &[u8]) -> Piece {
    let missing = std::iter::repeat_n(&0, new.len() - there.len());
    if there == new {
        Piece::Whole
    } else if there.iter().chain(missing).eq(old) {
        Piece::Old
    } else {
        Piece::Damaged
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
    use std::collections::BTreeMap;

    use super::super::plain::Plain;
    use super::*;
    use crate::kernel::machine::FsKind;

    fn trial(strategy: Plain) -> Trial {
        Trial { kind: FsKind::Ext4, strategy, seed: 5, steps: 4 }
    }

    /// What is left in a directory with these files.
    fn left(strategy: Plain, acked: usize, files: &[(String, Vec<u8>)]) -> Left {
        let files: BTreeMap<_, _> = files.iter().cloned().collect();
        judge(&trial(strategy), acked, &|name| Ok(files.get(name).cloned())).expect("it is read")
    }

    fn of_data(strategy: Plain, acked: usize, bytes: &[u8]) -> Left {
        left(strategy, acked, &[(DATA.into(), bytes.to_vec())])
    }

    fn numbers(left: &Left) -> [usize; 2] {
        [left.lost, left.damaged]
    }

    fn steps(len: usize) -> Vec<u8> {
        (1..=4).flat_map(|step| bytes_of(5, step, len)).collect()
    }

    #[test]
    fn slots_are_whole_old_or_damaged() {
        assert_eq!(numbers(&left(Plain::OverwriteOnly, 2, &[])), [0, 2]);
        let seen = |bytes: &[u8]| of_data(Plain::OverwriteOnly, 4, bytes);
        let (old, mut bytes) = (bytes_of(5, 0, 1000), steps(1000));
        assert_eq!(seen(&bytes), Left::default());
        bytes[1000..2000].copy_from_slice(&old);
        bytes[2000..2512].copy_from_slice(&old[..512]);
        bytes[3999] = 0;
        assert_eq!(numbers(&seen(&bytes)), [1, 2]);
        assert!(seen(&bytes).words.starts_with("step 2: "), "{}", seen(&bytes).words);
        // Zeros were never there.
        assert_eq!(numbers(&seen(&bytes[..1000])), [0, 3]);
        let appended = of_data(Plain::WriteOnly, 4, &steps(1000)[..2500]);
        assert_eq!(numbers(&appended), [1, 1]);
    }

    #[test]
    fn a_hole_is_a_block_beyond_one_that_is_not_there() {
        let (block, whole) = (BLOCK_BYTES, steps(8 * BLOCK_BYTES));
        let seen = |bytes: &[u8], acked| of_data(Plain::AppendBatchFdatasync, acked, bytes);
        // Nothing, a prefix, a prefix that ends within a block, zeros after it: no hole.
        let mut zeros = whole.clone();
        zeros[3 * block + 512..].fill(0);
        for bytes in [&[][..], &whole[..3 * block], &whole[..3 * block + 512], &zeros, &whole] {
            assert_eq!(seen(bytes, 0), Left::default());
        }
        let mut bytes = whole.clone();
        bytes[2 * block..3 * block].fill(0);
        // Not acknowledged: a hole, and no loss.
        assert_eq!(seen(&bytes, 0).missing(), 0);
        let hole = seen(&bytes, 0).hole.expect("a hole");
        assert!(hole.starts_with("block 3 is there, but block 2 is not"), "{hole}");
        bytes[2 * block..3 * block].copy_from_slice(&whole[2 * block..3 * block]);
        bytes[9 * block - 1] = 0;
        // Of the step in progress: torn, and more behind it.
        assert!(seen(&bytes, 1).hole.is_some() && seen(&bytes, 1).missing() == 0);
        assert_eq!(numbers(&seen(&bytes, 2)), [0, 1]);
    }

    #[test]
    fn a_file_with_a_name_must_be_whole_and_a_replaced_one_is_one_of_its_versions() {
        let contents = [bytes_of(5, 1, 4096), Vec::new(), bytes_of(5, 2, 4096)];
        let files: Vec<_> = (1..).map(file_of).zip(contents).collect();
        assert_eq!(numbers(&left(Plain::NewFileClose, 4, &files)), [1, 2]);
        for (version, lost, damaged) in [(3, 0, 0), (2, 0, 0), (0, 2, 0), (4, 0, 1)] {
            let found = of_data(Plain::Replace, 2, &bytes_of(5, version, 4096));
            assert_eq!(numbers(&found), [lost, damaged], "version {version}");
        }
        assert_eq!(numbers(&of_data(Plain::Replace, 2, &[])), [0, 1]);
        assert_eq!(numbers(&of_data(Plain::SetLenOnly, 4, &[0; 2 * 4096])), [2, 0]);
    }
}
