//! E4: fallocate, mode by mode, on one file system: what the call returns, and what it does to a
//! file.
//!
//! *Owns*: the calls, and the facts before and after. *May not touch*: the choice of file systems.

use std::os::unix::fs::MetadataExt;

use inkstone_host::{ExtentMap, ExtentState, FallocateMode, LabFile, monotonic_ns};
use inkstone_io::{Access, File, NamedChoice, OpenFile, Preparation, SyncKind};

use crate::progress::Progress;
use crate::result::{FallocateAtlas, FallocateCall, FileFacts, Zeroed};
use crate::site::Site;
use crate::stage::{Session, WayError};
use crate::writing::size_name;

/// The published file: 8 KiB written, then a call over its first 64 KiB or 4 KiB.
const WRITTEN_BYTES: usize = 8192;
const RANGES_BYTES: [u64; 2] = [64 << 10, 4 << 10];
const FILE: &str = "fallocate";

/// Every mode over both ranges, then the zeroing comparison over `zeroing_bytes`.
///
/// # Errors
/// Only when the user wants to stop; a refusal by the file system is an answer.
pub(crate) fn atlas(
    site: &Site,
    session: &Session<'_>,
    zeroing_bytes: u64,
    progress: &mut Progress,
) -> Result<FallocateAtlas, WayError> {
    let mut atlas = FallocateAtlas { place: site.place.clone(), ..FallocateAtlas::default() };
    for &mode in FallocateMode::ALL {
        for len_bytes in RANGES_BYTES {
            session.check()?;
            progress.step(&format!("{} on {}", mode, site.place.name));
            atlas.calls.push(one(session, mode, len_bytes)?);
        }
    }
    for way in Zeroing::ALL {
        session.check()?;
        progress.step(&format!("zeroing on {}", site.place.name));
        atlas.zeroing.push(zeroing(session, way, zeroing_bytes)?);
    }
    session.remove(FILE)?;
    Ok(atlas)
}

/// How many steps [`atlas`] reports to its progress.
pub(crate) fn atlas_steps() -> u64 {
    (FallocateMode::ALL.len() * RANGES_BYTES.len() + Zeroing::ALL.len()) as u64
}

fn one(
    session: &Session<'_>,
    mode: FallocateMode,
    len_bytes: u64,
) -> Result<FallocateCall, WayError> {
    let file = session.new_file(FILE, &OpenFile::new_file())?;
    file.write_at(&[0xA5; WRITTEN_BYTES], 0)?;
    file.sync(SyncKind::All)?;
    let before = facts(&file)?;
    let answer = mode.call(file.std_file(), file.path(), 0, len_bytes);
    let after = facts(&file)?;
    Ok(FallocateCall {
        mode: mode.name().into(),
        offset_bytes: 0,
        len_bytes,
        done: answer.is_ok(),
        answer: answer.map_or_else(|error| short_answer(&error), |()| "ok".into()),
        before,
        after,
    })
}

/// The error by name (`EOPNOTSUPP`): that is what people search for.
fn short_answer(error: &inkstone_io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(95) => "EOPNOTSUPP",
        Some(22) => "EINVAL",
        Some(28) => "ENOSPC",
        Some(1) => "EPERM",
        Some(38) => "ENOSYS",
        _ => return error.to_string(),
    };
    name.into()
}

fn facts(file: &LabFile) -> Result<FileFacts, WayError> {
    // FIEMAP first: the call makes the file system allocate delayed blocks, so that the block count
    // is final.
    let extents = match ExtentMap::of(file.std_file(), file.path()) {
        Ok(map) => map
            .extents
            .iter()
            .map(|e| extent_words(e.logical, e.len_bytes, e.state, e.shared))
            .collect(),
        Err(error) if error.is_unsupported() => vec!["unknown".into()],
        Err(error) => return Err(error.into()),
    };
    let metadata = file
        .std_file()
        .metadata()
        .map_err(|source| inkstone_io::Error::new("fstat", file.path(), source))?;
    let mut bytes = vec![0; metadata.len() as usize];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(FileFacts {
        size_bytes: metadata.len(),
        blocks: metadata.blocks(),
        extents,
        content: runs(&bytes[..read]),
    })
}

fn extent_words(logical: u64, len_bytes: u64, state: ExtentState, shared: bool) -> String {
    let state = match state {
        ExtentState::Written => "written",
        ExtentState::Unwritten => "unwritten",
        ExtentState::Delayed => "delayed",
        ExtentState::Encoded => "encoded",
    };
    let shared = if shared { " shared" } else { "" };
    format!("{}+{} {state}{shared}", size_name(logical), size_name(len_bytes))
}

