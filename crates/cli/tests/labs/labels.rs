//! Every word of a way of writing, compared with the actual system calls: `strace` against the
//! table that the help prints.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use crate::support::{directory, side_by_side, text};
use inkstone_io::{Access, Durability, EngineKind, NamedChoice, Preparation, Strategy};
use inkstone_lab::labels;

const COMMITS: u64 = 128;
const FILE_BYTES: u64 = COMMITS * 4096;
/// A 16th of the file.
const STEPS: u64 = 16;
const TRACED: &str = "openat,open,pwrite64,pwritev,pwritev2,write,writev,lseek,fsync,fdatasync,sync_file_range,msync,mmap,fallocate,\
                      ftruncate,io_uring_enter,io_submit";

/// Reports that a test did not run, bypassing the test harness, which hides the output of passing
/// tests.
fn not_run(what: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {what}: {why}\n").as_bytes());
}

/// A call on the cell's file, with the flags that matter, and how often it was made.
type Seen = BTreeMap<String, u64>;

/// Runs one cell under strace: the flags with which its file was open, and the calls; or why it was
/// not measured.
fn traced(at: &Path, strategy: &Strategy) -> Result<(String, Seen), String> {
    let log = at.join("strace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-qq", "-e", "signal=none", "-e", &format!("trace={TRACED}"), "-o"])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_inkstone"))
        .args([
            "lab",
            "write",
            "--quiet",
            "--rounds",
            "1",
            "--bill-commits",
            "0",
            "--json",
            "cell.json",
        ])
        .args(["--size", &FILE_BYTES.to_string()])
        .args(["--preparation", strategy.preparation.name(), "--reuse", strategy.reuse.name()])
        .args(["--access", strategy.access.name(), "--durability", strategy.durability.name()])
        .args(["--engine", strategy.engine.name()])
        .current_dir(at)
        .output()
        .map_err(|error| format!("strace: {error}"))?;
    let json = std::fs::read_to_string(at.join("cell.json")).map_err(|_| text(&output.stderr))?;
    let result: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let table = &result["tables"][0];
    if !table["ways"][0]["missing"].is_null() {
        return Err(table["ways"][0]["missing"].to_string());
    }
    if let Some(notice) = table["notes"]
        .as_array()
        .and_then(|notes| notes.iter().find(|n| n.to_string().contains("without")))
    {
        return Err(notice.to_string());
    }
    Ok(read(&std::fs::read_to_string(&log).expect("what strace saw")))
}

/// The calls after the opening of the cell's file in its own mode.
fn read(log: &str) -> (String, Seen) {
    // `12 pwrite64(7</dir/.inkstone-lab-1/cell-0>, ...) = 4096`; a call that another thread
    // interrupts has two lines.
    let is_cell = |line: &str| line.contains("/.inkstone-lab-") && line.contains("/way-");
    let opens = |line: &&str| {
        line.contains("openat(")
            && is_cell(line)
            && !line.contains("O_CREAT")
            && line.contains("O_RDWR")
    };
    let lines: Vec<&str> = log.lines().collect();
    let at = lines
        .iter()
        .position(opens)
        .unwrap_or_else(|| panic!("the cell's file is not opened:\n{log}"));
    let mut seen = Seen::new();
    for line in &lines[at + 1..] {
        let Some((_, call)) = line.split_once(char::is_whitespace) else { continue };
        let call = call.trim_start();
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if call.starts_with("<...") || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            continue;
        }
        let engine = matches!(name, "io_uring_enter" | "io_submit" | "msync");
        // Calls that probe the system's features (on a probe file) do not belong to the cell.
        if name == "openat" || !engine && !is_cell(arguments) {
            continue;
        }
        let flags = match name {
            "fallocate" => arguments.split(',').nth(1).map(|mode| mode.trim().to_owned()),
            "pwritev2" => arguments
                .rsplit(',')
                .next()
                .map(|last| last.split(')').next().unwrap_or("").trim().to_owned()),
            "msync" => arguments
                .rsplit(',')
                .next()
                .map(|last| last.split(')').next().unwrap_or("").trim().to_owned()),
            "mmap" => arguments.split(',').nth(3).map(|flags| flags.trim().to_owned()),
            _ => None,
        };
        let flags = flags.map(|flags| flags.replace("MAP_SHARED_VALIDATE", "MAP_SHARED"));
        *seen
            .entry(flags.map_or_else(|| name.to_owned(), |flags| format!("{name}({flags})")))
            .or_default() += 1;
    }
    (lines[at].to_owned(), seen)
}

