//! What the C door costs: the same loads through Rust and through the shared library as a C program
//! has it (dlopen), in pairs that follow one another. Prints the median of the pairs' ratios C /
//! Rust, and between which ratios it lies with 95% confidence.
//!
//!     cargo build --release -p inkstone-capi --example speed
//!     target/release/examples/speed DIRECTORY [PAIRS [LOAD]]
//!
//! A LOAD is one of `waiting`, `alone`, `producer`, `burst`; without it all run.
//!
//! Run it on a quiet machine.

#![allow(clippy::unwrap_used, reason = "an example")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone::{Log, Lsn, Options};
use inkstone_capi::{inkstone_code, inkstone_error, inkstone_log, inkstone_options};

const RECORD: [u8; 128] = [7; 128];
const SLICE: Duration = Duration::from_millis(250);
/// What a burst appends fits into a buffer, so that no append of it waits for the disk.
const BURST: u32 = 20_000;
const BUFFER_BYTES: usize = 8 << 20;

/// A record whose size the compiler does not know, as a program's records have it.
fn record() -> &'static [u8] {
    std::hint::black_box(&RECORD)
}

/// How a load appends.
trait Door: Sync {
    fn durable(&self);
    fn unwaited(&self);
    /// Makes everything durable; then what was appended may go.
    fn sync(&self);
}

impl Door for Log {
    fn durable(&self) {
        self.append_durable(record()).unwrap();
    }
    fn unwaited(&self) {
        self.append_unwaited(record()).unwrap();
    }
    fn sync(&self) {
        let last = Self::sync(self).unwrap();
        self.truncate_before(Lsn::new(last.get() + 1)).unwrap();
    }
}

type Append = unsafe extern "C" fn(
    *const inkstone_log,
    *const c_void,
    usize,
    *mut u64,
    *mut *mut inkstone_error,
) -> inkstone_code;

type SyncAll =
    unsafe extern "C" fn(*const inkstone_log, *mut u64, *mut *mut inkstone_error) -> inkstone_code;
type Truncate =
    unsafe extern "C" fn(*const inkstone_log, u64, *mut *mut inkstone_error) -> inkstone_code;
type Free = unsafe extern "C" fn(*mut inkstone_log);

/// A log behind the shared library.
struct FromC {
    log: *mut inkstone_log,
    durable: Append,
    unwaited: Append,
    sync: SyncAll,
    truncate: Truncate,
    free: Free,
}

// SAFETY: all threads may use a log.
unsafe impl Sync for FromC {}

impl Drop for FromC {
    fn drop(&mut self) {
        // SAFETY: nothing uses the log any more.
        unsafe { (self.free)(self.log) };
    }
}

