//! The faults, and arming a disk with one.
//!
//! *Owns*: the rules of a disk for each fault. *May not touch*: when it is armed.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use inkstone_host::{Extent, ExtentMap};
use inkstone_io::named_choice;

use crate::kernel::disk::Disk;
use crate::kernel::fault::{Access, Effect, Faults, Rule};
use crate::kernel::image::SECTOR_BYTES;

named_choice! {
    /// What goes wrong.
    Fault, "fault" {
        WriteData = "write-data", "EIO for one write to the log's blocks";
        WriteDataForEver = "write-data-for-ever",
            "EIO for each write to the log's blocks, from some moment on";
        WriteMetadata = "write-metadata", "EIO for one write elsewhere on the disk";
        WriteMetadataForEver = "write-metadata-for-ever",
            "EIO for each write elsewhere on the disk";
        WriteNth = "write-nth", "EIO for one write of any kind";
        ReadData = "read-data", "EIO for each read of the log's blocks";
        FlushOnce = "flush-once", "EIO for one flush; the next flush still writes the disk's cache";
        FlushForEver = "flush-for-ever", "EIO for each flush, from some moment on";
        FlushSlow = "flush-slow", "flushes take 300 ms for a while";
        DiskFull = "disk-full", "the disk below takes no new block: ENOSPC";
        FileSystemFull = "file-system-full", "the file system is full for a while";
        Dead = "dead", "each write and each flush fails, from some moment on";
    }
}

impl Fault {
    pub fn reads_fail(self) -> bool {
        self == Self::ReadData
    }

    pub fn writes_fail(self) -> bool {
        use Fault::{WriteData, WriteDataForEver, WriteMetadata, WriteMetadataForEver, WriteNth};
        matches!(
            self,
            WriteData | WriteDataForEver | WriteMetadata | WriteMetadataForEver | WriteNth
        )
    }
}

/// Which sectors hold the files of the log in `directory` now.
pub fn sectors_of_log(directory: &Path) -> Result<Vec<Range<u64>>, String> {
    let fail = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut ranges = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| fail(directory, &error))? {
        let path = entry.map_err(|error| fail(directory, &error))?.path();
        // Removed by the log in the meantime.
        let Ok(file) = std::fs::File::open(&path) else { continue };
        let map = ExtentMap::of(&file, &path).map_err(|error| error.to_string())?;
        let sector = SECTOR_BYTES as u64;
        let of = |e: &Extent| e.physical / sector..(e.physical + e.len_bytes).div_ceil(sector);
        ranges.extend(map.placed().map(of));
    }
    ranges.sort_by_key(|range| range.start);
    Ok(ranges)
}

fn gaps(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for range in ranges {
        if range.start > at {
            gaps.push(at..range.start);
        }
        at = at.max(range.end);
    }
    gaps.push(at..u64::MAX);
    gaps
}

/// Arms a disk on which the log has these sectors. `skip`: this many requests of that kind pass
/// first.
pub fn arm(fault: Fault, disk: &Disk, log: &[Range<u64>], skip: u64) {
    let rule = |on, effect| Rule { skip, ..Rule::every(on, effect) };
    let blocks = disk.image().blocks();
    disk.change_faults(|faults| {
        let within = |ranges: &[Range<u64>], rule: &Rule| -> Vec<Rule> {
            ranges.iter().map(|range| rule.clone().within(range.clone())).collect()
        };
        faults.rules = match fault {
            Fault::WriteData => {
                within(log, &Rule::every(Access::Write, Effect::Error).once_after(skip))
            }
            Fault::WriteDataForEver => within(log, &rule(Access::Write, Effect::Error)),
            Fault::WriteMetadata => {
                within(&gaps(log), &Rule::every(Access::Write, Effect::Error).once_after(skip))
            }
            Fault::WriteMetadataForEver => within(&gaps(log), &rule(Access::Write, Effect::Error)),
            Fault::WriteNth => vec![Rule::every(Access::Write, Effect::Error).once_after(skip)],
            Fault::ReadData => within(log, &Rule::every(Access::Read, Effect::Error)),
            Fault::FlushOnce => vec![Rule::every(Access::Flush, Effect::Error).once_after(skip)],
            Fault::FlushForEver => vec![rule(Access::Flush, Effect::Error)],
            Fault::FlushSlow => {
                vec![Rule {
                    times: 6,
                    ..rule(Access::Flush, Effect::Slow(Duration::from_millis(300)))
                }]
            }
            Fault::DiskFull | Fault::FileSystemFull | Fault::Dead => Vec::new(),
        };
        faults.is_read_only = fault == Fault::Dead;
        faults.blocks_max = (fault == Fault::DiskFull).then_some(blocks + skip as usize);
    });
}

/// Makes the disk sound again. Returns how often the fault occurred.
pub fn mend(disk: &Disk) -> u64 {
    disk.change_faults(|faults| {
        let fired = faults.fired;
        *faults = Faults { fired, ..Faults::default() };
        fired
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::disk::Failure;
    use crate::kernel::image::Image;
    use inkstone_io::NamedChoice;

    #[test]
    fn each_fault_of_the_disk_goes_wrong_and_is_mended() {
        for &fault in Fault::ALL {
            let disk = Disk::new("a", Image::new(1 << 20));
            let log = [16..32, 40..48];
            arm(fault, &disk, &log, 0);
            let done = [
                disk.write(20 * 512, &[1; 512]),
                disk.write(100 * 512, &[1; 512]),
                disk.read(20 * 512, 512).map(drop),
                disk.flush(),
                disk.flush(),
            ];
            let wrong: Vec<_> = done.iter().map(Result::is_err).collect();
            let expected = match fault {
                Fault::WriteData | Fault::WriteDataForEver | Fault::WriteNth => {
                    [true, false, false, false, false]
                }
                Fault::WriteMetadata | Fault::WriteMetadataForEver => {
                    [false, true, false, false, false]
                }
                Fault::ReadData => [false, false, true, false, false],
                Fault::FlushOnce => [false, false, false, true, false],
                Fault::FlushForEver => [false, false, false, true, true],
                Fault::FlushSlow | Fault::FileSystemFull => [false; 5],
                Fault::DiskFull => [true, true, false, false, false],
                Fault::Dead => [true, true, false, true, true],
            };
            assert_eq!(wrong, expected, "{fault}");
            assert_eq!(done[0] == Err(Failure::NoSpace), fault == Fault::DiskFull, "{fault}");
            assert_eq!(mend(&disk) > 0, fault != Fault::FileSystemFull, "{fault}");
            assert_eq!(
                (disk.write(20 * 512, &[2; 512]), disk.flush()),
                (Ok(()), Ok(())),
                "{fault}"
            );
        }
    }

    #[test]
    fn gaps_are_all_the_rest() {
        assert_eq!(gaps(&[2..4, 4..6, 5..9, 20..30]), [0..2, 9..20, 30..u64::MAX]);
    }
}
