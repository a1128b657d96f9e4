//! What reached a disk, in order: writes, flushes, and marks of what the writer knew by then.
//!
//! *Owns*: the entries, and their bytes in a file. *May not touch*: disks, crash states.
//!
//! The file, little endian: `MAGIC` and the number of entries; then each entry, a letter, a sector
//! and a count (u64), followed by what was written, or a mark's text. The disk starts as zeros: a
//! recording holds everything from mkfs on.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inkstone_host::open_plain;

use super::image::{Image, SECTOR_BYTES};

/// How a file begins.
const MAGIC: &[u8] = b"inkstone recording\n";
/// What comes before an entry's data.
const ENTRY_BYTES: usize = 17;

/// A request that reached the disk, or a mark of the writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Sectors with new bytes.
    Write { sector: u64, bytes: Arc<[u8]> },
    /// Sectors that became zeros: a discard or a zeroing request.
    Discard { sector: u64, sectors: u64 },
    /// Everything before it is on the medium.
    Flush,
    /// What the writer knew at this moment.
    Mark(String),
}

/// Everything that reached a disk of `len_bytes`, which was all zeros before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// In the order in which the disk carried them out.
    pub entries: Vec<Entry>,
}

impl Recording {
    pub fn mark(&mut self, text: &str) {
        self.entries.push(Entry::Mark(text.to_owned()));
    }

    /// What was recorded, by the first mark.
    pub fn head(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Mark(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Behind how many entries each line of the writer was heard.
    pub fn lines(&self) -> Vec<usize> {
        let marks = self.entries.iter().enumerate();
        // The first mark says what was recorded.
        let lines = marks.filter(|(_, entry)| entry.is_mark()).map(|(at, _)| at + 1);
        lines.skip(1).collect()
    }

    /// The first byte after everything that was written.
    pub fn end_bytes(&self) -> u64 {
        let end = |entry: &Entry| match entry {
            Entry::Write { sector, bytes } => {
                sector.saturating_mul(512).saturating_add(bytes.len() as u64)
            }
            Entry::Discard { sector, sectors } => {
                sector.saturating_add(*sectors).saturating_mul(512)
            }
            Entry::Flush | Entry::Mark(_) => 0,
        };
        self.entries.iter().map(end).max().unwrap_or(0)
    }

    /// Writes it to a file, which must not exist yet.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = fs::File::create_new(path)?;
        let mut out = io::BufWriter::with_capacity(1 << 20, file);
        self.write_to(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()
    }

    /// Writes it to a new file in `parent` and returns its path: `name` with a number.
    pub fn save_in(&self, parent: &Path, name: &str) -> Result<PathBuf, String> {
        let paths = (0..1000).map(|number| parent.join(format!("{name}-{number}.recording")));
        for path in paths {
            match self.save(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Err(format!("no name {name} is left in {}", parent.display()))
    }

    fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&(self.entries.len() as u64).to_le_bytes())?;
        for entry in &self.entries {
            let none: &[u8] = &[];
            let (letter, sector, count, data) = match entry {
                Entry::Write { sector, bytes } => (b'w', *sector, bytes.len() as u64, &bytes[..]),
                Entry::Discard { sector, sectors } => (b'd', *sector, *sectors, none),
                Entry::Flush => (b'f', 0, 0, none),
                Entry::Mark(text) => (b'm', 0, text.len() as u64, text.as_bytes()),
            };
            out.write_all(&[letter])?;
            out.write_all(&sector.to_le_bytes())?;
            out.write_all(&count.to_le_bytes())?;
            out.write_all(data)?;
        }
        Ok(())
    }

    pub fn load(path: &Path) -> Result<Self, String> {
        let read = || {
            let (mut file, mut bytes) = (open_plain(path)?, Vec::new());
            // A large file of another kind is not read whole before it is refused.
            (&file).take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
            if bytes == *MAGIC {
                file.read_to_end(&mut bytes)?;
            }
            io::Result::Ok(bytes)
        };
        let bytes = read().map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&bytes).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let rest = bytes.strip_prefix(MAGIC);
        let head = rest.and_then(|rest| rest.split_first_chunk());
        let (count, mut rest) =
            head.ok_or("this is not a recording: it begins with other bytes")?;
        let mut entries = Vec::new();
        for index in 0..u64::from_le_bytes(*count) {
            let at = bytes.len() - rest.len();
            let wrong = |why: &str| format!("entry {index} at byte {at}: {why}");
            let (head, behind) = rest
                .split_at_checked(ENTRY_BYTES)
                .ok_or_else(|| wrong("the file ends before its data"))?;
            let number =
                |at: usize| head[at..].first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
            let (letter, sector, count) = (head[0], number(1), number(9));
            let data = if matches!(letter, b'w' | b'm') { count } else { 0 };
            let data = usize::try_from(data).ok().and_then(|len| behind.split_at_checked(len));
            let (data, behind) = data.ok_or_else(|| wrong("the file ends within its data"))?;
            if sector.checked_add(count).is_none_or(|end| end > u64::MAX / SECTOR_BYTES as u64) {
                return Err(wrong("sectors that no disk has"));
            }
            entries.push(match letter {
                b'w' if data.len().is_multiple_of(SECTOR_BYTES) => {
                    Entry::Write { sector, bytes: data.into() }
                }
                b'd' => Entry::Discard { sector, sectors: count },
                b'f' => Entry::Flush,
                b'm' => Entry::Mark(String::from_utf8_lossy(data).into_owned()),
                _ => return Err(wrong("it is no write, discard, flush or mark")),
            });
            rest = behind;
        }
        if rest.is_empty() {
            Ok(Self { entries })
        } else {
            Err("bytes behind the last entry".into())
        }
    }
}

impl Entry {
    pub fn is_mark(&self) -> bool {
        matches!(self, Self::Mark(_))
    }

