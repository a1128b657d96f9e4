//! Free files with another log's old frames, which a new log finds and uses.
//!
//! *Owns*: that other log. *May not touch*: the log that is checked.

use inkstone_io::{AnyDirectory, Directory, File, OpenFile, SyncKind};
use inkstone_sim::{DiskOptions, SimDisk};

use super::PATH;
use inkstone_subject::log::LogSubject;
use inkstone_subject::log::options::{SEGMENT_BYTES, small};
use inkstone_subject::log::record::Record;
use inkstone_subject::mistake::build_in;

/// How many files there are.
const FILES: u64 = 3;
/// Where frames begin.
const HEADER_BYTES: usize = 4096;

fn open(disk: &SimDisk, log: &LogSubject) -> inkstone::Result<inkstone::Log> {
    let options = build_in(log.options.clone(), log.mistake);
    inkstone::Log::open_in(AnyDirectory::new(disk.directory(PATH)), options)
}

/// Creates the log, and leaves free files beside it that another log has filled: every frame in
/// them is sound, but of the wrong log. Their first blocks are zeros, since a header of another log
/// counts as damage by rule; and the log is there before them, since bytes without any header count
/// as a log whose header is lost.
pub(crate) fn leave_old_files(disk: &SimDisk, own: &LogSubject, seed: u64) -> Result<(), String> {
    let words = |error: inkstone_io::Error| error.to_string();
    let log = open(disk, own).map_err(|error| error.to_string())?;
    log.close().map_err(|error| error.to_string())?;
    let other = SimDisk::new(seed ^ 0x6F74_6865_7221, DiskOptions::default());
    let log = open(&other, &LogSubject::new(small(), None)).map_err(|error| error.to_string())?;
    let records =
        (0..).map(|number| Record { number, bytes: 500 + number * 331 % 5000, has_more: false });
    for record in records {
        log.append_durable(record.payload()).map_err(|error| error.to_string())?;
        if log.stats().segments >= FILES {
            break;
        }
    }
    log.close().map_err(|error| error.to_string())?;
    let directory = disk.directory(PATH);
    for number in 1..=FILES {
        let from = other
            .directory(PATH)
            .open(&format!("{number:020}.ink"), &OpenFile::existing())
            .map_err(words)?;
        let mut bytes = vec![0; SEGMENT_BYTES as usize];
        from.read_at(&mut bytes, 0).map_err(words)?;
        bytes[..HEADER_BYTES].fill(0);
        let free = format!("{:020}.free", number + 1);
        let to = directory.open(&free, &OpenFile::new_file()).map_err(words)?;
        to.write_at(&bytes, 0).map_err(words)?;
        to.sync(SyncKind::All).map_err(words)?;
    }
    directory.sync().map_err(words)
}
