//! One run of one arm, and the tables.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use inkstone_io::host::process_cpu_ns;

use crate::arms::{Arm, LINE_BYTES, Lines, Writer, open};

#[derive(Debug, Clone, Copy)]
pub struct Unpaced {
    seconds: f64,
    cpu_ns_per_line: f64,
    /// Lines that were not in the file yet when closing returned; they are waited for.
    late: f64,
}

/// As much as a writer's buffer has.
const MEMORY_BYTES: usize = 256 << 10;

/// p50, p99, p99.9, max, in ns.
pub type Paced = [u64; 4];

fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        std::fs::remove_file(entry.path()).expect("removed");
    }
}

/// Every plain file together; compressed ones cannot be counted so.
fn bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    entries.map(|entry| entry.metadata().expect("there").len()).sum()
}

/// What the kernel takes for the same bytes, put together before the clock: no writer through the page cache is faster with one
/// thread at the file, and the file's lock lets no second one in.
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
    empty(directory);
    Unpaced { seconds, cpu_ns_per_line: used as f64 / count as f64, late: 0.0 }
}

pub fn unpaced(arm: Arm, directory: &Path, lines: &Lines, each: u64, threads: u64) -> Unpaced {
    if arm == Arm::Bare {
        return bare(directory, lines, each * threads);
    }
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
    end.close();
    let expected = each * threads * LINE_BYTES as u64;
    let is_plain = arm != Arm::InkstoneCompressing;
    let late = if is_plain { expected - bytes(directory) } else { 0 };
    while is_plain && bytes(directory) < expected {
        assert!(since.elapsed() < Duration::from_secs(120), "{}: {late} bytes lost", arm.name());
        std::thread::sleep(Duration::from_micros(200));
    }
    let seconds = since.elapsed().as_secs_f64();
    let used = process_cpu_ns() - used;
    assert!(late == 0 || !arm.name().starts_with("inkstone"), "{late} bytes late");
    let late = late as f64 / LINE_BYTES as f64;
    empty(directory);
    Unpaced { seconds, cpu_ns_per_line: used as f64 / (each * threads) as f64, late }
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
    empty(directory);
    [0.5, 0.99, 0.999, 1.0].map(|quantile| all.value_at_quantile(quantile))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Median, second lowest, second highest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let values = sorted(values);
    [values[values.len() / 2], values[1], values[values.len() - 2]]
}

/// `of(a)` over `of(b)`, round by round.
fn ratio<T: Copy>(found: &[(Arm, usize, T)], arm: Arm, to: Arm, of: impl Fn(T) -> f64) -> String {
    let at = |arm, round| found.iter().find(|one| one.0 == arm && one.1 == round).map(|one| of(one.2));
    let rounds = found.iter().filter(|one| one.0 == arm).map(|one| one.1);
    let ratios = rounds.filter_map(|round| Some(at(arm, round)? / at(to, round)?));
    let ratios: Vec<f64> = ratios.collect();
    if ratios.is_empty() {
        return "-".to_owned();
    }
    let [median, low, high] = spread(ratios.into_iter());
    format!("{median:.2} [{low:.2}..{high:.2}]")
}

fn of(found: &[(Arm, usize, Unpaced)], arm: Arm, value: impl Fn(Unpaced) -> f64) -> f64 {
    spread(found.iter().filter(|one| one.0 == arm).map(|one| value(one.2)))[0]
}

pub fn print_unpaced(threads: u64, lines: u64, found: &[(Arm, usize, Unpaced)]) {
    println!("\nunpaced, {threads} thread(s), {lines} lines, lossless, drained and closed\n");
    println!(
        "| writer | M lines/s | CPU ns/line | late at close, most | x tracing-appender | x Mutex<BufWriter> | x inkstone | x write(2) |\n|---|---|---|---|---|---|---|---|"
    );
    for arm in Arm::ALL.into_iter().filter(|arm| found.iter().any(|one| one.0 == *arm)) {
        let rate = |one: Unpaced| lines as f64 / one.seconds / 1e6;
        println!(
            "| {} | {:.2} | {:.0} | {:.0} | {} | {} | {} | {} |",
            arm.name(),
            of(found, arm, rate),
            of(found, arm, |one| one.cpu_ns_per_line),
            found.iter().filter(|one| one.0 == arm).map(|one| one.2.late).fold(0.0, f64::max),
            ratio(found, arm, Arm::Tracing, rate),
            ratio(found, arm, Arm::Mutex, rate),
            ratio(found, arm, Arm::Inkstone, rate),
            ratio(found, arm, Arm::Bare, rate),
        );
    }
}

pub fn print_paced(threads: u64, found: &[(Arm, usize, Paced)]) {
    println!("\npaced, {threads} thread(s), 100 lines every ms each: ns per call\n");
    println!(
        "| writer | p50 | p99 | p99.9 | max | p99.9 x tracing-appender | p99 x inkstone | p99.9 x inkstone |\n|---|---|---|---|---|---|---|---|"
    );
    for arm in Arm::ALL.into_iter().filter(|arm| found.iter().any(|one| one.0 == *arm)) {
        let median =
            |which: usize| spread(found.iter().filter(|one| one.0 == arm).map(|one| one.2[which] as f64))[0];
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {} | {} |",
            arm.name(),
            median(0),
            median(1),
            median(2),
            median(3),
            ratio(found, arm, Arm::Tracing, |one| one[2] as f64),
            ratio(found, arm, Arm::Inkstone, |one| one[1] as f64),
            ratio(found, arm, Arm::Inkstone, |one| one[2] as f64),
        );
    }
}
