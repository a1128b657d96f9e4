//! The requests that the commits of a log's lone writer caused at the device, and separately those
//! that prepared segments.
//!
//! *Owns*: that writer, and its trace. *May not touch*: what a request was and whose
//! (`crate::bill`), the log's internals: it uses the public interface, as a user's program would.
//!
//! The writer commits, for itself. The log's thread for files (`inkstone-files`) never commits: its
//! writes and syncs are preparation, and so are the journal's writes for it.

use std::path::Path;

use inkstone::Log;
use inkstone_host::monotonic_ns;
use inkstone_io::{Directory, File, OpenFile};

use crate::bill::{Billed, Evidence, Layer, bill_of};
use crate::billing::Devices;
use crate::pass::CommitSpan;
use crate::site::Site;
use crate::stage::WayError;

/// Appends the record so often under trace, each time waiting until it is durable, and makes the
/// bill.
///
/// # Errors
/// Those of the log or the trace; there is no block device.
pub fn by_trace(
    site: &Site,
    (log, path): (&Log, &Path),
    record: &[u8],
    commits: u64,
) -> Result<Billed, WayError> {
    let Some(devices) = Devices::of(site) else {
        return Err(WayError::Invalid("there is no block device to watch".into()));
    };
    let append = |_| {
        let start_ns = monotonic_ns();
        let refused = |error: inkstone::Error| WayError::Invalid(error.to_string());
        log.append_durable(record).map_err(refused)?;
        Ok(CommitSpan { start_ns, ack_ns: monotonic_ns() })
    };
    let traced = devices.traced(
        |layer| add_files(layer, path),
        || (0..commits).map(append).collect::<Result<Vec<CommitSpan>, WayError>>(),
    )?;
    Ok(bill_of(&Evidence {
        trace: &traced.trace,
        layer: &traced.layer,
        commits: &traced.done,
        own_threads: &this_thread().into_iter().collect::<Vec<u32>>(),
        inode: None,
        promises: true,
        overwrites: true,
        several: false,
        counted: traced.counted,
    }))
}

/// The id of the calling thread, if /proc shows it.
fn this_thread() -> Option<u32> {
    let link = std::fs::read_link(Path::new("/proc/thread-self")).ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// All files of a directory; of a log: segments, files that are ready or free.
fn add_files(layer: &mut Layer, directory: &Path) -> Result<(), WayError> {
    let opened = inkstone_io::OsDirectory::open(directory)?;
    for name in opened.plain_files()? {
        // Skips files removed or renamed meanwhile: the next call finds their blocks under the new
        // name.
        if let Ok(file) = opened.open(&name, &OpenFile::existing().read_only())
            && file.len_bytes().is_ok_and(|len| len > 0)
        {
            layer.add_file(file.std_file(), file.path());
        }
    }
    Ok(())
}
