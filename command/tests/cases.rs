//! Sessions in a shell: what the commands print, and their exit codes, from `cases/*.txt`.
//!
//! *Owns*: running a session, and the table of exit codes (docs/exit-codes.md). *May not touch*:
//! what needs timing, signals, two processes or a full disk: those tests are programs of their own.
//!
//! A session is lines that begin with `$`, each with what it prints behind it, stderr too. `? 1` is
//! the exit code of the line above. `[..]` stands for anything in a line, `...` for any lines, `#`
//! begins a comment. All lines of a file run in one directory. `SNAPSHOTS=overwrite` writes what
//! was printed into the file.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{directory, names, text};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs each line of a session in a directory; what is shown then has the form of a session.
fn run(session: &str, at: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_inkstone"));
    let own = program.parent().expect("a directory").display();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shown = String::new();
    for line in session.lines().filter(|line| line.starts_with(['$', '#'])) {
        shown.push_str(&format!("{line}\n"));
        let Some(line) = line.strip_prefix("$ ") else { continue };
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec 2>&1; {line}")]).current_dir(at);
        shell.env("PATH", &path).env("LC_ALL", "C.UTF-8").env("COLUMNS", "100");
        let ended = shell.env_remove("NO_COLOR").output().expect("bash runs");
        match ended.status.code() {
            Some(0) => {}
            code => shown.push_str(&format!("? {}\n", code.map_or(-1, |code| code))),
        }
        shown.push_str(&text(&ended.stdout));
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
    }
    shown
}

fn session(name: &str) {
    let place = directory();
    let file = cases().join(format!("{name}.txt"));
    let shown = run(&read(&file), place.path());
    let compared = snapbox::Assert::new().action_env("SNAPSHOTS").normalize_paths(false);
    compared.eq(shown, snapbox::Data::read_from(&file, None));
}

/// A test for each file, by its name.
macro_rules! sessions {
    ($($name:ident)*) => {
        const SESSIONS: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { session(stringify!($name)); })*
    };
}

sessions! { append_cat damage errors help lab measuring raft_and_streams salvage_copy tee truncate }

#[test]
fn every_session_runs() {
    let files = names(&cases());
    assert_eq!(files, SESSIONS.iter().map(|name| format!("{name}.txt")).collect::<Vec<_>>());
}

/// A row of the page.
struct Row {
    commands: Vec<String>,
    codes: BTreeSet<i32>,
}

fn rows() -> Vec<Row> {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/exit-codes.md"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let commands = cells[0].split(", ").map(|name| name.replace('`', "")).collect();
        let other = cells[3].split("; ").filter_map(|one| one.split_once(':')?.0.parse().ok());
        Row { commands, codes: [0, 1].into_iter().chain(other).collect() }
    };
    page.lines().filter(|line| line.starts_with("| `")).map(row).collect()
}

/// The row of a line's last command: that of the longest name; else the first, of all commands.
fn row_of(rows: &[Row], line: &str) -> usize {
    let called = line.rsplit("inkstone ").next().unwrap_or_default();
    let words = |name: &str| {
        (called == name || called.starts_with(&format!("{name} "))).then_some(name.len())
    };
    let of = |row: &Row| row.commands.iter().filter_map(|name| words(name)).max();
    let found = rows.iter().enumerate().filter_map(|(index, row)| Some((of(row)?, index)));
    found.max().map_or(0, |(_, index)| index)
}

#[test]
fn the_page_has_each_exit_code_and_the_sessions_have_each_code_of_the_page() {
    let rows = rows();
    let mut found: BTreeSet<(usize, i32)> = BTreeSet::new();
    for name in SESSIONS {
        let session = read(&cases().join(format!("{name}.txt")));
        let mut lines = session.lines().peekable();
        while let Some(line) = lines.next() {
            let is_run = line.starts_with("$ ") && line.contains("inkstone ");
            let code = lines.peek().and_then(|next| next.strip_prefix("? "));
            let code = code.map_or(0, |code| code.parse().expect("a code"));
            let row = row_of(&rows, line);
            if is_run && found.insert((row, code)) {
                let is_known = code == 2 || rows[row].codes.contains(&code);
                assert!(is_known, "{name}: {line}: {code} is not on the page");
            }
        }
    }
    // The first row is of all commands; signals have a test in `labs` and in `logs`.
    for (index, row) in rows.iter().enumerate().skip(1) {
        for code in row.codes.iter().filter(|code| **code != 130) {
            assert!(found.contains(&(index, *code)), "{:?}: no session has {code}", row.commands);
        }
    }
}
