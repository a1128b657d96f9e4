//! How bytes move between a caller, the page cache and the device's cache.
//!
//! *Owns*: reads, writes, preparation, and the faults of a transfer. *May not touch*: the medium;
//! only [`crate::durable`] writes there (and [`State::rot`], as the medium itself would).

use std::io;
use std::sync::Arc;

use inkstone_io::transfer::{Direction, Transfer};

use crate::content::{Content, PAGE_BYTES, blocks_of};
use crate::fault::{Effect, OperationKind, errno};
use crate::pending::{Change, Place};
use crate::state::{State, os_error};

/// The largest file: ext4 with blocks of 1 KiB has the same limit.
pub(crate) const MAX_FILE_BYTES: u64 = 16 << 30;

/// Where a transfer goes, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    pub(crate) direct: bool,
    /// The alignment of the caller's memory, in bytes.
    pub(crate) align_bytes: usize,
}

/// What a write did, all of it or up to its error.
#[derive(Debug)]
pub(crate) struct Written {
    /// The numbers of the writes that it became.
    pub(crate) writes: Vec<u64>,
    pub(crate) result: io::Result<usize>,
}

/// How a transfer is split into parts, and how they end.
struct Parts {
    first: usize,
    error: Option<i32>,
}

impl Parts {
    fn of(effect: Option<&Effect>, direct: bool, sector: usize, len: usize) -> Self {
        // A direct transfer is split at a sector.
        let cut = |bytes: usize| if direct { bytes / sector * sector } else { bytes }.min(len);
        match effect {
            Some(Effect::Short(bytes)) if cut(*bytes) > 0 => {
                Self { first: cut(*bytes), error: None }
            }
            Some(Effect::ShortThenError(bytes, code)) => {
                Self { first: cut(*bytes), error: Some(*code) }
            }
            _ => Self { first: len, error: None },
        }
    }

    fn limit(&self, done: usize, len: usize) -> io::Result<usize> {
        match (done < self.first, self.error) {
            (true, _) => Ok(self.first - done),
            (false, Some(code)) => Err(os_error(code)),
            (false, None) => Ok(len - done),
        }
    }
}

