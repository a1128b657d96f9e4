//! `inkstone tee` on a disk that hangs (a frozen file system, as root): signals are handled, and
//! what was read is counted.

mod support;
#[path = "support/tee.rs"]
mod with_tee;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use inkstone_host::{LoopDevice, LoopOptions, Mount};

use support::{Words as _, not_run, numbers, until};
use with_tee::{tee, text};

/// Runs a tool of the system.
fn tool(line: &str) -> Result<(), String> {
    let words = line.words();
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(&words[0]).args(&words[1..]).env("PATH", path).output();
    let output = output.map_err(|error| format!("{line}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("{line}: {output:?}")) }
}

/// A file system that takes no more writes, until this is dropped.
struct Frozen(String);

impl Drop for Frozen {
    fn drop(&mut self) {
        tool(&format!("fsfreeze -u {}", self.0)).expect("thawed");
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn signals_end_it_at_once_and_what_was_read_is_counted() {
    let name = "signals_end_it_at_once_and_what_was_read_is_counted";
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("an image");
    let formatted = tool(&format!("mkfs.ext4 -q -b 4096 {}", image.display()));
    let can_freeze = tool("fsfreeze --version");
    let device = match formatted.and(can_freeze) {
        Ok(()) => LoopDevice::attach(&image, LoopOptions::default()),
        Err(why) => return not_run(name, why),
    };
    let device = match device {
        Ok(device) => device,
        Err(why) => return not_run(name, why),
    };
    let target = directory.path().join("disk");
    std::fs::create_dir(&target).expect("a directory");
    let mount = Mount::new(device.path(), &target, "ext4", "").expect("mounted");
    let file = target.join("s.log");

    let mut tee = tee(&file, &["--grace", "300ms", "--buffers", "512KiB"]);
    let mut tee = tee.stdout(Stdio::inherit()).spawn().expect("inkstone");
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(b"1\n2\n3\n").expect("written");
    until("three lines", || text(&file) == "1\n2\n3\n");
    let frozen = Frozen(target.display().to_string());
    tool(&format!("fsfreeze -f {}", frozen.0)).expect("frozen");
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
    until("its end", || {
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
    assert!(text(&file).starts_with("1\n2\n3\n"));
    mount.unmount().expect("unmounted");
    device.detach().expect("detached");
}
