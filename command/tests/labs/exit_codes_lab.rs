//! Every cell of the tables of docs/exit-codes.md that are about measuring, cutting the power, and
//! commands without a log. The other tables are run by `exit_codes`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use crate::support::{Words as _, directory, good, names, not_run, side_by_side, signalled, spawn};
use crate::tables::{Out, Table, code, compare, ended, results};
use inkstone_powerloss::kernel::machine::{FsKind, missing, missing_for};

/// A row of the page in the forms that its cells need: a line with its name, then a line for each
/// form: a word, and how the command is called. `done`, `missing`: of a directory that is not
/// there, `unreadable`, and `signal`: long enough that a signal finds it at work. `root`: it needs
/// root, and whatever the kernel labs need. A row without a form has no such cell.
const LAB: &str = "
lab
    missing lab nowhere
    signal lab
lab bill
    done lab bill --commits 1 --size 64KiB --durability fdatasync --reuse reuse
    missing lab bill nowhere
    signal lab bill --commits 1000000 --size 64KiB
lab fallocate
    done lab fallocate --size 1MiB
    missing lab fallocate nowhere
    signal lab fallocate --size 4GiB
lab filesystems
    root
    done lab filesystems FEW --rounds 5 --durability fdatasync --reuse reuse
    missing lab filesystems nowhere
    signal lab filesystems FEW --rounds 1000
lab claims
    done lab claims --only overwrite-twice --rounds 5 --time 1s
    missing lab claims nowhere
    signal lab claims --rounds 1000 --time 200min
lab compare
    done lab compare first.json first.json
    missing lab compare first.json nowhere
    unreadable lab compare first.json notes
lab all
    missing lab all nowhere
    signal lab all
lab report
    done lab report first.json
    missing lab report nowhere
    unreadable lab report notes -o page.html
lab report -o -
    done lab report first.json -o -
    missing lab report nowhere -o -
    unreadable lab report notes -o -
lab read
    done lab read --seconds 1s --rounds 1
    missing lab read nowhere
    signal lab read --seconds 600s
lab e10
    done lab e10 --rounds 1 --time 10ms
    missing lab e10 nowhere
    signal lab e10
watch
    done watch --path . --seconds 1
    missing watch --path nowhere
    unreadable watch --path . --lab notes
    signal watch --path . --seconds 600
";

const WITHOUT_A_LOG: &str = "
--help
    done --help
--version
    done --version
append --no-such-option
    done append LOG --no-such-option
completions
    done completions bash
man
    done man
lab write
    done lab write --size 64KiB --rounds 1 --bill-commits 0 --quiet
    signal lab write --size 64KiB --rounds 1000 --bill-commits 0
lab compare of the same
    done lab compare first.json first.json
lab compare of a slower one
    done lab compare first.json slow.json
powerloss sim
    done powerloss sim --seeds 2 --class names --all-of 4
    signal powerloss sim --seeds 100000000 --class names --all-of 4
";

const POWERLOSS: &str = "
powerloss run
    root
    done powerloss run --fs ext4 --strategy buffered-fdatasync --mounted 1 --projected 10
    missing powerloss run --fs ext4 --directory nowhere
    signal powerloss run --fs ext4 --mounted 100000 --projected 100000
powerloss strategies
    root
    done powerloss strategies --fs ext4 --strategy append-fdatasync --states 1
    missing powerloss strategies --fs ext4 --directory nowhere
    signal powerloss strategies --fs ext4 --states 100000
powerloss record
    root
    done powerloss record record-again --length 4
    missing powerloss record nowhere/file
powerloss replay
    root
    done powerloss replay recording --entry 40 --states 1
    missing powerloss replay nowhere
    unreadable powerloss replay notes
    signal powerloss replay recording --states 100000
powerloss show
    root
    done powerloss show recording
    missing powerloss show nowhere
    unreadable powerloss show notes
powerloss faults
    root
    done powerloss faults --fs ext4 --fault write-nth --strategy buffered-fdatasync ONE
    missing powerloss faults --fs ext4 --directory nowhere
    signal powerloss faults --fs ext4 --rounds 100000
powerloss kill
    done powerloss kill --rounds 2
    missing powerloss kill nowhere
    signal powerloss kill --rounds 1000000
powerloss any
    done powerloss any --rounds 1 --writer WRITER --reader READER
    missing powerloss any --in nowhere --writer WRITER --reader READER
    signal powerloss any --rounds 1000000 --writer WRITER --reader READER
