//! btrfs's devices and chunks: which parts of which device hold data.
//!
//! *Owns*: the search in the chunk tree, and the question for a device's path. *May not touch*:
//! anything else; the file system has to be mounted, and is only asked.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::layout_disk::piece;
use inkstone_io::transfer::retry;
use inkstone_io::{DeviceNumber, Error, Result};

/// `_IOWR(0x94, 17, struct btrfs_ioctl_search_args)`, which has 4096 bytes.
const TREE_SEARCH: u32 = 0xD000_9411;
/// `_IOWR(0x94, 30, struct btrfs_ioctl_dev_info_args)`, which has 4096 bytes.
const DEVICE_INFO: u32 = 0xD000_941E;
const CHUNK_TREE: u64 = 3;
const CHUNK_OBJECT: u64 = 256;
const CHUNK_ITEM: u32 = 228;
const KEY_BYTES: usize = 104;
const HEADER_BYTES: usize = 32;
const CHUNK_BYTES: usize = 48;
const STRIPE_BYTES: usize = 32;
/// In `struct btrfs_ioctl_dev_info_args`: its path, after 379 numbers and two names of 16 bytes.
const PATH_AT: usize = 3072;
/// More than any file system has: 1 GiB each.
const AREAS_MAX: usize = 1_000_000;

/// A chunk of data alone has only the first of these: the others are of trees.
const KIND_DATA: u64 = 1;
const KINDS: u64 = 7;
const RAID0: u64 = 8;
const RAID10: u64 = 64;
const RAID5: u64 = 128;
const RAID6: u64 = 256;

/// 4096 bytes, as both questions have them.
#[repr(C, align(8))]
struct Args([u8; 4096]);

/// A device of a btrfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BtrfsDevice {
    /// Its number, of the disk or of the partition.
    pub number: DeviceNumber,
    /// Its bytes that hold files' contents and nothing else, in the order of btrfs's own addresses.
    pub data: Vec<Range<u64>>,
}

/// An area of a device, which btrfs counts from 1.
type Area = (u64, Range<u64>);
/// Areas, each with whether it holds data alone.
type Areas = Vec<(bool, Area)>;

