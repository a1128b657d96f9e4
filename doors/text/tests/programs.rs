//! The C and C++ programs of `tests/c`, compiled with every warning an error and run; and programs
//! that are killed at full speed.
//!
//! `INKSTONE_KILLS=300` kills that often, and not 20 times; `TMPDIR` says on which file system
//! (`.ci/text`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// What spdlog's pkg-config file says.
const SPDLOG: [&str; 5] =
    ["-DSPDLOG_SHARED_LIB", "-DSPDLOG_COMPILED_LIB", "-DSPDLOG_FMT_EXTERNAL", "-lspdlog", "-lfmt"];

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{output:?}");
    output
}

/// Compiles a program against the static library that was built for this test; `None` if there is
/// no compiler, or none of what it needs.
fn compile(source: &str, flags: &[&str], to: &Path) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::current_exe().expect("a path");
    let library = built.with_file_name("libinkstone_text.a");
    let program = to.join(Path::new(source).file_stem().expect("a name"));
    let (compiler, language) = if source.ends_with(".c") {
        ("cc", &["-std=c11", "-D_GNU_SOURCE", "-Wstrict-prototypes", "-Wpedantic"][..])
    } else {
        ("c++", &["-std=c++17", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wold-style-cast"][..])
    };
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("NOT RUN: {source}: there is no {compiler}");
        return None;
    }
    run(Command::new(compiler)
        .args(language)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .args([root.join("include"), "-o".into(), program.clone()])
        .args([root.join("tests/c").join(source), library])
        .args(flags)
        .args(["-lm", "-lpthread", "-ldl"]));
    Some(program)
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let logs = directory.path().join("logs");
    std::fs::create_dir(&logs).expect("a directory");
    (directory, logs)
}

fn ends_with(program: &Path, logs: &Path, words: &str) {
    let output = run(Command::new(program).arg(logs));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().last(), Some(words));
}

#[test]
fn the_door_does_what_its_header_says() {
    let (directory, logs) = place();
    let Some(program) = compile("door.c", &[], directory.path()) else { return };
    ends_with(&program, &logs, "the door does what its header says");
}

#[test]
fn a_streambuf_loses_no_line_of_a_program_that_kills_itself() {
    let (directory, logs) = place();
    let source = "../../../../examples/cpp/survives.cpp";
    let Some(program) = compile(source, &["-Weffc++"], directory.path()) else { return };
    let log = logs.join("service.log");
    let killed = Command::new(&program).arg(&log).arg("100000").status().expect("run");
    assert!(!killed.success());
    run(Command::new(&program).arg(&log).arg("0"));
    let found = std::fs::read_to_string(log).expect("a log");
    let wanted: String = (1..=100_000).map(|line| format!("line {line} of 100000\n")).collect();
    assert!(found == wanted, "{} bytes of {}", found.len(), wanted.len());
}

const THREADS: usize = 2;

/// For each thread its last line that was begun, and its last one that was accepted.
fn counts(path: &Path) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(path).expect("counts");
    let mut words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
    let mut next = || words.next().expect("a count");
    (0..THREADS).map(|_| (next(), next())).collect()
}

/// The lines of the log in their order: those of rotated files, then those of the current one.
fn lines_in(logs: &Path) -> String {
    let files = std::fs::read_dir(logs).expect("a directory");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a name").path()).collect();
    files.sort_by_key(|file| {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let place: Vec<&str> = name.splitn(4, '.').skip(2).collect();
        let number = place.get(1).map_or(0, |number| number.parse::<u64>().expect("a number"));
        (place.is_empty(), place.first().map(ToString::to_string), number)
    });
    files.iter().map(|file| std::fs::read_to_string(file).expect("a text")).collect()
}

/// Kills a writer some times, then opens its log once more: each accepted line is there once, and
/// none is broken or out of order; only one in whose call the writer was killed may be missing.
fn kills(program: &Path, options: &str, times: u64) -> u64 {
    let (directory, logs) = place();
    let (log, counts_path) = (logs.join("app.log"), directory.path().join("counts"));
    std::fs::write(&counts_path, [0; 4096]).expect("counts");
    let writer = |threads: usize| {
        let mut command = Command::new(program);
        command.arg(&log).arg(&counts_path).arg(threads.to_string()).arg(options);
        command
    };
    let mut may_be_missing = HashSet::new();
    for _ in 0..times {
        let before = counts(&counts_path);
        let mut process = writer(THREADS).spawn().expect("a writer");
        let until = Instant::now() + Duration::from_secs(60);
        let accepted = |counts: &[(u64, u64)]| counts.iter().map(|count| count.1).sum::<u64>();
        let wanted = accepted(&before) + 1 + fastrand::u64(..20_000);
        while accepted(&counts(&counts_path)) < wanted {
            assert!(Instant::now() < until, "the writer writes nothing: {:?}", process.try_wait());
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(fastrand::u64(..20_000)));
        process.kill().expect("it runs");
        process.wait().expect("it has ended");
        for (thread, (begun, accepted)) in counts(&counts_path).into_iter().enumerate() {
            if begun != accepted {
                may_be_missing.insert((thread, begun));
            }
        }
    }
    run(&mut writer(0));
    let mut last = [0; THREADS];
    let found = lines_in(&logs);
    assert!(found.ends_with('\n'));
    let mut seen = |thread: usize, number: u64, line: &str| {
        assert!(number > last[thread], "twice, or out of order: {line}");
        for missing in last[thread] + 1..number {
            assert!(may_be_missing.contains(&(thread, missing)), "lost: {thread} {missing}");
        }
        last[thread] = number;
    };
    for line in found.lines() {
        let whole =
            line.strip_suffix(" and so on").and_then(|line| line.trim_end().split_once(' '));
        let (thread, number) = whole.unwrap_or_else(|| panic!("broken: {line}"));
        seen(thread.parse().expect("a thread"), number.parse().expect("a number"), line);
    }
    for (thread, (begun, _)) in counts(&counts_path).into_iter().enumerate() {
        seen(thread, begun + 1, "the end");
    }
    last.iter().sum()
}

fn kill_often(program: &Path, options: &[&str]) {
    let times: u64 = std::env::var("INKSTONE_KILLS").map_or(20, |times| times.parse().expect("N"));
    let part = times.div_ceil(options.len() as u64).min(20);
    let (mut lines, mut done) = (0, 0);
    for options in options.iter().cycle() {
        if done >= times {
            break;
        }
        lines += kills(program, options, part);
        done += part;
    }
    println!("{done} kills, {lines} lines: none lost, none twice, none broken");
}

const SURVIVE: [&str; 2] = ["survive=kill", "survive=kill rotate_bytes=65536 buffers_bytes=32768"];

#[test]
fn a_writer_in_c_that_is_killed_at_full_speed_loses_no_accepted_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = compile("writer.c", &[], directory.path()) else { return };
    kill_often(&program, &SURVIVE);
}

#[test]
#[ignore = "needs spdlog, in Debian libspdlog-dev"]
fn spdlog_with_our_sink_that_is_killed_at_full_speed_loses_no_accepted_line() {
    if !Path::new("/usr/include/spdlog/spdlog.h").exists() {
        return eprintln!("NOT RUN: the sink for spdlog: there is no libspdlog-dev");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = compile("spdlog_writer.cpp", &SPDLOG, directory.path()) else { return };
    kill_often(&program, &SURVIVE);
}
