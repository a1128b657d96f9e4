//! `inkstone tee` on a disk that hangs (a frozen file system, as root): signals are handled, and
//! what was read is counted.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use inkstone_host::{LoopDevice, LoopOptions, Mount};

#[path = "support/tee.rs"]
mod with_tee;

use with_tee::{not_run, numbers, start, text, wait_until};

/// Whether it can run here; if not, that is printed loudly.
fn can_run(test: &str) -> bool {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(Path::new);
    let is_missing = |name: &&str| !places.iter().any(|at| at.join(name).exists());
    let mut missing: Vec<&str> = ["mkfs.ext4", "fsfreeze"].into_iter().filter(is_missing).collect();
    let loops = "/dev/loop-control";
    if std::fs::OpenOptions::new().read(true).write(true).open(loops).is_err() {
        missing.push(loops);
    }
    let root = inkstone_io::is_root();
    if !root || !missing.is_empty() {
        not_run(test, format_args!("root: {root}, missing: {missing:?}"));
    }
    root && missing.is_empty()
}

fn run(words: &[&str]) {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output =
        Command::new(words[0]).args(&words[1..]).env("PATH", path).output().expect(words[0]);
    assert!(output.status.success(), "{words:?}: {output:?}");
}

/// A file system that takes no more writes, until this is dropped.
struct Frozen<'a>(&'a str);

impl<'a> Frozen<'a> {
    fn new(mount: &'a str) -> Self {
        run(&["fsfreeze", "-f", mount]);
        Self(mount)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        run(&["fsfreeze", "-u", self.0]);
    }
}

#[test]
fn signals_end_it_at_once_and_what_was_read_is_counted() {
    if !can_run("signals_end_it_at_once_and_what_was_read_is_counted") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("an image");
    run(&["mkfs.ext4", "-q", "-b", "4096", image.to_str().expect("plain")]);
    let device = LoopDevice::attach(&image, LoopOptions::default()).expect("a loop device");
    let target = directory.path().join("disk");
    std::fs::create_dir(&target).expect("a directory");
    let mount = Mount::new(device.path(), &target, "ext4", "").expect("mounted");
    let file = target.join("s.log");

    let mut tee = start(&file, &["--grace", "300ms", "--buffers", "64KiB"]);
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(b"1\n2\n3\n").expect("written");
    wait_until("three lines", || text(&file) == "1\n2\n3\n");
    let frozen = Frozen::new(target.to_str().expect("plain"));
    // The buffers have room for some of them, but not for all.
    let lines: String = (0..100_000).map(|line| format!("line {line:08}\n")).collect();
    stdin.write_all(&lines.as_bytes()[..300_000]).expect("written");
    let writer = std::thread::spawn(move || {
        // It ends before it has read all.
        assert!(stdin.write_all(&lines.as_bytes()[300_000..]).is_err());
    });
    // The signal is repeated until it ends; the process is gone only when its disk has answered.
    let number = tee.id().to_string();
    let told = std::thread::spawn({
        let lines = BufReader::new(tee.stderr.take().expect("a pipe")).lines();
        move || lines.map(|line| line.expect("text")).find(|line| line.contains("were not written"))
    });
    wait_until("its end", || {
        let _ = Command::new("kill").args(["-TERM", &number]).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(300));
        told.is_finished()
    });
    let told = told.join().expect("a thread").expect("what was not written is told");
    drop(frozen);
    assert_eq!(tee.wait().expect("its end").code(), Some(1), "{told}");
    writer.join().expect("the writer");
    let [read, lost, bytes, ..] = numbers(&told, "were not written")[..] else { panic!("{told}") };
    assert_eq!((read - lost, bytes.div_ceil(14)), (3, lost), "{told}");
    assert!(lost > (300_000 - 64 * 1024) / 14, "{told}");
    assert!(std::fs::read_to_string(&file).expect("text").starts_with("1\n2\n3\n"));
    mount.unmount().expect("unmounted");
    device.detach().expect("detached");
}