/// The devices of the btrfs that is mounted at `mount_target`: those that have chunks.
///
/// # Errors
/// Not root; no btrfs there; an answer that makes no sense.
pub fn btrfs_devices(mount_target: &Path) -> Result<Vec<BtrfsDevice>> {
    let fail = |error| Error::new("read btrfs's chunks", mount_target, error);
    let directory = retry(|| File::open(mount_target)).map_err(fail)?;
    let (mut all, mut from) = (Vec::new(), 0u64);
    loop {
        let mut args = search_key(from);
        retry(|| ask(&directory, TREE_SEARCH, &mut args))
            .map_err(|error| fail(error).advise("this needs root and a mounted btrfs"))?;
        let found = parse(&args.0).filter(|(_, last)| last.is_none_or(|last| last >= from));
        let Some((found, last)) = found.filter(|_| all.len() <= AREAS_MAX) else {
            return Err(fail(io::Error::other("an answer that makes no sense")));
        };
        all.extend(found);
        match last.and_then(|last| last.checked_add(1)) {
            Some(next) => from = next,
            None => break,
        }
    }
    let mut ids: Vec<u64> = all.iter().map(|(_, (id, _))| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    let device = |id: u64| {
        let number = number_of(&directory, id).map_err(fail)?;
        let of_it = all.iter().filter(|(is_data, (of, _))| *is_data && *of == id);
        Ok(BtrfsDevice { number, data: of_it.map(|(_, (_, area))| area.clone()).collect() })
    };
    ids.into_iter().map(device).collect()
}

fn number_of(directory: &File, id: u64) -> io::Result<DeviceNumber> {
    let mut args = Args([0; 4096]);
    args.0[..8].copy_from_slice(&id.to_ne_bytes());
    retry(|| ask(directory, DEVICE_INFO, &mut args))?;
    let path = args.0[PATH_AT..].split(|&byte| byte == 0).next().unwrap_or_default();
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    Ok(DeviceNumber::from_st_dev(fs::metadata(path)?.rdev()))
}

fn ask(directory: &File, question: u32, args: &mut Args) -> io::Result<()> {
    let args: *mut Args = args;
    // SAFETY: both questions read and write 4096 bytes at this address: a whole Args, exclusively
    // ours.
    let answer = unsafe { libc::ioctl(directory.as_raw_fd(), question as libc::Ioctl, args) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The question for all chunk items from this logical address on. The fields of `struct
/// btrfs_ioctl_search_key`, one after the other: tree, object ids, offsets, transactions, types,
/// count.
fn search_key(first_logical: u64) -> Args {
    let wide = [CHUNK_TREE, CHUNK_OBJECT, CHUNK_OBJECT, first_logical, u64::MAX, 0, u64::MAX];
    let narrow = [CHUNK_ITEM, CHUNK_ITEM, u32::MAX, 0];
    let fields = wide.iter().flat_map(|number| number.to_ne_bytes());
    let fields = fields.chain(narrow.iter().flat_map(|number| number.to_ne_bytes()));
    let mut bytes = [0; 4096];
    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    Args(bytes)
}

/// The kernel's answer: the count within the key, then headers (in the machine's byte order) and
/// items (little-endian). Returns the areas, each with whether it holds data alone, and the address
/// of the last chunk.
fn parse(answer: &[u8]) -> Option<(Areas, Option<u64>)> {
    let count = u32::from_ne_bytes(piece(answer, 64));
    let mut rest = answer.get(KEY_BYTES..)?;
    let (mut areas, mut last) = (Vec::new(), None);
    for _ in 0..count {
        let (header, after) = rest.split_at_checked(HEADER_BYTES)?;
        let logical = u64::from_ne_bytes(piece(header, 16));
        let kind = u32::from_ne_bytes(piece(header, 24));
        let length = usize::try_from(u32::from_ne_bytes(piece(header, 28))).ok()?;
        let (item, after) = after.split_at_checked(length)?;
        if kind == CHUNK_ITEM {
            areas.extend(parse_chunk(item)?);
            last = last.max(Some(logical));
        }
        rest = after;
    }
    Some((areas, last))
}

/// The areas of a chunk, one for each stripe or copy, and whether they hold data alone.
fn parse_chunk(item: &[u8]) -> Option<Areas> {
    let (head, stripes) = item.split_at_checked(CHUNK_BYTES)?;
    let length = u64::from_le_bytes(piece(head, 0));
    let flags = u64::from_le_bytes(piece(head, 24));
    let count = u64::from(u16::from_le_bytes(piece(head, 44)));
    let sub_stripes = u64::from(u16::from_le_bytes(piece(head, 46)));
    let parts = match flags {
        flags if flags & RAID0 != 0 => count,
        flags if flags & RAID10 != 0 => count.checked_div(sub_stripes)?,
        flags if flags & RAID5 != 0 => count.checked_sub(1)?,
        flags if flags & RAID6 != 0 => count.checked_sub(2)?,
        _ => 1,
    };
    let device_bytes = length.checked_div(parts)?;
    let stripes = stripes.chunks_exact(STRIPE_BYTES).take(usize::try_from(count).ok()?);
    let is_data = flags & KINDS == KIND_DATA;
    let area = |stripe: &[u8]| {
        let (id, start) =
            (u64::from_le_bytes(piece(stripe, 0)), u64::from_le_bytes(piece(stripe, 8)));
        Some((is_data, (id, start..start.checked_add(device_bytes)?)))
    };
    let areas: Areas = stripes.map(area).collect::<Option<_>>()?;
    let is_whole = u64::try_from(areas.len()).ok()? == count && count > 0;
    is_whole.then_some(areas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(length: u64, flags: u64, sub_stripes: u16, stripes: &[u64]) -> Vec<u8> {
        let mut item = vec![0; CHUNK_BYTES];
        item[0..8].copy_from_slice(&length.to_le_bytes());
        item[24..32].copy_from_slice(&flags.to_le_bytes());
        item[44..46].copy_from_slice(&(stripes.len() as u16).to_le_bytes());
        item[46..48].copy_from_slice(&sub_stripes.to_le_bytes());
        for offset in stripes {
            item.extend(1u64.to_le_bytes());
            item.extend(offset.to_le_bytes());
            item.extend([0; 16]);
        }
        item
    }

    #[test]
    fn profiles_divide_the_chunk_among_its_stripes() {
        let four = [0, 0, 0, 4096];
        let last =
            |flags, sub| parse_chunk(&item(48, flags, sub, &four)).expect("a chunk")[3].clone();
        let bytes = |flags, sub| match last(flags, sub) {
            (true, (1, bytes)) => bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(bytes(KIND_DATA, 1), 4096..4096 + 48); // copies
        assert_eq!(bytes(KIND_DATA | RAID0, 1), 4096..4096 + 12);
        assert_eq!(bytes(KIND_DATA | RAID10, 2), 4096..4096 + 24);
        assert_eq!(bytes(KIND_DATA | RAID5, 1), 4096..4096 + 16);
        assert_eq!(bytes(KIND_DATA | RAID6, 1), 4096..4096 + 24);
        // Trees, the chunk tree, and data together with trees.
        for kinds in [4, 2, KIND_DATA | 4] {
            let areas = parse_chunk(&item(48, kinds, 1, &four)).expect("a chunk");
            assert!(areas.iter().all(|(is_data, _)| !is_data) && areas.len() == 4);
        }
    }

    #[test]
    fn broken_answers_are_refused() {
        assert_eq!(parse_chunk(&[0; 20]), None);
        assert_eq!(parse_chunk(&item(48, KIND_DATA | RAID10, 0, &[0])), None);
        assert_eq!(parse_chunk(&item(48, KIND_DATA, 1, &[u64::MAX])), None);
        let whole = item(48, KIND_DATA, 1, &[0, 4096]);
        assert_eq!(parse_chunk(&whole[..whole.len() - 1]), None);
        assert_eq!(parse(&search_key(0).0), None, "a count beyond the buffer");
        assert!(btrfs_devices(Path::new("/proc")).is_err());
    }
}
