//! Files that earlier openings left in the directory and that are not part of the log.
//!
//! *Owns*: what is done with them. *May not touch*: the log's segments.

use inkstone_format::SegmentNumber;
use inkstone_io::OpenFile;

use crate::names;
use crate::options::Options;
use crate::segment::listing::Listing;
use crate::segment::pool::Pool;
use crate::segment::reserve::ROOM_BYTES;
use crate::sync::lock;

impl Pool {
    /// Takes over what earlier openings left: segments that are not part of the log, files that
    /// never became segments, surplus free files. A file for which that fails is left to the next
    /// opening. Returns their number. The `live` segments are in their order.
    pub(crate) fn tidy(
        &self,
        listing: &Listing,
        live: &[SegmentNumber],
        options: &Options,
    ) -> usize {
        let mut count = 0;
        for &number in listing.segments.iter().filter(|number| live.binary_search(number).is_err())
        {
            let opened =
                self.directory.open(&names::segment(number), &OpenFile::existing().read_only());
            if let Ok(bytes) = opened.and_then(|file| file.len_bytes()) {
                let mut files = lock(&self.files);
                files.used_bytes = files.used_bytes.saturating_add(bytes);
                drop(files);
                count += usize::from(self.retire(number, bytes, options).is_ok());
            }
        }
        for &number in &listing.unfinished {
            count += usize::from(self.directory.remove(&names::new(number)).is_ok());
        }
        // Room that is not needed (the log was on btrfs once), or a file that is larger than ours.
        if listing.room && (!options.keeps_room || *lock(&self.room_bytes) > ROOM_BYTES[0]) {
            self.give_up_room();
        }
        let mut files = lock(&self.files);
        let before = files.free.len();
        // Of a log that had larger segments.
        files.doom_if(|spare| spare.bytes > options.segment_bytes);
        files.doom_surplus(options.free_segments_chosen());
        count + before - files.free.len()
    }
}
