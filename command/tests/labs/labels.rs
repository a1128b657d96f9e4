//! Every word of a way of writing, compared with the actual system calls, by `strace`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{WRITE, Words as _, behind, directory, not_run, side_by_side};
use inkstone_io::{Access, Durability, NamedChoice, Preparation, Strategy};
use inkstone_lab::writing::Writing;

const COMMITS: u64 = 128;
const FILE_BYTES: u64 = COMMITS * 4096;
/// A row for each word: a way that has it, with everything else as plain as possible; the flags of
/// its open file; its calls. A call is made once for each commit (`*`), at least once for each
/// (`+`), or so often.
const WAYS: &str = "\
new fdatasync | | pwrite64 *, fdatasync *
fallocate fdatasync | | fallocate(0) 1, pwrite64 *, fdatasync *
keep-size fdatasync | | fallocate(FALLOC_FL_KEEP_SIZE) 1, pwrite64 *, fdatasync *
posix-fallocate fdatasync | | fallocate(0) 1, pwrite64 *, fdatasync *
fallocate-steps fdatasync | | fallocate(0) 16, pwrite64 *, fdatasync *
keep-size-steps fdatasync | | fallocate(FALLOC_FL_KEEP_SIZE) 16, pwrite64 *, fdatasync *
zero-range fdatasync | | fallocate(FALLOC_FL_ZERO_RANGE) 1, pwrite64 *, fdatasync *
sparse fdatasync | | ftruncate 1, pwrite64 *, fdatasync *
zeros fdatasync | | fsync 1, pwrite64 129, fdatasync *
write-zeroes fdatasync | | fallocate(FALLOC_FL_WRITE_ZEROES) 1, pwrite64 *, fdatasync *
reuse fdatasync | | pwrite64 *, fdatasync *
reuse seek fdatasync | | lseek *, write *, fdatasync *
reuse direct fdatasync | O_DIRECT | pwrite64 *, fdatasync *
reuse mmap fdatasync | | mmap(MAP_SHARED) 1, fdatasync *
reuse stream fdatasync | | write *, fdatasync *
reuse stream-gather no-sync | | write 8, fsync 1
reuse no-sync | | pwrite64 *, fsync 1
reuse fsync | | pwrite64 *, fsync *
reuse fdatasync-fsync | | pwrite64 *, fdatasync *, fsync *
reuse fdatasync-fsync-64 | | pwrite64 *, fdatasync *, fsync 2
reuse o-sync | O_SYNC | pwrite64 *
reuse o-dsync | O_DSYNC | pwrite64 *
reuse rwf-dsync | | pwritev2(RWF_DSYNC) *
reuse mmap msync | | mmap(MAP_SHARED) 1, msync(MS_SYNC) *
reuse fdatasync uring | | io_uring_enter +
reuse fdatasync uring-linked | | io_uring_enter +
reuse direct fdatasync aio | O_DIRECT | io_submit +";
const TRACED: &str = "openat,open,pwrite64,pwritev,pwritev2,write,writev,lseek,fsync,fdatasync,\
                      sync_file_range,msync,mmap,fallocate,ftruncate,io_uring_enter,io_submit";

/// A call on the cell's file, with the flags that matter, and how often it was made.
type Seen = BTreeMap<String, u64>;

/// Runs one cell under strace: the flags with which its file was open, and the calls; or why it was
/// not measured.
fn traced(at: &Path, way: &str) -> Result<(String, Seen), String> {
    let strace = format!("strace -f -y -qq -s 0 -e signal=none -e trace={TRACED} -o strace");
    let write = WRITE.replace("--size 64KiB", &format!("--size {FILE_BYTES}B"));
    let mut command = behind(&strace, &[]);
    command.current_dir(at).args(write.words()).args(["--json", "cell.json", "--only", way]);
    command.output().map_err(|error| format!("strace: {error}"))?;
    let log = std::fs::read_to_string(at.join("strace")).expect("what strace saw");
    // The words for a way that cannot be had here are in it too.
    let result = std::fs::read(at.join("cell.json")).expect("a result");
    let table = &crate::support::json(&result)["tables"][0];
    let missing = &table["ways"][0]["missing"];
    if !missing.is_null() {
        return Err(missing.to_string());
    }
    let mut notes = table["notes"].as_array().into_iter().flatten().map(ToString::to_string);
    notes.find(|note| note.contains("without")).map_or_else(|| Ok(read(&log)), Err)
}

/// The calls after the opening of the cell's file in its own mode.
fn read(log: &str) -> (String, Seen) {
    // `12 pwrite64(7</dir/.inkstone-lab-1/way-00>, ...) = 4096`. The opening names the file below
    // its directory. Where another thread interrupts a call, the result is on a line of its own.
    let is_way = |line: &str| line.contains("/way-") || line.contains("\"way-");
    let is_cell = |line: &str| line.contains("/.inkstone-lab-") && is_way(line);
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
            "pwritev2" | "msync" => arguments
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

/// What is wrong with a row.
fn judge(flags: &str, calls: &str, (opened, seen): &(String, Seen)) -> Vec<String> {
    let mut wrong = Vec::new();
    for flag in ["O_DIRECT", "O_SYNC", "O_DSYNC"] {
        let has = opened.split(['|', ',', ')', ' ']).any(|word| word == flag);
        if has != (flags == flag) {
            wrong.push(format!("{flag}: the row has {flags:?}, the call {has}: {opened}"));
        }
    }
    let calls: Vec<(&str, &str)> =
        calls.split(", ").map(|call| call.rsplit_once(' ').expect("a call and a count")).collect();
    for (name, times) in &calls {
        let (least, most) = match *times {
            "*" => (COMMITS, COMMITS),
            "+" => (COMMITS, u64::MAX),
            count => {
                let count: u64 = count.parse().expect("a number");
                (count, count)
            }
        };
        let count = seen.get(*name).copied().unwrap_or(0);
        if !(least..=most).contains(&count) {
            wrong.push(format!("{name}: {count} times instead of {least}"));
        }
    }
    let more = seen.keys().filter(|name| !calls.iter().any(|(known, _)| known == name));
    wrong.extend(more.map(|name| format!("{name}: {} times, and the row has none", seen[name])));
    wrong
}

#[test]
#[ignore = "needs strace"]
fn every_word_of_a_way_of_writing_makes_its_calls() {
    let rows: Vec<Vec<&str>> =
        WAYS.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let wrong: Vec<Vec<String>> = side_by_side(&rows, |row| {
        let [way, flags, calls] = row[..] else { panic!("{row:?}") };
        let place = directory();
        match traced(place.path(), way) {
            Ok(seen) => {
                judge(flags, calls, &seen).iter().map(|why| format!("{way}: {why}")).collect()
            }
            Err(why) => {
                not_run(way, &why);
                Vec::new()
            }
        }
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "ways that do not do what they say:\n{}", wrong.join("\n"));
}

#[test]
fn every_word_has_a_row() {
    let ways: Vec<Strategy> = WAYS
        .lines()
        .map(|line| Writing::named(line.split(" |").next().unwrap_or_default()).expect("a way"))
        .map(|writing| writing.strategy)
        .collect();
    let has = |is: &dyn Fn(&Strategy) -> bool| ways.iter().any(is);
    for &preparation in Preparation::ALL {
        assert!(has(&|way| way.preparation == preparation), "{preparation}");
    }
    for &access in Access::ALL {
        assert!(has(&|way| way.access == access), "{access}");
    }
    for &durability in Durability::ALL {
        assert!(has(&|way| way.durability == durability), "{durability}");
    }
}