impl FromC {
    fn open(directory: &Path) -> Self {
        let built =
            std::env::current_exe().unwrap().parent().unwrap().join("../libinkstone_capi.so");
        let built = CString::new(built.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path.
        let library = unsafe { libc::dlopen(built.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{built:?}");
        let function = |name: &CStr| {
            // SAFETY: the library is open, and a name.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?}");
            found
        };
        // SAFETY: the library's functions have these types, as the header says; a path, and places
        // for the results.
        unsafe {
            type New = unsafe extern "C" fn() -> *mut inkstone_options;
            type Set = unsafe extern "C" fn(
                *mut inkstone_options,
                *const c_char,
                *const c_char,
                *mut *mut inkstone_error,
            ) -> inkstone_code;
            type Open = unsafe extern "C" fn(
                *const c_char,
                *const inkstone_options,
                *mut *mut inkstone_log,
                *mut *mut inkstone_error,
            ) -> inkstone_code;
            let options =
                std::mem::transmute::<*mut c_void, New>(function(c"inkstone_options_new"))();
            let set = std::mem::transmute::<*mut c_void, Set>(function(c"inkstone_options_set"));
            let bytes = CString::new(BUFFER_BYTES.to_string()).unwrap();
            well(set(options, c"buffer_bytes".as_ptr(), bytes.as_ptr(), ptr::null_mut()));
            let path = CString::new(directory.as_os_str().as_bytes()).unwrap();
            let mut log = ptr::null_mut();
            let open = std::mem::transmute::<*mut c_void, Open>(function(c"inkstone_open"));
            well(open(path.as_ptr(), options, &raw mut log, ptr::null_mut()));
            Self {
                log,
                durable: std::mem::transmute::<*mut c_void, Append>(function(
                    c"inkstone_append_durable",
                )),
                unwaited: std::mem::transmute::<*mut c_void, Append>(function(
                    c"inkstone_append_unwaited",
                )),
                sync: std::mem::transmute::<*mut c_void, SyncAll>(function(c"inkstone_sync")),
                truncate: std::mem::transmute::<*mut c_void, Truncate>(function(
                    c"inkstone_truncate_before",
                )),
                free: std::mem::transmute::<*mut c_void, Free>(function(c"inkstone_log_free")),
            }
        }
    }
}

fn well(code: inkstone_code) {
    assert_eq!(code, inkstone_code::INKSTONE_OK);
}

impl Door for FromC {
    fn durable(&self) {
        let record = record();
        // SAFETY: the log is open, the record is there.
        well(unsafe {
            (self.durable)(
                self.log,
                record.as_ptr().cast(),
                record.len(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        });
    }
    fn unwaited(&self) {
        let record = record();
        // SAFETY: the same.
        well(unsafe {
            (self.unwaited)(
                self.log,
                record.as_ptr().cast(),
                record.len(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        });
    }
    fn sync(&self) {
        let mut last = 0;
        // SAFETY: the same.
        unsafe {
            well((self.sync)(self.log, &raw mut last, ptr::null_mut()));
            well((self.truncate)(self.log, last + 1, ptr::null_mut()));
        }
    }
}

/// Records a second of 64 threads that wait.
fn waiting(door: &dyn Door) -> f64 {
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
        std::thread::sleep(SLICE);
        is_over.store(true, Ordering::Relaxed);
    });
    records.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

/// Records a second of one thread that waits.
fn alone(door: &dyn Door) -> f64 {
    let (start, mut records) = (Instant::now(), 0);
    while start.elapsed() < SLICE {
        door.durable();
        records += 1;
    }
    f64::from(records) / start.elapsed().as_secs_f64()
}

/// Records a second of one producer that waits for nothing; the disk sets the pace.
fn producer(door: &dyn Door) -> f64 {
    let (start, mut records) = (Instant::now(), 0);
    while start.elapsed() < SLICE {
        for _ in 0..1000 {
            door.unwaited();
        }
        records += 1000;
    }
    door.sync();
    f64::from(records) / start.elapsed().as_secs_f64()
}

/// Appends a second of one producer whose records fit into a buffer: what the calls themselves
/// cost.
fn burst(door: &dyn Door) -> f64 {
    let start = Instant::now();
    for _ in 0..BURST {
        door.unwaited();
    }
    f64::from(BURST) / start.elapsed().as_secs_f64()
}

fn median(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    // The order statistics that enclose the median with 95% confidence.
    let (count, half) = (all.len() as f64, (all.len() as f64).sqrt() * 0.98);
    let at = |place: f64| all[(place.max(0.0) as usize).min(all.len() - 1)];
    [at(count / 2.0), at(count / 2.0 - half), at((count / 2.0 + half).ceil())]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("usage: speed DIRECTORY [PAIRS [LOAD]]");
    let pairs: usize =
        arguments.next().map_or(40, |pairs| pairs.parse().expect("a number of pairs"));
    let only = arguments.next();
    let paths = ["speed-rust", "speed-c"].map(|name| Path::new(&directory).join(name));
    let rust = Log::open(&paths[0], Options::default().buffer_bytes(BUFFER_BYTES)).unwrap();
    let c = FromC::open(&paths[1]);
    let doors: [&dyn Door; 2] = [&rust, &c];
    type Load = fn(&dyn Door) -> f64;
    let loads: [(&str, &str, Load); 4] = [
        ("waiting", "64 threads that wait", waiting),
        ("alone", "one thread that waits", alone),
        ("producer", "one producer", producer),
        ("burst", "one producer, into memory", burst),
    ];
    assert!(only.iter().all(|only| loads.iter().any(|load| load.0 == only)), "no such load");
    for (_, name, load) in
        loads.into_iter().filter(|load| only.as_ref().is_none_or(|only| load.0 == only))
    {
        let (mut ratios, mut rates) = (Vec::new(), [Vec::new(), Vec::new()]);
        for pair in 0..=pairs {
            let mut rate = [0.0; 2];
            // Each comes first in every other pair.
            for way in [pair % 2, 1 - pair % 2] {
                rate[way] = load(doors[way]);
                doors[way].sync();
            }
            // The first is to warm up.
            if pair > 0 {
                ratios.push(rate[1] / rate[0]);
                rates.iter_mut().zip(rate).for_each(|(all, rate)| all.push(rate));
            }
        }
        let [ratio, low, high] = median(ratios);
        let [rust, c] = rates.map(|rates| median(rates)[0]);
        println!(
            "{name}: C / Rust {ratio:.3} [{low:.3}..{high:.3}] of {pairs} pairs; Rust {rust:.0}, C \
             {c:.0} records/s"
        );
    }
    drop((rust, c));
    paths.iter().for_each(|path| std::fs::remove_dir_all(path).unwrap());
}
