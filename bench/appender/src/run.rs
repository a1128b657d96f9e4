//! One run of one arm.
//!
//! *Owns*: the threads that put lines, the clock, and the check that no line is missing but those
//! that an arm may lose and has counted. *May not touch*: which writer it is, what the figures
//! mean.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use inkstone_host::process_cpu_ns;

use crate::arms::{Arm, LINE_BYTES, Lines, Writer, open};
use crate::files;

#[derive(Debug, Clone, Copy)]
pub struct Unpaced {
    pub seconds: f64,
    pub cpu_ns_per_line: f64,
    /// Lines that were not in the file yet when closing returned; they are waited for.
    pub late: f64,
    /// Lines that were put and never came to the file.
    pub lost: u64,
}

/// As much as a writer's buffer has.
const MEMORY_BYTES: usize = 256 << 10;
const DRAIN_SECONDS_MAX: u64 = 120;

/// p50, p99, p99.9, max, in ns.
pub type Paced = [u64; 4];

/// What the kernel takes for the same bytes, put together before the clock: no writer through the
/// page cache is faster with one thread at the file, and the file's lock lets no second one in.
fn bare(directory: &Path, lines: &Lines, count: u64) -> Unpaced {
    const BUFFER_BYTES: usize = 256 << 10;
    let buffer: String =
        (0..).map(|number| lines.get(number)).take(BUFFER_BYTES.div_ceil(LINE_BYTES)).collect();
    let buffer = &buffer.as_bytes()[..BUFFER_BYTES];
    let mut file = File::create(directory.join("a.log")).expect("a file");
    let (since, used) = (Instant::now(), process_cpu_ns());
    let mut left = count as usize * LINE_BYTES;
    while left > 0 {
        let bytes = left.min(BUFFER_BYTES);
        file.write_all(&buffer[..bytes]).expect("written");
        left -= bytes;
    }
    let (seconds, used) = (since.elapsed().as_secs_f64(), process_cpu_ns() - used);
    let bytes = files::bytes_in(directory);
    assert_eq!(bytes, count * LINE_BYTES as u64, "bytes in the file");
    files::remove_all(directory);
    Unpaced { seconds, cpu_ns_per_line: used as f64 / count as f64, late: 0.0, lost: 0 }
}

/// A run whose lines are in the files, which are still there.
pub struct Drained {
    arm: Arm,
    put: u64,
    /// By the writer's own count.
    dropped: u64,
    late_bytes: u64,
    seconds: f64,
    cpu_ns: u64,
}

impl Drained {
    /// Looks for the lines, outside of the clock, and gives how many are missing. The files are
    /// gone then.
    pub fn lost(&self, directory: &Path) -> u64 {
        let found = files::lines_in(directory);
        files::remove_all(directory);
        let lost = self.put.checked_sub(found).expect("no line is there twice");
        assert!(lost == 0 || self.arm.is_lossy(), "{}: {lost} lines lost", self.arm.name());
        // Otherwise this was not drained yet, or the file lost more than the writer knows of.
        assert_eq!(
            lost,
            self.dropped,
            "{}: lines lost, and those it says it dropped",
            self.arm.name()
        );
        lost
    }
}

/// Every thread puts its lines as fast as it can; ends when they are in the files and the writer is
/// closed.
pub fn drain(arm: Arm, directory: &Path, lines: &Lines, each: u64, threads: u64) -> Drained {
    let (writer, end) = open(arm, &directory.join("a.log"));
    let start = Barrier::new(threads as usize + 1);
    let (mut since, mut used) = (Instant::now(), process_cpu_ns());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (mut writer, start) = (writer.clone(), &start);
            scope.spawn(move || {
                start.wait();
                for number in 0..each {
                    writer.put(lines.get(number + thread * 1000));
                }
            });
        }
        (since, used) = (Instant::now(), process_cpu_ns());
        start.wait();
    });
    drop(writer);
    let dropped = end.close();
    let put = each * threads;
    let expected = (put - dropped) * LINE_BYTES as u64;
    // Compressed files have no length that says how far they are; closing waits for all lines
    // there.
    let missing = || match arm {
        Arm::InkstoneCompressing => 0,
        _ => expected.checked_sub(files::bytes_in(directory)).expect("no more than was put"),
    };
    let late_bytes = missing();
    while missing() > 0 {
        let is_in_time = since.elapsed() < Duration::from_secs(DRAIN_SECONDS_MAX);
        assert!(is_in_time, "{}: {} bytes lost", arm.name(), missing());
        std::thread::sleep(Duration::from_micros(200));
    }
    let seconds = since.elapsed().as_secs_f64();
    let cpu_ns = process_cpu_ns() - used;
    assert!(late_bytes == 0 || !arm.name().starts_with("inkstone"), "{late_bytes} bytes late");
    Drained { arm, put, dropped, late_bytes, seconds, cpu_ns }
}

pub fn unpaced(arm: Arm, directory: &Path, lines: &Lines, each: u64, threads: u64) -> Unpaced {
    if arm == Arm::Bare {
        return bare(directory, lines, each * threads);
    }
    let run = drain(arm, directory, lines, each, threads);
    Unpaced {
        seconds: run.seconds,
        cpu_ns_per_line: run.cpu_ns as f64 / run.put as f64,
        late: run.late_bytes as f64 / LINE_BYTES as f64,
        lost: run.lost(directory),
    }
}

pub fn paced(arm: Arm, directory: &Path, lines: &Lines, seconds: u64, threads: u64) -> Paced {
    let (writer, end) = open(arm, &directory.join("a.log"));
    let mut all = Histogram::<u64>::new(3).expect("three digits");
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                let mut writer = writer.clone();
                if let Writer::Memory(memory) = &mut writer {
                    memory.reserve_exact(MEMORY_BYTES);
                }
                scope.spawn(move || {
                    let mut times = Histogram::<u64>::new(3).expect("three digits");
                    let begin = Instant::now();
                    for burst in 0..seconds * 1000 {
                        let at = begin + Duration::from_millis(burst);
                        std::thread::sleep(at.saturating_duration_since(Instant::now()));
                        for number in 0..100 {
                            let line = lines.get(burst * 100 + number + thread * 1000);
                            let since = Instant::now();
                            writer.put(line);
                            times.record(since.elapsed().as_nanos() as u64).expect("it fits");
                        }
                    }
                    times
                })
            })
            .collect();
        for run in runs {
            all.add(run.join().expect("no panic")).expect("it fits");
        }
    });
    drop(writer);
    end.close();
    files::remove_all(directory);
    [0.5, 0.99, 0.999, 1.0].map(|quantile| all.value_at_quantile(quantile))
}
