//! fallocate, mode by mode, on one file system (article 3): what the call returns, and what it does
//! to a file; and zeroing a file by writing beside one call.
//!
//! *Owns*: the calls, and the facts before and after. *May not touch*: the choice of file systems.

use std::os::unix::fs::MetadataExt;

use inkstone_host::{ExtentMap, ExtentState, FallocateMode, LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, File, NamedChoice, OpenFile, Preparation, SyncKind};

use crate::result::{Unit, figure};
use crate::rounds::{Facts, Running, Sample, Trial, each};
use crate::stage::{Session, WayError};
use crate::writing::size_name;

/// The published file: 8 KiB written, then a call over its first 64 KiB or 4 KiB.
const WRITTEN_BYTES: usize = 8192;
const RANGES_BYTES: [u64; 2] = [64 << 10, 4 << 10];
const FILE: &str = "fallocate";

/// Every mode over both ranges.
pub(crate) fn modes() -> Trial {
    let title = "fallocate: what each mode over the first bytes of a file of 8 KiB does to it";
    Trial::new((FILE, title), Unit::Facts, (1 << 20, 1.0), |scene| {
        let ranges = |&mode: &FallocateMode| RANGES_BYTES.map(|bytes| (mode, bytes));
        let rows = FallocateMode::ALL.iter().flat_map(ranges);
        let rows = rows.map(|(mode, bytes)| {
            let name = format!("{mode} {}", size_name(bytes));
            Running::facts(name, one(scene.session, mode, bytes))
        });
        rows.collect()
    })
}

fn one(session: &Session<'_>, mode: FallocateMode, len_bytes: u64) -> Result<Facts, WayError> {
    let file = session.new_file(FILE, &OpenFile::new_file())?;
    file.write_at(&[0xA5; WRITTEN_BYTES], 0)?;
    file.sync(SyncKind::All)?;
    let before = State::of(&file)?;
    let answer = mode.call(file.std_file(), file.path(), 0, len_bytes);
    let after = State::of(&file)?;
    let changed = |before: String, after: String| match before == after {
        true => after,
        false => format!("{before}->{after}"),
    };
    let size = |state: &State| state.size_bytes.to_string();
    let words = [
        ("answer", answer.as_ref().map_or_else(short_answer, |()| "ok".into())),
        ("size", changed(size(&before), size(&after))),
        ("blocks", changed(before.blocks.to_string(), after.blocks.to_string())),
        ("extents after", after.extents.join(", ")),
        ("content after", runs(&after.content).join(", ")),
    ];
    let kept = after.content.iter().filter(|byte| **byte != 0).count();
    let figures = vec![
        figure("size after", Unit::Bytes, after.size_bytes as f64),
        figure("blocks after", Unit::Blocks, after.blocks as f64),
        figure("blocks added", Unit::Blocks, after.blocks as f64 - before.blocks as f64),
        figure("bytes kept", Unit::Bytes, kept as f64),
        figure("refused", Unit::Calls, f64::from(u8::from(answer.is_err()))),
    ];
    Ok(Facts { figures, words: words.map(|(name, fact)| (name.to_owned(), fact)).into() })
}

/// The error by name (`EOPNOTSUPP`): that is what people search for.
pub(crate) fn short_answer(error: &inkstone_io::Error) -> String {
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

/// A file as the file system shows it.
struct State {
    size_bytes: u64,
    /// In units of 512 B.
    blocks: u64,
    extents: Vec<String>,
    content: Vec<u8>,
}

impl State {
    fn of(file: &LabFile) -> Result<Self, WayError> {
        // FIEMAP first: the call makes the file system allocate delayed blocks, so that the block
        // count is final.
        let words = |map: &ExtentMap| {
            let all = map.extents.iter();
            all.map(|e| extent_words(e.logical, e.len_bytes, e.state, e.shared)).collect()
        };
        let extents = match ExtentMap::of(file.std_file(), file.path()) {
            Ok(map) => words(&map),
            Err(error) if error.is_unsupported() => vec!["unknown".into()],
            Err(error) => return Err(error.into()),
        };
        let metadata = file
            .std_file()
            .metadata()
            .map_err(|source| inkstone_io::Error::new("fstat", file.path(), source))?;
        let mut content = vec![0; metadata.len() as usize];
        let read = file.read_at(&mut content, 0)?;
        content.truncate(read);
        Ok(Self { size_bytes: metadata.len(), blocks: metadata.blocks(), extents, content })
    }
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
    let words = |run: &[u8]| {
        let what = if run[0] == 0 { "zero" } else { "data" };
        format!("{} {what}", size_name(run.len() as u64))
    };
    bytes.chunk_by(|a, b| (*a == 0) == (*b == 0)).map(words).collect()
}

/// Ways to fill a file with zeros: writes, or one call.
const ZEROING: [(&str, Access, Option<Preparation>); 5] = [
    ("zeros written (page cache)", Access::Buffered, None),
    ("zeros written (O_DIRECT)", Access::Direct, None),
    ("ZERO_RANGE", Access::Buffered, Some(Preparation::ZeroRange)),
    ("fallocate mode 0", Access::Buffered, Some(Preparation::Fallocate)),
    ("WRITE_ZEROES", Access::Buffered, Some(Preparation::WriteZeroes)),
];

/// Of a smaller file no statement about a large one is answered.
const LARGE_BYTES: u64 = 1 << 30;

/// Zeroing a file of this size; each call with the sync after it.
pub(crate) fn zeroing(len_bytes: u64) -> Trial {
    let title = format!("Zeroing a file of {}, and a sync", size_name(len_bytes));
    // The one takes as long as the file is large, the other does not: so their ratio is of a size.
    let name = if len_bytes < LARGE_BYTES { "zeroing-small" } else { "zeroing" };
    Trial::new((name, title), Unit::NsPerOp, (len_bytes, 8.0), move |_| {
        let way = |(name, access, call)| {
            let zero = each(move |turn| zeroed(turn.session, len_bytes, access, call));
            Running::of(name, zero)
        };
        Ok(ZEROING.map(way).into())
    })
}

fn zeroed(
    session: &Session<'_>,
    len_bytes: u64,
    access: Access,
    call: Option<Preparation>,
) -> Result<Sample, WayError> {
    session.clear(FILE)?;
    let file = session.new_file(FILE, &OpenFile::new_file().access(access))?;
    let start_ns = monotonic_ns();
    match call {
        Some(preparation) => file.prepare(preparation, len_bytes)?,
        None => {
            let zeros = AlignedBuf::zeroed(1 << 20);
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
    let figures = vec![
        figure("the call", Unit::Ns, (called_ns - start_ns) as f64),
        figure("the sync", Unit::Ns, (synced_ns - called_ns) as f64),
    ];
    Ok(Sample::of(1, synced_ns - start_ns).with(figures))
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
