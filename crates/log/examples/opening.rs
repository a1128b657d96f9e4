//! How long a large log takes to open, warm and cold, beside a bare read of its last segment.
//!
//! ```text
//! cargo run --release -p inkstone --example opening -- [DIR] [GIB]
//! ```
//!
//! Cold means that the kernel dropped its caches (as root; otherwise it reports that it did not).
//! The log is removed at the end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use inkstone::{Access, Log, Options, Result};
use inkstone_io::{AlignedBuf, File as _, OpenFile, OsFile};

const ROUNDS: usize = 9;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let parent = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let gib: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(4);
    let path = parent.join(format!(".inkstone-opening-{}", std::process::id()));
    let outcome = measure(&path, gib);
    let _ = std::fs::remove_dir_all(&path);
    outcome
}

fn measure(path: &Path, gib: u64) -> Result<()> {
    let log = Log::open(path, Options::default())?;
    let record = vec![7; 1 << 20];
    // The last segment is left half full.
    for _ in 0..gib * 1024 {
        drop(log.append(&record)?);
    }
    log.close()?;
    for is_cold in [false, true] {
        let (mut opening, mut reading) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            if is_cold && std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
                println!("cold: not measured, only root can drop the kernel's caches");
                return Ok(());
            }
            reading.push(read_last(path)?);
            if is_cold {
                let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
            }
            let started = Instant::now();
            let log = Log::open(path, Options::default())?;
            opening.push(started.elapsed().as_secs_f64() * 1e3);
            let recovery = log.recovery().clone();
            log.close()?;
            assert!(recovery.clean, "{recovery}");
        }
        let word = if is_cold { "cold" } else { "warm" };
        println!(
            "{word}: opening {:.1} ms, reading the last segment past the cache {:.1} ms (medians \
             of {ROUNDS})",
            median(opening),
            median(reading)
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Milliseconds that a bare read of the last segment takes, in pieces of 1 MiB.
fn read_last(path: &Path) -> Result<f64> {
    let names =
        std::fs::read_dir(path).map_err(|source| inkstone_io::Error::new("list", path, source))?;
    let segments = names.filter_map(|entry| Some(entry.ok()?.path()));
    let last = segments.filter(|path| path.extension().is_some_and(|end| end == "ink")).max();
    let last = last.expect("a log has a segment");
    let started = Instant::now();
    let file = OsFile::open(&last, &OpenFile::existing().read_only().access(Access::Direct))?;
    let mut buffer = AlignedBuf::zeroed(1 << 20);
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(started.elapsed().as_secs_f64() * 1e3),
            read => at += read as u64,
        }
    }
}