/// What is wrong with a label.
fn judge(strategy: &Strategy, opened: &str, seen: &Seen) -> Vec<String> {
    let (flags, calls) = labels::calls_of(strategy, COMMITS, STEPS);
    let mut wrong = Vec::new();
    for flag in ["O_DIRECT", "O_SYNC", "O_DSYNC"] {
        let has = opened.split(['|', ',', ')', ' ']).any(|word| word == flag);
        if has != flags.contains(flag) {
            wrong.push(format!(
                "{flag}: the table has it {}, the call {has}: {opened}",
                flags.contains(flag)
            ));
        }
    }
    for (name, (least, most)) in &calls {
        let count = seen.get(*name).copied().unwrap_or(0);
        if !(*least..=*most).contains(&count) {
            wrong.push(format!("{name}: {count} times instead of {least}"));
        }
    }
    let more = seen.keys().filter(|name| !calls.contains_key(name.as_str()));
    wrong.extend(more.map(|name| format!("{name}: {} times, and the table has none", seen[name])));
    wrong
}

fn every_label_of<T: NamedChoice + Sync>() {
    if Command::new("strace").arg("-V").output().is_err() {
        return not_run(T::WHAT, "strace is not installed: no label was held against its calls");
    }
    let wrong: Vec<Vec<String>> = side_by_side(T::ALL, |choice| {
        let label = format!("{} {}", T::WHAT, choice.name());
        let strategy = labels::plain_with(T::WHAT, choice.name()).expect("a strategy");
        let place = directory();
        match traced(place.path(), &strategy) {
            Ok((opened, seen)) => {
                let found = judge(&strategy, &opened, &seen);
                found.into_iter().map(|what| format!("{label}: {what}")).collect()
            }
            Err(why) => {
                not_run(&label, &why);
                Vec::new()
            }
        }
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "labels that do not say what is done:\n{}", wrong.join("\n"));
}

#[test]
fn preparations_make_the_calls_of_the_table() {
    every_label_of::<Preparation>();
}

#[test]
fn accesses_make_the_calls_of_the_table() {
    every_label_of::<Access>();
}

#[test]
fn durabilities_make_the_calls_of_the_table() {
    every_label_of::<Durability>();
}

#[test]
fn engines_make_the_calls_of_the_table() {
    every_label_of::<EngineKind>();
}

/// `stream` is fwrite *and* fflush, of small writes and unsynced ones too; a stream would gather
/// them by itself.
#[test]
fn a_stream_that_is_flushed_at_each_write_writes_each() {
    const TEST: &str = "stream, 512 B, not synced";
    if Command::new("strace").arg("-V").output().is_err() {
        return not_run(TEST, "strace is not installed: no label was held against its calls");
    }
    let place = directory();
    let log = place.path().join("strace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-qq", "-e", "signal=none", "-e", &format!("trace={TRACED}"), "-o"])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_inkstone"))
        .args([
            "lab",
            "write",
            "--quiet",
            "--rounds",
            "1",
            "--bill-commits",
            "0",
            "--size",
            "16KiB",
        ])
        .args(["--access", "stream", "--durability", "none", "--write-size", "512B"])
        .current_dir(place.path())
        .output()
        .expect("strace");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (_, seen) = read(&std::fs::read_to_string(&log).expect("what strace saw"));
    assert_eq!(seen.get("write"), Some(&32), "{seen:?}");
}

/// The help prints the table.
#[test]
fn the_help_has_the_calls() {
    let place = directory();
    let output = Command::new(env!("CARGO_BIN_EXE_inkstone"))
        .args(["lab", "write", "--help"])
        .current_dir(place.path())
        .output();
    let said = text(&output.expect("help").stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "[fallocate(FALLOC_FL_KEEP_SIZE) each step]",
        "[open O_DIRECT; pwrite64 each commit]",
        "[msync(MS_SYNC) each commit]",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
