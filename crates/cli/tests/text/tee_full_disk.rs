//! `inkstone tee` at full speed, with rotation and compression, on a small disk that another
//! process fills now and then: there are never more files than configured, no line is lost, and
//! room comes back by itself. It needs root and a loop device.
//!
//! It runs for a few seconds; for a longer run: `INKSTONE_TEE_SECONDS=600 cargo test --release -p
//! inkstone-cli --test text -- tee_full_disk:: --nocapture`

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::with_tee::{LONG, said, tee};
use inkstone_host::{LoopDevice, LoopOptions, Mount};

const SECONDS: &str = "INKSTONE_TEE_SECONDS";
const DISK_BYTES: u64 = 32 << 20;
/// The log's share of the disk: the current file, three rotated ones, one that is being compressed.
const FREE_BYTES: usize = 20 << 20;
const KEPT: usize = 3;
/// The disk is filled up for a tenth of the time.
const FILL_EVERY: u32 = 10;

fn not_run(why: &str) {
    // Bypasses the test harness, which hides the output of passing tests.
    let _ = io::stderr().write_all(format!("\nNOT RUN: tee on a full disk: {why}\n").as_bytes());
}

/// A disk of its own; unmounted and detached in this order when it is dropped.
struct SmallDisk {
    _mount: Mount,
    _device: LoopDevice,
    directory: tempfile::TempDir,
}

impl SmallDisk {
    fn new() -> Option<Self> {
        if !inkstone_io::is_root() {
            not_run("a disk of its own needs root");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("image");
        File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("an image");
        let options = LoopOptions { direct_io: false, sector_bytes: 512, read_only: false };
        let device = LoopDevice::attach(&image, options)
            .map_err(|error| not_run(&error.to_string()))
            .ok()?;
        let made =
            Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(device.path()).status();
        if !made.is_ok_and(|status| status.success()) {
            not_run("there is no mkfs.ext4");
            return None;
        }
        let target = directory.path().join("disk");
        std::fs::create_dir(&target).expect("made");
        let mount = Mount::new(device.path(), &target, "ext4", "").expect("mounted");
        let disk = Self { _mount: mount, _device: device, directory };
        let free =
            usize::try_from(inkstone_io::free_bytes(&disk.path()).expect("told")).expect("small");
        let rest = vec![1; free.checked_sub(FREE_BYTES).expect("a disk with more room than that")];
        std::fs::write(disk.path().join("rest"), rest).expect("written");
        Some(disk)
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("disk")
    }

    /// Takes all room, again and again, for this long; then frees it.
    fn stay_full(&self, at_most: Duration) {
        let name = self.path().join("filler");
        let mut filler = File::create(&name).expect("a file");
        let since = Instant::now();
        while since.elapsed() < at_most {
            match filler.write_all(&[1; 64 << 10]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
        std::fs::remove_file(&name).expect("removed");
    }
}

/// The rotated files by name; a file and its compressed form count once.
fn rotated(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("text"));
    names
        .filter(|name| !name.ends_with(".part"))
        .filter_map(|name| {
            name.strip_prefix("s.log.").map(|name| name.trim_end_matches(".gz").to_owned())
        })
        .collect()
}

/// When a file was rotated: its second, and its number within that. As text the tenth would come
/// before the second.
fn place(name: &str) -> (&str, u32) {
    let (second, number) = name.split_once('.').expect("a second and a number");
    (second, number.parse().expect("a number"))
}

/// What a file holds, compressed or not.
fn text(folder: &Path, name: &str) -> String {
    let plain = folder.join(format!("s.log.{name}"));
    if let Ok(text) = std::fs::read_to_string(&plain) {
        return text;
    }
    let output =
        Command::new("gzip").arg("-dc").arg(folder.join(format!("s.log.{name}.gz"))).output();
    let output = output.expect("gzip");
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Checks that each line is the next number; returns the last.
fn last_of(text: &str, mut before: Option<u64>) -> Option<u64> {
    for line in text.lines() {
        let number: u64 =
            line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
        assert!(before.is_none_or(|before| number == before + 1), "{number} behind {before:?}");
        before = Some(number);
    }
    before
}

/// Numbered lines at full speed until the time is over; how many there were.
fn serve(tee: &mut Child, stop: &AtomicBool) -> u64 {
    let mut pipe = tee.stdin.take().expect("a pipe");
    let (mut number, mut page) = (0_u64, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        page.clear();
        for _ in 0..500 {
            writeln!(page, "{number:012} a line of a service that has much to say")
                .expect("memory");
            number += 1;
        }
        pipe.write_all(&page).expect("tee reads");
    }
    number
}

/// The most rotated files at once, and how often that was checked.
fn watch(folder: &Path, stop: &AtomicBool) -> (usize, u64) {
    let (mut most, mut looks) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        most = most.max(rotated(folder).len());
        looks += 1;
        thread::sleep(Duration::from_millis(5));
    }
    (most, looks)
}

#[test]
fn a_small_disk_that_is_full_now_and_then_loses_no_line_and_has_no_file_too_many() {
    let Some(disk) = SmallDisk::new() else { return };
    let seconds: u64 =
        std::env::var(SECONDS).map_or(5, |seconds| seconds.parse().expect("seconds"));
    let folder = disk.path().join("logs");
    std::fs::create_dir(&folder).expect("a directory");
    let arguments = ["--rotate-size", "4MiB", "--keep-files", "3", "--compress", "gzip"];
    let mut tee = tee(&folder.join("s.log"), &arguments).spawn().expect("inkstone");
    let stop = AtomicBool::new(false);
    let mut errors = tee.stderr.take().expect("a pipe");
    let (lines, (most, looks), told) = thread::scope(|scope| {
        let told = scope.spawn(move || {
            let mut told = String::new();
            errors.read_to_string(&mut told).expect("text");
            told
        });
        let watching = scope.spawn(|| watch(&folder, &stop));
        let filling = scope.spawn(|| {
            let round = Duration::from_secs(seconds) / 5;
            for _ in 0..5 {
                thread::sleep(round - round / FILL_EVERY);
                disk.stay_full(round / FILL_EVERY);
            }
            // The last fifth has ended with a full disk: lines continue by themselves, or the pipe
            // stays full for ever.
            thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
        });
        let lines = serve(&mut tee, &stop);
        filling.join().expect("filled");
        let since = Instant::now();
        while tee.try_wait().expect("asked").is_none() {
            assert!(since.elapsed() < LONG, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
        (lines, watching.join().expect("watched"), told.join().expect("read"))
    });
    let output = tee.wait_with_output().expect("ended");
    assert!(output.status.success(), "{told}{}", said(&output));
    let names = rotated(&folder);
    let mut in_order: Vec<&String> = names.iter().collect();
    in_order.sort_by_key(|name| place(name));
    let first = in_order.iter().fold(None, |before, name| last_of(&text(&folder, name), before));
    let last = last_of(&std::fs::read_to_string(folder.join("s.log")).expect("the log"), first);
    let full = told.matches("No space left").count();
    println!(
        "{seconds} s, {lines} lines, at most {most} rotated files in {looks} looks, full {full} times told"
    );
    assert_eq!(last, lines.checked_sub(1), "{told}");
    assert!(most <= KEPT && names.len() <= KEPT && looks > 10, "{most} files, {names:?}");
    assert!(full > 0, "the disk was never full: {told}");
    assert!(!told.contains("dropped"), "{told}");
}