/// The bytes as runs: `8KiB data`, `56KiB zero`.
fn runs(bytes: &[u8]) -> Vec<String> {
    bytes
        .chunk_by(|a, b| (*a == 0) == (*b == 0))
        .map(|run| {
            let what = if run[0] == 0 { "zero" } else { "data" };
            format!("{} {what}", size_name(run.len() as u64))
        })
        .collect()
}

/// A way to fill a file with zeros.
#[derive(Debug, Clone, Copy)]
enum Zeroing {
    Written,
    WrittenDirect,
    Call(Preparation),
}

impl Zeroing {
    const ALL: [Self; 5] = [
        Self::Written,
        Self::WrittenDirect,
        Self::Call(Preparation::ZeroRange),
        Self::Call(Preparation::Fallocate),
        Self::Call(Preparation::WriteZeroes),
    ];

    fn words(self) -> &'static str {
        match self {
            Self::Written => "zeros written (page cache)",
            Self::WrittenDirect => "zeros written (O_DIRECT)",
            Self::Call(Preparation::ZeroRange) => "ZERO_RANGE",
            Self::Call(Preparation::WriteZeroes) => "WRITE_ZEROES",
            Self::Call(_) => "fallocate mode 0",
        }
    }
}

fn zeroing(session: &Session<'_>, way: Zeroing, len_bytes: u64) -> Result<Zeroed, WayError> {
    session.remove(FILE)?;
    let mut zeroed = Zeroed {
        way: way.words().into(),
        len_bytes,
        call_ns: None,
        sync_ns: None,
        answer: "ok".into(),
        blocks_are: String::new(),
    };
    match timed_zeroing(session, way, len_bytes) {
        Ok((call_ns, sync_ns, blocks_are)) => {
            (zeroed.call_ns, zeroed.sync_ns, zeroed.blocks_are) =
                (Some(call_ns), Some(sync_ns), blocks_are);
        }
        Err(WayError::Interrupted) => return Err(WayError::Interrupted),
        Err(WayError::Io(error)) => zeroed.answer = short_answer(&error),
        Err(error) => zeroed.answer = error.to_string(),
    }
    Ok(zeroed)
}

fn timed_zeroing(
    session: &Session<'_>,
    way: Zeroing,
    len_bytes: u64,
) -> Result<(u64, u64, String), WayError> {
    drop(session.directory.open(FILE, &OpenFile::new_file())?);
    let (access, call) = match way {
        Zeroing::Written => (Access::Buffered, None),
        Zeroing::WrittenDirect => (Access::Direct, None),
        Zeroing::Call(preparation) => (Access::Buffered, Some(preparation)),
    };
    let file = session.directory.open(FILE, &OpenFile::existing().access(access))?;
    let start_ns = monotonic_ns();
    match call {
        Some(preparation) => file.prepare(preparation, len_bytes)?,
        None => {
            let zeros = inkstone_io::AlignedBuf::zeroed(1 << 20);
            let mut at = 0;
            while at < len_bytes {
                session.check()?;
                let len = (len_bytes - at).min(zeros.len() as u64) as usize;
                file.write_at(&zeros[..len], at)?;
                at += len as u64;
            }
        }
    }
    let called_ns = monotonic_ns();
    file.sync(SyncKind::All)?;
    let synced_ns = monotonic_ns();
    let blocks_are = match ExtentMap::of(file.std_file(), file.path()) {
        Ok(map) => {
            let coverage = map.coverage(0..len_bytes);
            match (coverage.written_bytes == len_bytes, coverage.unwritten_bytes == len_bytes) {
                (true, _) => "written".into(),
                (_, true) => "unwritten".into(),
                _ => format!(
                    "{} written, {} unwritten",
                    size_name(coverage.written_bytes),
                    size_name(coverage.unwritten_bytes)
                ),
            }
        }
        Err(_) => "unknown".into(),
    };
    Ok((called_ns - start_ns, synced_ns - called_ns, blocks_are))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_told_as_runs() {
        let mut bytes = vec![0xA5; 4096];
        bytes.extend([0; 8192]);
        bytes.push(1);
        assert_eq!(runs(&bytes), ["4KiB data", "8KiB zero", "1B data"]);
        assert!(runs(&[]).is_empty());
    }
}
