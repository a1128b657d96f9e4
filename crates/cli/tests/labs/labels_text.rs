//! What `lab e9` says about article 1's practice, compared with the actual system calls
//! (`strace`): written files of 1 MiB are reused, in multiples of 4,096 bytes, and nothing
//! allocates blocks.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;

use crate::support::{directory, text};

const FILE_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;

/// Calls on the files of the practice, by name, each with its numbers behind the file:
/// `pwrite64(7</dir/practice-000001>, "..."..., 4096, 0) = 4096`.
fn calls(log: &str) -> Vec<(String, Vec<u64>)> {
    let mut found = Vec::new();
    for line in log.lines().filter(|line| line.contains("/practice-") && !line.contains("<... ")) {
        let Some((_, call)) = line.split_once(char::is_whitespace) else { continue };
        let Some((name, arguments)) = call.trim_start().split_once('(') else { continue };
        let after = arguments.rsplit_once(">, ").map_or("", |(_, after)| after);
        // A string of bytes may hold anything: what counts stands behind it.
        let after = after.rsplit_once("\"").map_or(after, |(_, after)| after);
        let numbers = after.split([',', ')', ' ']).filter_map(|word| word.trim().parse().ok());
        found.push((name.to_owned(), numbers.collect()));
    }
    found
}

/// What strace saw of the practice in this time; `None` if there is no strace, which is printed
/// loudly.
fn traced(seconds: &str) -> Option<String> {
    let directory = directory();
    let at = directory.path();
    let traced = Command::new("strace")
        .args(["-f", "-y", "-qq", "-s", "0", "-e", "signal=none", "-o", "log"])
        .args([
            "-e",
            "trace=pwrite64,write,pwritev2,ftruncate,fallocate,rename,renameat,renameat2,fdatasync,fsync",
        ])
        .arg(env!("CARGO_BIN_EXE_inkstone"))
        .args(["lab", "e9", "--rounds", "1", "--time", seconds, "--quiet"])
        .current_dir(at)
        .output();
    let output = match traced {
        Ok(output) => output,
        Err(error) => {
            let why = format!(
                "\nNOT RUN: the_practice_overwrites_whole_blocks_of_written_files: strace: {error}\n"
            );
            let _ = std::io::stderr().write_all(why.as_bytes());
            return None;
        }
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("as article 1 practises it"), "{}", text(&output.stdout));
    Some(std::fs::read_to_string(at.join("log")).expect("what strace saw"))
}

#[test]
fn the_practice_overwrites_whole_blocks_of_written_files() {
    // On a busy machine two seconds may be over before a file is reused.
    for seconds in ["2s", "8s", "30s"] {
        let Some(log) = traced(seconds) else { return };
        if rotations(&log) > 8 {
            return;
        }
    }
    panic!("hardly any file was reused in 30 s");
}

/// Checks each call, and says how many files were renamed.
fn rotations(log: &str) -> u64 {
    let calls = calls(log);
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, numbers) in &calls {
        *counted.entry(name).or_default() += 1;
        if name == "pwrite64" {
            // How much, where, and the answer.
            let [len, offset, ..] = numbers[..] else { panic!("{numbers:?}: {log}") };
            assert!(len % BLOCK_BYTES == 0 && offset % BLOCK_BYTES == 0, "{len} at {offset}");
            assert!(
                offset + len <= FILE_BYTES,
                "{len} at {offset} makes a file longer than it was made ready"
            );
        }
    }
    let count = |name: &str| counted.get(name).copied().unwrap_or(0);
    let renames = count("rename") + count("renameat") + count("renameat2");
    assert!(count("pwrite64") > renames && renames > 0, "{counted:?}");
    for none in ["write", "pwritev2", "fallocate"] {
        assert_eq!(count(none), 0, "{none}: {counted:?}");
    }
    // Cut once, when it is closed.
    assert!(count("ftruncate") <= renames, "{counted:?}");
    renames
}
