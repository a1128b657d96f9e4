//! The first signal ends what measures or cuts the power in order, and nothing is left behind. What
//! reads or writes a log: `still_reader.rs` and `log.rs` of `logs`; `tee`: `text`.

use crate::support::{Words as _, directory, names, side_by_side, signalled, spawn};

/// Each takes minutes at least.
const LONG: &[&str] = &[
    "lab",
    "lab all",
    "lab write --size 64KiB --rounds 1000 --bill-commits 0",
    "lab experiment 8 --rounds 10000",
    "lab experiment 10",
    "watch --path . --seconds 600s",
    "powerloss sim --seeds 100000000 --class names --all-of 4",
    "powerloss kill --rounds 1000000",
    "powerloss any --rounds 1000000 --writer WRITER --reader READER",
];
/// The same, of what needs root and file systems.
const LONG_AS_ROOT: &[&str] = &[
    "lab write --file-systems ext4 --size 64KiB --bill-commits 0 --rounds 1000",
    "powerloss run --fs ext4 --mounted 100000",
    "powerloss faults --fs ext4 --rounds 100000",
];
/// Prints what it has appended, and continues after what is there.
const WRITER: &str = "n=$(cat {dir}/f 2>/dev/null | wc -l); while :; do n=$((n+1)); echo $n \
                      >>{dir}/f; sync {dir}/f; echo $n; done";
const READER: &str = "cat {dir}/f 2>/dev/null; exit 0";

/// It ends with 130, and leaves what was there before.
fn is_ended(line: &str) {
    let directory = directory();
    let at = directory.path();
    let long = |word: String| match word.as_str() {
        "WRITER" => WRITER.to_owned(),
        "READER" => READER.to_owned(),
        _ => word,
    };
    let words: Vec<String> = line.words().into_iter().map(long).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let before = names(at);
    let ended = signalled(spawn(at, words.as_slice()), "-TERM");
    assert_eq!(ended.status.code(), Some(130), "{line}: {ended:?}");
    assert_eq!(names(at), before, "{line}: something is left");
}

#[test]
fn a_signal_ends_each_command_that_takes_time_and_nothing_is_left() {
    side_by_side(LONG, |line| is_ended(line));
}

/// One after the other, as elsewhere in the tests, since each makes a file system.
#[test]
#[ignore = "needs root, mkfs.ext4, loop devices and /dev/fuse"]
fn a_signal_ends_each_command_that_makes_file_systems_and_nothing_is_left() {
    LONG_AS_ROOT.iter().for_each(|line| is_ended(line));
}
