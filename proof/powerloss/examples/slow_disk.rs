//! How commits per second follow from the cost of a flush: a log on disks whose flushes are slowed
//! down. It checks the model of docs/performance.md where the latency is known.
//!
//! *Owns*: the disks and the loads. *May not touch*: the log's insides.
//!
//! `cargo run --release -p inkstone-powerloss --example slow_disk -- [SECONDS [FLUSH_US ...]]`
//! (root, /dev/fuse, loop devices)

use std::time::{Duration, Instant};

use inkstone::{Log, Options};
use inkstone_powerloss::kernel::disk::Disk;
use inkstone_powerloss::kernel::fault::{Access, Effect, Rule};
use inkstone_powerloss::kernel::image::Image;
use inkstone_powerloss::kernel::machine::{FsKind, Machine};

const THREADS: [usize; 4] = [1, 2, 8, 64];
const GIVEN_UP_EVERY: u64 = 8192;

/// Commits per second of this many threads, each of which waits for its records of 128 bytes; and
/// records per group.
fn load(log: &Log, threads: usize, time: Duration) -> inkstone::Result<(f64, f64)> {
    let before = log.stats();
    let begun = Instant::now();
    let counts: inkstone::Result<Vec<u64>> = std::thread::scope(|scope| {
        let writer = || {
            let mut count = 0;
            while begun.elapsed() < time {
                let lsn = log.append_durable(&[7; 128])?;
                count += 1;
                // The disk is small.
                if lsn.get().is_multiple_of(GIVEN_UP_EVERY) {
                    log.truncate_before(lsn)?;
                }
            }
            Ok(count)
        };
        let writers: Vec<_> = (0..threads).map(|_| scope.spawn(writer)).collect();
        writers.into_iter().map(|writer| writer.join().unwrap_or(Ok(0))).collect()
    });
    let (count, took) = (counts?.into_iter().sum::<u64>() as f64, begun.elapsed().as_secs_f64());
    Ok((count / took, count / (log.stats().groups - before.groups).max(1) as f64))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |text| text.parse())?;
    let delays: Vec<u64> = arguments.map(|text| text.parse()).collect::<Result<_, _>>()?;
    let delays = if delays.is_empty() { vec![0, 1000, 8000] } else { delays };
    let machine = Machine::new(&std::env::temp_dir())?;
    let kind = FsKind::Ext4;
    println!(
        "flush slowed by us | threads | commits/s | records per group | model: threads x lone"
    );
    for delay in delays {
        let disk = Disk::new("disk", Image::new(kind.disk_bytes()));
        machine.make(&disk, kind)?;
        let running = machine.boot(&disk, kind)?;
        let log = Log::open(
            machine.target().join("log"),
            Options::new().segment_bytes(1 << 20).record_bytes_max(64 << 10),
        )?;
        load(&log, 1, Duration::from_millis(200))?;
        if delay > 0 {
            let slow = Rule::every(Access::Flush, Effect::Slow(Duration::from_micros(delay)));
            disk.change_faults(|faults| faults.rules.push(slow));
        }
        let mut lone = 0.0;
        for threads in THREADS {
            let (rate, group) = load(&log, threads, Duration::from_secs_f64(seconds))?;
            if threads == 1 {
                lone = rate;
            }
            println!(
                "{delay:>18} | {threads:>7} | {rate:>9.0} | {group:>17.1} | {:>9.0}",
                lone * threads as f64
            );
        }
        log.close()?;
        disk.change_faults(|faults| faults.rules.clear());
        running.shut_down()?;
    }
    machine.remove()?;
    Ok(())
}
