//! A limit on the size of files (`ulimit -f`, `LimitFSIZE=`): it acts like a full disk, and ends no
//! command by a signal.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{damage, directory, good, run, run_with, segments, text};

/// Runs a line of the shell, in which `$I` is the command, under a limit of this many KiB, without
/// a core.
fn limited(at: &Path, kib: u32, line: &str, input: &[u8]) -> Output {
    let mut command = Command::new("bash");
    command.current_dir(at).env("I", env!("CARGO_BIN_EXE_inkstone"));
    command.arg("-c").arg(format!("ulimit -c 0; ulimit -f {kib}; {line}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("bash runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may end before it has read everything.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("its end")
    })
}

fn lines(count: u64) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("record {number:06}\n").into_bytes()).collect()
}

/// Ended by itself with this code, and stderr says why.
fn ended(what: &str, output: &Output, code: i32) {
    let said = text(&output.stderr);
    // A shell returns 128 + 25 for a command that SIGXFSZ has ended.
    assert_eq!(
        (output.status.signal(), output.status.code()),
        (None, Some(code)),
        "{what}: {said}"
    );
    assert!(said.to_lowercase().contains("file too large"), "{what}: {said}");
}

#[test]
fn what_cannot_be_written_is_an_error_of_the_command() {
    let directory = directory();
    let at = directory.path();
    good(at, &["append", "log", "-q", "--segment-size", "1MiB"], &lines(20_000));
    good(at, &["copy", "log", "corrupt"], b"");
    damage(&segments(&at.join("corrupt"))[0], b"record 000010");
    // stdout is a file: the output was not written, whatever it was.
    for line in
        ["cat log", "verify log", "verify corrupt", "info log", "dump log", "get log 1", "man"]
    {
        let what = format!("exec \"$I\" {line} >shown");
        ended(line, &limited(at, 0, &what, b""), 2);
    }
    for line in ["append new -q", "copy log copied", "salvage corrupt saved", "tune log"] {
        ended(line, &limited(at, 8, &format!("exec \"$I\" {line}"), &lines(20_000)), 1);
    }
    for name in ["copied", "saved"] {
        assert_eq!(segments(&at.join(name)).len(), 0, "{name}");
    }
    // And the existing log is as before.
    assert_eq!(run(at, &["verify", "log"]).status.code(), Some(0));
    let output = limited(at, 8, "exec \"$I\" lab write --quiet --rounds 1 --size 64KiB", b"");
    assert!(
        output.status.code() == Some(1) && text(&output.stdout).contains("File too large"),
        "{output:?}"
    );
}

#[test]
fn tee_counts_what_it_cannot_write() {
    for survive in ["nothing", "power-loss"] {
        let directory = directory();
        let at = directory.path();
        // The stage of a log that survives has 8 MiB and a head.
        let (limit, count) =
            if survive == "nothing" { (100, 30_000) } else { (10 << 10, 1_000_000) };
        let what = format!("exec \"$I\" tee s.log --grace 100ms --survive {survive}");
        let output = limited(at, limit, &what, &lines(count));
        ended(survive, &output, 1);
        let said = text(&output.stderr);
        let line =
            said.lines().find(|line| line.contains("were not written")).expect("it is counted");
        let numbers: Vec<u64> = line
            .split(|other: char| !other.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .take(3)
            .collect();
        let [read, lost, bytes] = numbers[..] else { panic!("{said}") };
        assert!(read == count && lost > 0 && bytes > 0, "{said}");
        let written = std::fs::read(at.join("s.log")).expect("text");
        // A line that is there in part counts as not written, and no other line does.
        assert!(lines(count).starts_with(&written), "{said}");
        let not_written = lines(count).len() as u64 - 14 * (read - lost);
        assert_eq!((written.len() as u64 / 14, bytes), (read - lost, not_written), "{said}");
        // Without the limit the lines in the stage are recovered, and no stage is left.
        let again = run_with(at, &["tee", "s.log", "--survive", survive], b"");
        assert!(again.status.success(), "{again:?}");
        let behind = std::fs::read(at.join("s.log")).expect("text");
        assert!(behind.starts_with(&written) && lines(count).starts_with(&behind), "{survive}");
    }
}

/// Files are smaller than configured, and each line is whole in one of them.
#[test]
fn tee_that_rotates_goes_on_in_the_next_file() {
    for survive in ["nothing", "kill"] {
        let directory = directory();
        let at = directory.path();
        let (limit, count) =
            if survive == "nothing" { (100, 30_000) } else { (10 << 10, 1_000_000) };
        let what = format!("exec \"$I\" tee s.log --rotate-size 1GiB --survive {survive}");
        let output = limited(at, limit, &what, &lines(count));
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), said.matches("File too large").count()),
            (Some(0), 1),
            "{said}"
        );
        let names = std::fs::read_dir(at)
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.into_string().expect("text"));
        let mut names: Vec<_> = names.filter(|name| name.starts_with("s.log.")).collect();
        // By stamp, then by number.
        names.sort_by_key(|name| {
            let (stamp, number) = name.rsplit_once('.').expect("a number");
            (stamp.to_owned(), number.parse::<u64>().expect("a number"))
        });
        names.push("s.log".to_owned());
        let mut whole = Vec::new();
        for name in &names {
            let text = std::fs::read(at.join(name)).expect("text");
            let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            whole.extend_from_slice(&text[..end]);
        }
        assert!(
            names.len() > 1 && whole == lines(count),
            "{survive}: {} in {names:?}",
            whole.len()
        );
    }
}

#[test]
fn a_program_that_a_command_starts_has_the_default_again() {
    let directory = directory();
    let at = directory.path();
    // Bit 24 is SIGXFSZ, number 25.
    let writer =
        format!(": {{dir}}; grep SigIgn /proc/self/status >{}/child; exit 1", at.display());
    let arguments =
        ["powerloss", "any", "--writer", &writer, "--reader", ": {dir}", "--rounds", "1"];
    run(at, &arguments);
    let child = std::fs::read_to_string(at.join("child")).expect("the writer ran");
    let ignored = child.trim().strip_prefix("SigIgn:").expect("a mask").trim();
    let ignored = u64::from_str_radix(ignored, 16).expect("a number");
    assert_eq!(ignored & 1 << 24, 0, "{child}");
}
