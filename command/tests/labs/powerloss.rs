//! `inkstone powerloss sim` and `kill` as people use them: what they print, how they exit, that the
//! commands of `sim` show a failure again, and that `kill` catches a log that makes a mistake.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::{command, directory, good, json, names, refused, run, said, text};

/// The result in a file.
fn result(file: &std::path::Path) -> serde_json::Value {
    json(&std::fs::read(file).expect("a result"))[0].clone()
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let directory = directory();
    let at = directory.path();
    for asked in [
        "sim --class torn-5",
        "sim --seeds 0",
        "sim --seeds 1 --states 5",
        "sim --jobs 0",
        "sim --seed 0xg",
        "sim --operations 1;2",
        "sim --operations 1,2",
        "sim --all-of 21",
        "kill --rounds 0",
        "kill --seed x",
        "run --strategy append-fsink",
        "faults --fs fat",
        "run --fs ext3",
    ] {
        refused(at, format!("powerloss {asked}"), 2, "--");
    }
    std::fs::write(at.join("foreign"), vec![7; 5000]).expect("written");
    for command in ["show", "replay"] {
        let asked = format!("powerloss {command} foreign");
        refused(at, asked, 2, "not a recording");
    }
    // It is hidden, but a command of its own: it reports what it could not do. It ends with its
    // input.
    let words =
        ["powerloss", "writer", "/dev/null/log", "inkstone-use 2 threads=1 seed=1 life=1 from=0"];
    let mut writer = command(at, &words).stderr(Stdio::inherit()).spawn().expect("it runs");
    let said = BufReader::new(writer.stdout.take().expect("a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    let failed = lines.find(|line| line.contains(r#"{"NotOpened":["opens","#));
    drop(writer.stdin.take());
    writer.wait().expect("it ends");
    assert!(failed.is_some(), "it did not say that it could not open the log");
}

#[test]
fn a_run_fits_on_a_screen_and_draws_no_progress_on_a_pipe() {
    let directory = directory();
    let at = directory.path();
    let output = run(at, "powerloss sim --for 1s --json sim.json");
    let (told, drawn) = (text(&output.stdout), said(&output));
    assert!(told.lines().count() <= 10 && told.contains("every promise held in "), "{told}");
    assert_eq!((output.status.code(), drawn.as_str()), (Some(0), ""));
    let classes = result(&at.join("sim.json"))["classes"].clone();
    for class in classes.as_array().expect("classes") {
        assert!(told.contains(class["name"].as_str().expect("a name")), "{class}: {told}");
    }
}

#[test]
fn every_promise_holds_through_kills_and_nothing_is_left_behind() {
    let directory = directory();
    let at = directory.path();
    let asked = "powerloss kill --rounds 60 --seed 7 --json kill.json";
    let words = text(&good(at, asked, b""));
    let result = result(&at.join("kill.json"));
    let classes = result["classes"].as_array().expect("classes");
    let states: u64 = classes.iter().map(|class| class["states"].as_u64().expect("a number")).sum();
    assert_eq!(states, 60, "each round ends in one state: {result}");
    assert_eq!((&result["lab"], &result["seed"]), (&"kill".into(), &7.into()));
    assert!(words.contains("every promise held in 60 states"), "{words}");
    // Else nothing was tested.
    for something in [
        "acknowledgements",
        "records read back",
        "second writers refused",
        "before the log was open",
        "while it was closed",
    ] {
        assert!(words.contains(something), "{words}");
    }
    assert_eq!(names(at), ["kill.json"]);
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use super::*;

    #[test]
    fn a_broken_promise_is_exit_1_and_its_command_shows_it_again() {
        let directory = directory();
        let asked = "powerloss sim --seeds 5 --class torn-512 --all-of 6 --mistake no-sync";
        let output = run(directory.path(), asked);
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        let broken =
            |printed: &str| printed.lines().find(|line| line.contains("BROKEN")).map(str::to_owned);
        let command = printed.lines().find_map(|line| line.trim().strip_prefix("again: inkstone "));
        let command = command.expect("a command");
        let again = run(directory.path(), command);
        assert_eq!(again.status.code(), Some(1), "{command}");
        assert_eq!(broken(&text(&again.stdout)), broken(&printed), "{command}");
        refused(directory.path(), "powerloss sim --mistake none-such", 2, "renamed-first");
    }

    /// The lab can fail, and the log is kept as it was.
    #[test]
    fn a_log_that_acknowledges_what_nobody_has_written_is_found_by_a_kill() {
        let directory = directory();
        let at = directory.path();
        let output = run(at, "powerloss kill --rounds 400 --mistake watermark-off-by-one");
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("was acknowledged, but"), "{told}");
        let kept = names(at);
        let is_kept = kept.len() == 1 && kept[0].starts_with("inkstone-kill-broken-seed-1-round-");
        assert!(is_kept, "{kept:?}");
        // What was kept is a log.
        good(at, &["info", &kept[0]], b"");
    }
}