";

/// A row, with its forms by their words.
type Row = (&'static str, BTreeMap<&'static str, &'static str>);

fn rows(text: &'static str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let form = line.trim_start().split_once(' ').unwrap_or((line.trim_start(), ""));
        match rows.last_mut().filter(|_| line.starts_with(' ')) {
            Some((_, forms)) => drop(forms.insert(form.0, form.1)),
            None => rows.push((line, BTreeMap::new())),
        }
    }
    rows
}

/// The words of a call.
fn called(line: &str) -> Vec<String> {
    let long = |word: String| match word.as_str() {
        "WRITER" => vec![WRITER.to_owned()],
        "READER" => vec![READER.to_owned()],
        "FEW" => "--file-systems ext4 --loops buffered --size 64KiB --bill-commits 0".words(),
        "ONE" => "--rounds 1 --states 1".words(),
        _ => vec![word],
    };
    line.words().into_iter().flat_map(long).collect()
}

/// Prints what it has appended, and continues after what is there.
const WRITER: &str = "n=$(cat {dir}/f 2>/dev/null | wc -l); while :; do n=$((n+1)); echo $n \
                      >>{dir}/f; sync {dir}/f; echo $n; done";
const READER: &str = "cat {dir}/f 2>/dev/null; exit 0";

/// The code of one cell, in a directory of its own with a result, a recording if there is one, and
/// a file that is neither.
fn cell(made: &Path, (_, forms): &Row, column: &str) -> String {
    let form = match column {
        "reader left" | "output full" => "done",
        form => form,
    };
    let Some(line) = forms.get(form) else { return "-".into() };
    // Those that make file systems come one after the other, as elsewhere in the tests.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = forms.contains_key("root").then(|| ONE.lock());
    let place = tempfile::tempdir_in(made).expect("a directory");
    for name in ["first.json", "slow.json", "recording", "notes"] {
        if made.join(name).exists() {
            std::fs::copy(made.join(name), place.path().join(name)).expect("copied");
        }
    }
    let words = called(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let words = words.as_slice();
    if column == "signal" {
        let before = names(place.path());
        let ended = signalled(spawn(place.path(), words), "-TERM");
        assert_eq!(names(place.path()), before, "{line}: something is left");
        return code(&ended);
    }
    let out = match column {
        "reader left" => Out::ReaderLeft,
        "output full" => Out::Full,
        _ => Out::Kept,
    };
    code(&ended(place.path(), words, out))
}

const COLUMNS: &[&str] = &["done", "missing", "unreadable", "reader left", "output full", "signal"];

/// Runs the rows that can be run here, prints loudly which cannot, and compares.
fn every_cell(test: &str, heading: &str, text: &'static str, columns: &[&str]) {
    let directory = directory();
    let at = directory.path();
    results(at);
    std::fs::write(at.join("notes"), "of somebody\n").expect("written");
    let why = missing().or_else(|| missing_for(FsKind::Ext4));
    let (left_out, rows): (Vec<Row>, Vec<Row>) =
        rows(text).into_iter().partition(|(_, forms)| forms.contains_key("root") && why.is_some());
    let left_out: Vec<&str> = left_out.iter().map(|(name, _)| *name).collect();
    if let Some(why) = &why {
        not_run(test, format_args!("{left_out:?}: {why}"));
    } else if text.contains(" recording") {
        good(at, "powerloss record recording --length 4", b"");
    }
    let of_row = |row| columns.iter().map(move |column| (row, *column));
    let cells: Vec<_> = rows.iter().flat_map(of_row).collect();
    let codes = side_by_side(&cells, |(row, column)| cell(at, row, column));
    let names = cells.iter().map(|((name, _), column)| ((*name).into(), (*column).into()));
    compare(heading, &names.zip(codes).collect::<Table>(), &left_out);
}

#[test]
fn every_cell_of_the_lab() {
    every_cell("every_cell_of_the_lab", "Measuring", LAB, COLUMNS);
}

#[test]
fn every_cell_of_powerloss() {
    every_cell("every_cell_of_powerloss", "Cutting the power", POWERLOSS, COLUMNS);
}

#[test]
fn every_cell_of_the_commands_without_a_log() {
    let columns = ["done", "reader left", "output full", "signal"];
    every_cell("without_a_log", "Commands without a log", WITHOUT_A_LOG, &columns);
}
