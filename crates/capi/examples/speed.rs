//! What the C door costs: the same two loads through Rust and through the functions that C calls, one after the other, several times.
//!
//!     cargo run --release -p inkstone-capi --example speed -- DIRECTORY [ROUNDS]
//!
//! 64 threads that append and wait, and one producer that waits for nothing. The median of each is printed. Run it on a quiet machine.

#![allow(clippy::unwrap_used, reason = "an example")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone::{Log, Options};
use inkstone_capi::*;

const RECORD: [u8; 128] = [7; 128];
const TIME: Duration = Duration::from_secs(2);

/// How a load appends.
trait Door: Sync {
    fn durable(&self);
    fn unwaited(&self);
    fn sync(&self);
}

impl Door for Log {
    fn durable(&self) {
        self.append_durable(&RECORD).unwrap();
    }
    fn unwaited(&self) {
        self.append_unwaited(&RECORD).unwrap();
    }
    fn sync(&self) {
        Log::sync(self).unwrap();
    }
}

struct FromC(*mut inkstone_log);

// SAFETY: all threads may use a log.
unsafe impl Sync for FromC {}

impl Door for FromC {
    fn durable(&self) {
        // SAFETY: the log is open, the record is there.
        let code = unsafe {
            inkstone_append_durable(
                self.0,
                RECORD.as_ptr().cast(),
                RECORD.len(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        assert_eq!(code, inkstone_code::INKSTONE_OK);
    }
    fn unwaited(&self) {
        // SAFETY: the same.
        let code = unsafe {
            inkstone_append_unwaited(
                self.0,
                RECORD.as_ptr().cast(),
                RECORD.len(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        assert_eq!(code, inkstone_code::INKSTONE_OK);
    }
    fn sync(&self) {
        // SAFETY: the same.
        let code = unsafe { inkstone_sync(self.0, ptr::null_mut(), ptr::null_mut()) };
        assert_eq!(code, inkstone_code::INKSTONE_OK);
    }
}

/// Records a second of 64 threads that wait, and of one producer that does not.
fn measure(door: &dyn Door) -> [f64; 2] {
    let (records, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    door.durable();
                    records.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(TIME);
        is_over.store(true, Ordering::Relaxed);
    });
    let waiting = records.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    let (start, mut produced) = (Instant::now(), 0u64);
    while start.elapsed() < TIME {
        for _ in 0..1000 {
            door.unwaited();
        }
        produced += 1000;
    }
    door.sync();
    [waiting, produced as f64 / start.elapsed().as_secs_f64()]
}

fn through_rust(path: &Path) -> [f64; 2] {
    let log = Log::open(path, Options::default()).unwrap();
    let rates = measure(&log);
    log.close().unwrap();
    rates
}

fn through_c(path: &Path) -> [f64; 2] {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut log = ptr::null_mut();
    // SAFETY: a path, and places for the results.
    let code = unsafe { inkstone_open(path.as_ptr(), ptr::null(), &raw mut log, ptr::null_mut()) };
    assert_eq!(code, inkstone_code::INKSTONE_OK);
    let rates = measure(&FromC(log));
    // SAFETY: nothing uses the log any more.
    unsafe { inkstone_log_free(log) };
    rates
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("usage: speed DIRECTORY [ROUNDS]");
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let mut rates: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..rounds {
        // Each way comes first in every other round.
        for way in [round % 2, 1 - round % 2] {
            let path = Path::new(&directory).join(format!("speed-{way}-{round}"));
            let rate = if way == 0 { through_rust(&path) } else { through_c(&path) };
            std::fs::remove_dir_all(&path).unwrap();
            for (all, rate) in rates[way].iter_mut().zip(rate) {
                all.push(rate);
            }
        }
    }
    for (load, name) in ["64 threads that wait", "one producer"].iter().enumerate() {
        for (way, door) in ["Rust", "C"].iter().enumerate() {
            let all = &mut rates[way][load];
            all.sort_by(f64::total_cmp);
            let median = all.get(all.len() / 2).copied().unwrap_or(0.0);
            println!("{name}, {door}: median {median:.0} records/s of {rounds} rounds: {all:.0?}");
        }
    }
}