    /// Does to an image what it did to the disk.
    pub fn apply(&self, image: &mut Image) {
        match self {
            Self::Write { sector, bytes } => image.write(sector * SECTOR_BYTES as u64, bytes),
            Self::Discard { sector, sectors } => {
                image.clear(sector * SECTOR_BYTES as u64, sectors * SECTOR_BYTES as u64);
            }
            Self::Flush | Self::Mark(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Recording {
        let mut recording = Recording::default();
        recording.entries.push(Entry::Write { sector: 0x0102, bytes: vec![0xAB; 1024].into() });
        recording.entries.push(Entry::Flush);
        recording.mark("done 7");
        recording.entries.push(Entry::Discard { sector: 8, sectors: 16 });
        recording
    }

    fn bytes_of(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        recording.write_to(&mut bytes).expect("memory takes it");
        bytes
    }

    #[test]
    fn a_file_holds_it_and_is_not_overwritten() {
        let made = tempfile::tempdir().expect("a directory");
        let path = made.path().join("inkstone-recording");
        tiny().save(&path).expect("saved");
        assert_eq!(Recording::load(&path), Ok(tiny()));
        assert_eq!(
            tiny().save(&path).expect_err("it is there").kind(),
            io::ErrorKind::AlreadyExists
        );
        fs::remove_file(&path).expect("removed");
        assert!(Recording::load(&path).expect_err("it is gone").contains("inkstone-recording"));
    }

    #[test]
    fn what_is_damaged_is_an_error() {
        let bytes = bytes_of(&tiny());
        assert_eq!(Recording::parse(&bytes), Ok(tiny()));
        assert!((0..bytes.len()).all(|len| Recording::parse(&bytes[..len]).is_err()));
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            Recording::parse(&bytes).expect_err("damaged")
        };
        let first = MAGIC.len() + 8;
        for (at, value, words) in [
            (0, 1, "not a recording"),
            (MAGIC.len(), 3, "bytes behind"),
            (first, b'x', "entry 0 at byte 27: it is no write"),
            (first + 8, 0xFF, "no disk has"),
            (first + 9, 1, "it is no write"),
            (first + 14, 9, "the file ends within"),
        ] {
            let why = with(at, value);
            assert!(why.contains(words), "{why}");
        }
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes = bytes.clone();
            for _ in 0..rng.usize(1..5) {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
            let _ = Recording::parse(&bytes);
        }
    }
}