impl State {
    fn check_transfer(&self, target: &Target, len: usize) -> io::Result<()> {
        let Target { offset, direct, align_bytes, .. } = *target;
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(os_error(errno::EINVAL));
        }
        let sector = self.options.sector_bytes;
        let is_aligned = offset.is_multiple_of(sector as u64)
            && len.is_multiple_of(sector)
            && align_bytes.is_multiple_of(sector);
        if direct && len > 0 && !is_aligned {
            return Err(os_error(errno::EINVAL));
        }
        Ok(())
    }

    /// Reads into `buffer` until it is full or the file ends.
    pub(crate) fn read(&mut self, target: &Target, buffer: &mut [u8]) -> io::Result<usize> {
        self.counters.reads += 1;
        self.check_transfer(target, buffer.len())?;
        let Target { inode: number, offset, direct, .. } = *target;
        let name = Arc::clone(&self.inode(number).name);
        let effect = self.begin(OperationKind::Read, &name, buffer.len());
        if let Some(Effect::Error(code)) = effect {
            return Err(os_error(code));
        }
        let count = (self.inode(number).size_bytes.saturating_sub(offset)).min(buffer.len() as u64)
            as usize;
        let parts = Parts::of(effect.as_ref(), direct, self.options.sector_bytes, buffer.len());
        let content = if direct {
            self.write_back(number, offset, buffer.len() as u64);
            self.device_view(number)
        } else {
            self.inode(number).view.clone()
        };
        let len = buffer.len();
        let done = Transfer::new(len).run(Direction::Read, |done| {
            let part = parts.limit(done, len)?.min(count.saturating_sub(done));
            content.read(offset + done as u64, &mut buffer[done..done + part]);
            Ok(part)
        })?;
        self.counters.read_bytes += done as u64;
        Ok(done)
    }

    /// Writes back what is dirty in the pages of a range.
    fn write_back(&mut self, number: u64, offset: u64, len: u64) {
        let blocks = blocks_of(offset, len);
        let pages = blocks.start * PAGE_BYTES as u64..blocks.end * PAGE_BYTES as u64;
        for entry in self.pending.iter_mut().filter(|entry| entry.inode == number) {
            let range = entry.range();
            if range.start < pages.end && pages.start < range.end {
                entry.write_back();
            }
        }
    }

    /// The medium with the device's cache over it, as the file system maps it.
    pub(crate) fn device_view(&self, number: u64) -> Content {
        self.medium_under(number, |place| place == Place::DeviceCache)
    }

    /// The medium overlaid with the pending changes; of data only what waits in a wanted place.
    fn medium_under(&self, number: u64, is_wanted: impl Fn(Place) -> bool) -> Content {
        let mut content = self.inode(number).medium.clone();
        for entry in self.pending.iter().filter(|entry| entry.inode == number) {
            match entry.change {
                Change::Data { place, offset, .. } if is_wanted(place) => {
                    content.write(offset, entry.bytes())
                }
                Change::Cut { to, .. } => content.cut(to),
                Change::Data { .. } | Change::Size { .. } => {}
            }
        }
        content
    }

    /// Changes bits of a byte on the medium, and in memory if the page is clean.
    pub(crate) fn rot(&mut self, number: u64, at: u64, mask: u8) {
        let is_dirty =
            self.pending.iter().any(|entry| entry.inode == number && entry.range().contains(&at));
        let inode = self.inode_mut(number);
        let flip = |content: &mut Content| {
            let byte = content.get(at, 1)[0] ^ mask;
            content.write(at, &[byte]);
        };
        flip(&mut inode.medium);
        if !is_dirty {
            flip(&mut inode.view);
        }
    }

    /// Writes `bytes`, as much as possible. The caller makes it durable.
    pub(crate) fn write(&mut self, target: &Target, bytes: &[u8]) -> Written {
        let mut writes = Vec::new();
        let result = self.write_parts(target, bytes, &mut writes);
        Written { writes, result }
    }

    fn write_parts(
        &mut self,
        target: &Target,
        bytes: &[u8],
        writes: &mut Vec<u64>,
    ) -> io::Result<usize> {
        let len = bytes.len();
        self.counters.writes += 1;
        self.counters.buffered_writes += u64::from(!target.direct);
        self.counters.written_bytes += len as u64;
        self.check_transfer(target, len)?;
        if len > 0 && target.offset + len as u64 > MAX_FILE_BYTES {
            return Err(os_error(errno::EFBIG));
        }
        let name = Arc::clone(&self.inode(target.inode).name);
        let effect = self.begin(OperationKind::Write, &name, len);
        if let Some(Effect::Error(code)) = effect {
            return Err(os_error(code));
        }
        let sector = self.options.sector_bytes;
        let parts = Parts::of(effect.as_ref(), target.direct, sector, len);
        let done = Transfer::new(len).run(Direction::Write, |done| {
            let part = parts.limit(done, len)?;
            let offset = target.offset + done as u64;
            let mut fits = self.room(target.inode, offset, part);
            if target.direct {
                fits = fits / sector * sector;
            }
            if fits == 0 {
                return Err(os_error(errno::ENOSPC));
            }
            let write = self.order();
            writes.push(write);
            self.put(
                &Target { offset, ..*target },
                &bytes[done..done + fits],
                write,
                effect.as_ref(),
            );
            Ok(fits)
        })?;
        // Everything was written, and the error comes all the same.
        if let (Some(code), true) = (parts.error, parts.first >= len) {
            return Err(os_error(code));
        }
        Ok(done)
    }

    /// One write; there is room for it.
    fn put(&mut self, target: &Target, bytes: &[u8], write: u64, effect: Option<&Effect>) {
        let Target { inode: number, offset, direct, .. } = *target;
        let end = offset + bytes.len() as u64;
        self.allocate(number, offset, bytes.len() as u64);
        if direct {
            // The kernel writes dirty pages back before a direct write, so that they cannot come
            // after it.
            self.write_back(number, offset, bytes.len() as u64);
        }
        let inode = self.inode_mut(number);
        let is_growing = end > inode.size_bytes;
        inode.size_bytes = inode.size_bytes.max(end);
        inode.view.write(offset, bytes);
        let (start, data) = self.sectors(number, offset, bytes);
        match effect {
            Some(Effect::LostWrite) => self.inode_mut(number).is_tainted = true,
            Some(Effect::Misdirected { file, offset: elsewhere }) => {
                self.inode_mut(number).is_tainted = true;
                let sector = self.options.sector_bytes as u64;
                self.put_elsewhere(
                    target,
                    file.as_deref(),
                    elsewhere / sector * sector,
                    data,
                    write,
                );
            }
            _ => {
                let place = if direct { Place::DeviceCache } else { Place::PageCache };
                let len = data.len();
                self.push(
                    number,
                    write,
                    direct,
                    Change::Data { place, offset: start, bytes: data, start: 0, len },
                );
            }
        }
        if is_growing {
            self.push(number, write, direct, Change::Size { to: end });
        }
        if direct && self.inode(number).is_tainted {
            self.forget_pages(number, offset, bytes.len() as u64);
        }
    }

    /// The whole sectors that a write of `bytes` at `offset` changes, as the page cache has them.
    fn sectors(&self, number: u64, offset: u64, bytes: &[u8]) -> (u64, Arc<[u8]>) {
        let sector = self.options.sector_bytes as u64;
        let start = offset / sector * sector;
        let end = (offset + bytes.len() as u64).div_ceil(sector) * sector;
        if start == offset && end - start == bytes.len() as u64 {
            return (start, bytes.into());
        }
        (start, self.inode(number).view.get(start, (end - start) as usize).into())
    }

    /// A write that the device puts elsewhere: within a file's blocks, so that no size and no name
    /// changes.
    fn put_elsewhere(
        &mut self,
        target: &Target,
        file: Option<&str>,
        offset: u64,
        data: Arc<[u8]>,
        write: u64,
    ) {
        let names = &self.directories[self.inode(target.inode).directory].view;
        let victim = file.and_then(|name| names.get(name)).copied().unwrap_or(target.inode);
        let inode = self.inode_mut(victim);
        let room = inode.size_bytes.next_multiple_of(PAGE_BYTES as u64).saturating_sub(offset);
        let len = room.min(data.len() as u64) as usize;
        if len == 0 {
            return;
        }
        // Visible at once: the victim's page cache is assumed to be cold.
        inode.view.write(offset, &data[..len]);
        let place = if target.direct { Place::DeviceCache } else { Place::PageCache };
        self.push(victim, write, true, Change::Data { place, offset, bytes: data, start: 0, len });
    }

    /// Drops clean pages, so that the next read sees what the device has. Dirty ones stay.
    pub(crate) fn forget_pages(&mut self, number: u64, offset: u64, len: u64) {
        let content = self.medium_under(number, |_| true);
        let blocks = blocks_of(offset, len);
        let bytes = ((blocks.end - blocks.start) as usize) * PAGE_BYTES;
        let start = blocks.start * PAGE_BYTES as u64;
        self.inode_mut(number).view.write(start, &content.get(start, bytes));
    }

    pub(crate) fn drop_caches(&mut self) {
        let tainted: Vec<_> = self
            .inodes
            .iter()
            .filter(|(_, inode)| inode.is_tainted)
            .map(|(number, _)| *number)
            .collect();
        for number in tainted {
            self.forget_file(number);
        }
    }

    pub(crate) fn forget_file(&mut self, number: u64) {
        // It shares its pages with the medium.
        let mut view = self.medium_under(number, |_| true);
        let inode = self.inode_mut(number);
        // The device's bytes in the last block beyond the end do not belong to the file.
        view.cut(inode.size_bytes);
        inode.view = view;
        inode.is_tainted = false;
    }

    pub(crate) fn resize(&mut self, number: u64, len: u64) -> io::Result<()> {
        self.counters.resizes += 1;
        if i64::try_from(len).is_err() {
            return Err(os_error(errno::EINVAL));
        }
        if len > MAX_FILE_BYTES {
            return Err(os_error(errno::EFBIG));
        }
        let name = Arc::clone(&self.inode(number).name);
        if let Some(Effect::Error(code)) = self.begin(OperationKind::Resize, &name, 0) {
            return Err(os_error(code));
        }
        let before = self.inode(number).size_bytes;
        if len < before {
            self.shrink(number, len);
        } else if len > before {
            self.inode_mut(number).size_bytes = len;
            let write = self.order();
            self.push(number, write, false, Change::Size { to: len });
        }
        Ok(())
    }

    fn shrink(&mut self, number: u64, to: u64) {
        // Pages beyond the end are dropped, dirty or not: nothing writes them back any more. What
        // the device has of them may still be found as long as the new size is not on the medium.
        let sector_end = to.next_multiple_of(self.options.sector_bytes as u64);
        let mut left = Vec::with_capacity(self.pending.len());
        for entry in std::mem::take(&mut self.pending) {
            if entry.inode == number && entry.is_in(Place::PageCache) {
                entry.cut(to, sector_end, &mut left);
            } else {
                left.push(entry);
            }
        }
        self.pending = left;
        let inode = self.inode_mut(number);
        inode.size_bytes = to;
        inode.view.cut(to);
        let had = Box::new(inode.blocks.clone());
        inode.blocks.cut(to);
        // The last block changes with the size: until that is on the medium, nothing in it is
        // settled.
        inode.blocks.settled.cut(to / PAGE_BYTES as u64);
        self.used_blocks -= had.allocated.count() - self.inode(number).blocks.allocated.count();
        let write = self.order();
        self.push(number, write, false, Change::Cut { to, sector_end, had });
    }

    /// fallocate of the first `len` bytes: blocks without data where there are none.
    pub(crate) fn reserve(&mut self, number: u64, len: u64) -> io::Result<()> {
        self.counters.allocations += 1;
        let name = Arc::clone(&self.inode(number).name);
        if let Some(Effect::Error(code)) = self.begin(OperationKind::Allocate, &name, 0) {
            return Err(os_error(code));
        }
        if len == 0 {
            return Err(os_error(errno::EINVAL));
        }
        if len > MAX_FILE_BYTES {
            return Err(os_error(errno::EFBIG));
        }
        if self.room(number, 0, len as usize) < len as usize {
            return Err(os_error(errno::ENOSPC));
        }
        for block in blocks_of(0, len) {
            let inode = self.inode_mut(number);
            if !inode.blocks.allocated.has(block) {
                inode.blocks.reserved.set(block..block + 1, true);
            }
        }
        self.allocate(number, 0, len);
        let write = self.order();
        if len > self.inode(number).size_bytes {
            self.inode_mut(number).size_bytes = len;
            self.push(number, write, false, Change::Size { to: len });
        }
        Ok(())
    }
}
