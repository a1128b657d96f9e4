//! `inkstone powerloss any`, with shell scripts as writers and readers: logs that hold, logs that
//! do not, and commands that cannot be used.

use std::path::Path;
use std::process::{Command, Output};

use super::lab_users::as_nobody;
use super::powerloss_check::SYNCED_BY_OTHERS;
use super::powerloss_kernel::here;
use crate::support::{
    Words as _, command, directory, json, names, not_run, refused, run, said, side_by_side, signal,
    text, until,
};
use inkstone_powerloss::kernel::machine::FsKind;

/// Durable enough for a kill: each line is written before it is reported. A line that a kill has
/// cut is removed first.
const WRITER: &str = "cd {dir}; touch f; grep -x 'item [0-9]*!' f > g || true; mv g f; n=$(wc -l < \
    f); while :; do n=$((n+1)); echo \"item $n!\" >> f; echo \"item $n!\"; done";
/// Shows whole lines only.
const READER: &str = "cd {dir}; touch f; grep -x 'item [0-9]*!' f || true";

fn any(at: &Path, writer: &str, reader: &str, more: &str) -> Output {
    let more = more.words();
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let words = ["powerloss", "any", "--writer", writer, "--reader", reader];
    run(at, [&words[..], &more].concat().as_slice())
}

#[test]
fn a_log_that_holds() {
    let directory = directory();
    let more = "--rounds 20 --json any.json";
    let output = any(directory.path(), WRITER, READER, more);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), said(&output));
    let result = &json(&std::fs::read(directory.path().join("any.json")).expect("a result"))[0];
    assert_eq!(result["classes"][0]["name"], "killed with SIGKILL");
    assert_eq!(result["classes"][0]["states"], 20);
    assert!(result["not_run"][0].as_str().expect("words").contains("page cache"), "{result}");
    let told = text(&output.stdout);
    assert!(told.contains("20 kills, ") && told.contains(" lines acknowledged, "), "{told}");
    assert_eq!(names(directory.path()), ["any.json"]);
}

#[test]
fn writers_are_started_for_so_long() {
    let directory = directory();
    let at = directory.path();
    let output = any(at, WRITER, READER, "--for 1s --json -");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let result = &json(&output.stdout)[0];
    let took = result["seconds"].as_f64().expect("seconds");
    assert!(took >= 1.0 && result["classes"][0]["states"].as_u64() >= Some(1), "{result}");
    let both =
        ["powerloss", "any", "--writer", WRITER, "--reader", READER, "--for=1s", "--rounds=1"];
    refused(at, &both, 2, "cannot be used with");
}

#[test]
#[ignore = "needs root, to become an ordinary user"]
fn without_root_it_kills_only_and_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = ["powerloss", "any", "--writer", WRITER, "--reader", READER, "--rounds", "3"];
    for (more, code, told_is) in [
        (&["--json=-"][..], 0, "power loss: the writes of a killed writer stay in the page cache"),
        (&["--fs=ext4"], 2, "NOTHING RAN: without --fs it needs no root, and kills only"),
    ] {
        let words = [&words[..], more].concat();
        let Some(output) = as_nobody(directory.path(), words.as_slice()) else {
            return not_run("without_root_it_kills_only_and_says_so", "there is no setpriv");
        };
        let told = text(&output.stdout) + &said(&output);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {told}");
        assert!(told.contains(told_is), "{more:?}: {told}");
    }
}

/// The kernel may write once more or less in between: the place of the cut is not compared.
#[test]
fn a_seed_shows_a_loss_again() {
    let kinds = here("a_seed_shows_a_loss_again", &[FsKind::Ext4]);
    let Some(kind) = kinds.first() else { return };
    let directory = directory();
    let at = directory.path();
    let (writer, reader) = ("echo 1 >{dir}/f && echo 1 && sleep 99", "cat {dir}/f || true");
    let more = format!("--fs {kind} --seed 7 --rounds 1 --lines 1 --skip-start --json -");
    let output = any(at, writer, reader, &more);
    let found = |output: &Output| {
        assert_eq!(output.status.code(), Some(1), "{}", said(output));
        let result = json(&output.stdout)[0].take();
        assert_eq!(result["seed"], 7);
        let (lost, again) = (&result["violations"][0]["what"], &result["violations"][0]["command"]);
        let (lost, again) = (lost.as_str().expect("words"), again.as_str().expect("a command"));
        let (lost, _) = lost.split_once("; a copy of the directory is in ").expect("where it is");
        (lost.to_owned(), again.to_owned())
    };
    let (lost, again) = found(&output);
    assert!(lost.contains("line 1 is missing: \"1\"; it was acknowledged"), "{lost}");
    let output = Command::new("sh").args(["-c", &again]).current_dir(at).output();
    assert_eq!(found(&output.expect("a shell")), (lost, again));
}

#[test]
fn who_loses_or_fails_is_found_and_kept() {
    let told_first = WRITER.replace(
        r#"echo "item $n!" >> f; echo "item $n!""#,
        r#"echo "item $n!"; echo "item $n!" >> f"#,
    );
    let forgets = WRITER.replace("n=$(wc -l < f)", "rm f; n=0");
    assert!(told_first != WRITER && forgets != WRITER);
    let gives_up = format!("{READER}; echo 'cannot read that' >&2; exit 4");
    let stops = WRITER.replace("cd {dir}", "cd {dir}; [ ! -e f ] || exit 5");
    let has_no_end = format!("{READER}; seq 1000000000000");
    let message = "the reader failed: exit status: 4, with the message \"cannot read that\"";
    let ways = [
        (&*told_first, READER, "it was acknowledged, but only"),
        // The message depends on which of its lines the second writer has reached when it is
        // killed.
        (&forgets, READER, "an earlier reading showed it|it was acknowledged"),
        (WRITER, &*gives_up, message),
        (&stops, READER, "the writer could not continue"),
        (WRITER, &has_no_end, "the reader goes on: it was stopped at line 1"),
    ];
    side_by_side(&ways, |(writer, reader, words)| {
        let directory = directory();
        let output = any(directory.path(), writer, reader, "--rounds 200");
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{writer}: {told}{}", said(&output));
        let says_so = words.split('|').any(|words| told.contains(words));
        assert!(told.contains("BROKEN") && says_so, "{writer} and {reader}, {words:?}: {told}");
        let kept = names(directory.path());
        let is_kept =
            kept.len() == 1 && kept[0].starts_with("inkstone-any-broken-kill-seed-1-round-");
        assert!(is_kept, "{kept:?}");
    });
}

#[test]
fn a_command_that_is_none_is_an_error_that_says_which() {
    let unfinished = format!("{READER}; printf end");
    for (writer, reader, words) in [
        ("nonesuch-writer {dir}", READER, "--writer \"nonesuch-writer {dir}\" cannot be started"),
        (WRITER, "nonesuch-reader {dir}", "--reader \"nonesuch-reader {dir}\" cannot be started"),
        ("echo 1", READER, "has no place for the directory"),
        (WRITER, "echo 1", "has no place for the directory"),
        ("exit 3 # {dir}", READER, "it had acknowledged nothing"),
        ("true # {dir}", READER, "acknowledged no line"),
        ("sleep 1000 # {dir}", READER, "has printed nothing for 3s"),
        (WRITER, "echo no space left on device >&2; exit 1 # {dir}", "the lab's disk is full"),
        ("echo 'item 1!' > {dir}/f; echo 'item 1!'", &unfinished, "ends inside line 2"),
        (WRITER, "tr '\\0' x </dev/zero # {dir}", "prints a line 1 above 1048576 bytes"),
    ] {
        let directory = directory();
        let output = any(directory.path(), writer, reader, "--rounds 3 --limit 3s");
        let told = said(&output);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{writer} and {reader}: {}{told}",
            text(&output.stdout)
        );
        assert!(told.contains(words), "{writer} and {reader}: {told}");
        assert!(names(directory.path()).is_empty());
    }
}

/// Items from two clients: each has a file.
const SET: &str = "cd {dir}; for c in a b; do (n=$(cat $c 2>/dev/null | wc -l); while :; do \
    n=$((n+1)); echo try $c$n; echo $c$n >>$c; echo ok $c$n; done) & done; wait";
const SET_READER: &str = "cd {dir}; cat b a 2>/dev/null || true";
/// Keys are files, replaced by a rename; one of them is removed now and then.
const MAP: &str = "cd {dir}; n=$(cat n 2>/dev/null || echo 0); while :; do n=$((n+1)); echo $n >m; \
    mv m n; for k in x y; do echo try $k $n; echo $n >t; mv t key.$k; echo ok $k $n; done; \
    echo try z $n; echo $n >key.z; echo ok z $n; echo try z -; rm key.z; echo ok z -; done";
const MAP_READER: &str = "cd {dir}; for k in x y z; do [ ! -s key.$k ] || \
    echo $k $(cat key.$k); done";
/// The last lines are in memory.
const PREFIX: &str = "cd {dir}; n=$(cat f 2>/dev/null | wc -l); while :; do m=; for i in 1 2; do \
    n=$((n+1)); m=\"$m$n\\n\"; echo $n; sleep 0.01; done; printf \"$m\" >>f; done";
const PREFIX_READER: &str = "cat {dir}/f 2>/dev/null || true";

#[test]
fn each_promise_holds_or_its_lie_is_found() {
    let swap = |from: &str, to: &str, script: &str| {
        assert!(script.contains(from), "{script}");
        script.replace(from, to)
    };
    let early =
        swap("echo $c$n >>$c; echo ok $c$n", "echo ok $c$n; sleep 0.01; echo $c$n >>$c", SET);
    let invents = format!("{SET_READER}; yes c");
    let stale = swap("echo $n >t; mv t key.$k; echo ok $k $n", "echo ok $k $n", MAP);
    let back = swap("rm key.z; echo ok z -", "echo ok z -; sleep 0.01; rm key.z", MAP);
    let holes = swap("cat {dir}/f", "grep -v '^3$' {dir}/f", PREFIX_READER);
    let lazy = swap("1 2;", "$(seq 400);", PREFIX);
    let (most, more) = ("--promise prefix:1s", "--promise prefix:100ms");
    let ways = [
        (SET, SET_READER, "--promise set", 0, "every promise held"),
        (&early, SET_READER, "--promise set", 1, "is missing; it was acknowledged"),
        (SET, &invents, "--promise set", 1, "is \"c\", which nobody tried"),
        (MAP, MAP_READER, "--promise map", 0, "every promise held"),
        (&stale, MAP_READER, "--promise map", 1, "instead of version|missing"),
        (&back, MAP_READER, "--promise map", 1, "instead of removed; it was acknowledged"),
        (PREFIX, PREFIX_READER, most, 0, "every promise held"),
        (PREFIX, &holes, most, 1, "instead of"),
        (&lazy, PREFIX_READER, more, 1, "is missing: \"1\"; it was acknowledged"),
        (PREFIX, PREFIX_READER, "--promise set", 2, "begins with neither `try ` nor `ok `"),
    ];
    side_by_side(&ways, |(writer, reader, promise, code, words)| {
        let directory = directory();
        let rounds = if *code == 0 { 3 } else { 200 };
        let output = any(directory.path(), writer, reader, &format!("{promise} --rounds {rounds}"));
        let told = text(&output.stdout) + &said(&output);
        assert_eq!(output.status.code(), Some(*code), "{promise}: {writer}: {told}");
        assert!(words.split('|').any(|words| told.contains(words)), "{writer}, {reader}: {told}");
    });
}

/// A daemon that forks away from its start and from its session. Its client asks it through pipes.
const START: &str = "[ $PORT -gt 0 ] && cd $DIR && touch items && sync items . && \
    mkfifo $RUN/ask $RUN/answer && setsid sh -c 'while read -r item <$RUN/ask; do \
    echo \"$item\" >>items; sync items; echo done >$RUN/answer; done' & sleep 0.1";
const CLIENT: &str = "n=$(wc -l <{dir}/items); while :; do n=$((n+1)); echo line $n >$RUN/ask; \
    read -r answer <$RUN/answer; echo line $n; done";
const ASKED: &str = "cat $DIR/items";

fn server(at: &Path, start: &str, more: &str) -> Output {
    let more = more.words();
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let words = ["powerloss", "any", "--start", start, "--ready", "[ -p $RUN/answer ]"];
    let talk = ["--client", CLIENT, "--reader", ASKED, "--stop", "rm $RUN/ask"];
    run(at, [&words[..], &talk, &more].concat().as_slice())
}

/// The server is slow to begin, or a command is wrong: what the commands said is in the message.
#[test]
fn a_server_that_is_not_ready_is_explained() {
    let kinds = here("a_server_that_is_not_ready_is_explained", &[FsKind::Ext4]);
    if kinds.is_empty() {
        return;
    }
    let directory = directory();
    for (ready, start, words) in [
        (
            "nonesuch-ready",
            "echo begins; sleep 99",
            "nonesuch-ready: not found; the server said: begins",
        ),
        (
            "echo asks; sleep 99",
            "true",
            "--ready did not succeed in time, and said: asks; the server",
        ),
        ("false", "seq 9000; echo panic: why; seq 9000; exit 2", "\\n...\\npanic: why\\n1\\n"),
    ] {
        let words_of = ["powerloss", "any", "--limit", "3s", "--start", start, "--ready", ready];
        let asked = [&words_of[..], &["--client", "echo 1", "--reader", "echo 1"]].concat();
        refused(directory.path(), asked.as_slice(), 2, words);
    }
}

/// A lab that was stopped for longer than its limit called a reader too slow, and so a promise
/// broken, when it went on.
#[test]
fn who_is_stopped_with_the_lab_is_not_late() {
    const HELD: &str = "all() { echo $1; for child in $(pgrep -P $1); do all $child; done; }; \
        all=$(all $0); kill -STOP $all 2>/dev/null; sleep 4; kill -CONT $all 2>/dev/null; :";
    let directory = directory();
    let at = directory.path();
    let begun = at.join("begun");
    let reader = format!(
        "cat {{dir}}/f; [ -e {0} ] || {{ : >{0}; for i in 1 2 3 4; do sleep 0.1; done; }}",
        begun.display()
    );
    let writer = "echo 1 >{dir}/f; echo 1; sleep 1000";
    let words = ["powerloss", "any", "--writer", writer, "--reader", &reader];
    let more = ["--rounds=1", "--lines=1", "--limit=3s"];
    let mut child = command(at, [&words[..], &more].concat().as_slice()).spawn().expect("it runs");
    until("the reader reads", || {
        assert!(child.try_wait().expect("asked").is_none(), "it ended before");
        begun.exists()
    });
    let held = Command::new("sh").args(["-c", HELD, &child.id().to_string()]).status();
    assert!(held.expect("sh").success());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), said(&output));
}

/// A silent one lived on for ever.
#[test]
fn a_kill_of_the_lab_ends_what_it_has_started() {
    let directory = directory();
    let at = directory.path();
    let asleep = format!("sleep 1000.{}7", std::process::id());
    let lives =
        || Command::new("pgrep").args(["-f", "-x", &asleep]).output().unwrap().status.success();
    let mut ways = vec![
        [&*format!("--writer=echo 1; {asleep}; : {{dir}}"), "--reader=: {dir}"]
            .map(str::to_owned)
            .to_vec(),
    ];
    if !here("a_kill_of_the_lab", &[FsKind::Ext4]).is_empty() {
        let [start, client] =
            ["--start", "--client"].map(|it| format!("{it}=setsid {asleep} & {asleep}"));
        ways.push(vec![start, client, "--ready=true".into(), "--reader=true".into()]);
    }
    for words in ways {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = [&["powerloss", "any", "--limit=90s"], &words[..]].concat();
        let mut child = command(at, words.as_slice()).spawn().expect("it runs");
        until("it sleeps", || {
            assert!(child.try_wait().expect("asked").is_none(), "it ended before");
            lives()
        });
        signal("-KILL", child.id());
        assert_eq!(child.wait().expect("an end").code(), None);
        until("it has ended, too", || !lives());
    }
}

#[test]
fn a_server_is_killed_with_all_that_it_has_started() {
    let wanted = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    let kinds = here("a_server_is_killed_with_all_that_it_has_started", &wanted);
    if kinds.is_empty() {
        return;
    }
    let cuts: Vec<String> =
        kinds.iter().map(|kind| format!("--fs {kind} --rounds 1 --lines 8 --states 12")).collect();
    let [killed, killed_often, hurried] =
        ["--rounds 6 --lines 8", "--rounds 60 --lines 8", "--limit 2s"].map(str::to_owned);
    let unsynced = START.replace("sync items; echo", "echo");
    let early = START.replace(
        r#"echo "$item" >>items; sync items; echo done >$RUN/answer"#,
        r#"echo done >$RUN/answer; sleep 0.01; echo "$item" >>items"#,
    );
    let never = START.replace("mkfifo", "true");
    assert!(unsynced != START && early != START && never != START);
    let cut = cuts.iter().flat_map(|cut| {
        [
            (START, cut, 0, "moments at which something had changed"),
            (&*unsynced, cut, 1, "is missing"),
        ]
    });
    let others = [
        (START, &killed, 0, "every promise held"),
        (&*early, &killed_often, 1, "is missing"),
        (&*never, &hurried, 2, "--ready did not succeed in time"),
        ("echo no room; exit 7", &killed, 2, "exit code 7 before --ready succeeded"),
    ];
    for (start, more, code, words) in cut.chain(others) {
        let directory = directory();
        let output = server(directory.path(), start, more);
        let told = text(&output.stdout) + &said(&output);
        assert_eq!(output.status.code(), Some(code), "{start}: {told}");
        assert!(told.contains(words), "{start}: {told}");
    }
}

/// After a power cut a program that syncs is sound, and one that does not is caught, which a kill
/// cannot do.
#[test]
fn the_power_finds_what_a_kill_cannot() {
    let wanted = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    for kind in here("the_power_finds_what_a_kill_cannot", &wanted) {
        for (sync, code, words) in [
            ("sync items", 0, &["every promise held", "behind a line"][..]),
            (
                "true",
                1,
                &["is missing", "    cause: `items` has ", "    cause: the last sync of `items`"],
            ),
        ] {
            let directory = directory();
            let writer = format!(
                "cd {{dir}} && : >>items && sync items . && i=0 && while :; do i=$((i+1)); \
                 echo line $i >>items; {sync}; echo line $i; done"
            );
            let reader = "cat {dir}/items 2>/dev/null || true";
            let more = format!("--rounds 2 --lines 12 --states 16 --in . --fs {kind}");
            // If another process syncs all meanwhile, no cause is said.
            let mut outputs = (1..=8).map(|seed| {
                any(directory.path(), &writer, reader, &format!("{more} --seed {seed}"))
            });
            let is_clear = |output: &Output| !text(&output.stdout).contains(SYNCED_BY_OTHERS);
            let output = outputs.find(is_clear).expect("others sync all the time");
            let told = text(&output.stdout) + &said(&output);
            assert_eq!(output.status.code(), Some(code), "{kind}, {sync}: {told}");
            assert!(words.iter().all(|word| told.contains(word)), "{kind}, {sync}: {told}");
        }
    }
}

/// Who acknowledges before a write, a sync, or the sync of a directory, and a reader that invents,
/// repeats or reorders. A daemon that would survive its kill is among the servers above.
#[test]
fn liars_are_caught_on_each_file_system() {
    let begin = "cd {dir}; i=0; while :; do i=$((i+1))";
    let honest = "echo line $i >>items; sync items .; echo line $i; done";
    let early = "echo line $i; echo line $i >>items; sync items .; done";
    let unsynced = "echo line $i >>items; echo line $i; done";
    let renamed =
        "cp items t 2>/dev/null; echo line $i >>t; sync t; mv t items; echo line $i; done";
    let reader = "cat {dir}/items 2>/dev/null || true";
    let invents = format!("echo line 0; {reader}");
    let repeats = "cd {dir}; touch items; head -1 items; cat items";
    let reorders = "tac {dir}/items 2>/dev/null || true";
    let ways = [
        (honest, reader, 0, "every promise held"),
        (early, reader, 1, "is missing: "),
        (unsynced, reader, 1, "is missing: "),
        (renamed, reader, 1, "is missing: "),
        (honest, invents.as_str(), 1, "is \"line 0\""),
        (honest, repeats, 1, "is \"line 1\""),
        (honest, reorders, 1, "instead of \"line 1\""),
    ];
    let wanted = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    let kinds = here("liars_are_caught_on_each_file_system", &wanted);
    let all: Vec<_> = kinds.iter().flat_map(|kind| ways.map(|way| (kind, way))).collect();
    side_by_side(&all, |(kind, (each, reader, code, words))| {
        let directory = directory();
        let more = format!("--fs {kind} --rounds 1 --lines 8 --states 12 --skip-start");
        let output = any(directory.path(), &format!("{begin}; {each}"), reader, &more);
        let told = text(&output.stdout) + &said(&output);
        assert_eq!(output.status.code(), Some(*code), "{kind}, {each}, {reader}: {told}");
        assert!(told.contains(words), "{kind}, {each}, {reader}: {told}");
    });
}

#[test]
fn a_writer_that_fills_the_disk_of_the_lab_has_broken_nothing() {
    let name = "a_writer_that_fills_the_disk_of_the_lab_has_broken_nothing";
    let writer = "cd {dir} && n=0 && while n=$((n+1)) && dd if=/dev/zero of=f$n bs=1M count=4 \
        status=none && echo line $n >>items && sync; do echo line $n; done; exit 1";
    for kind in here(name, &[FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs]) {
        let directory = directory();
        let more = format!("--fs {kind} --rounds 1 --lines 1000000 --skip-start");
        let output = any(directory.path(), writer, "cat {dir}/items", &more);
        let told = text(&output.stdout) + &said(&output);
        assert_eq!(output.status.code(), Some(2), "{kind}: {told}");
        assert!(told.contains("the lab's disk is full: give a larger --disk"), "{kind}: {told}");
    }
}

/// What it makes before its first line is wrong on the way.
#[test]
fn a_start_is_tested_unless_it_is_skipped() {
    let kinds = here("a_start_is_tested_unless_it_is_skipped", &[FsKind::Ext4]);
    let Some(kind) = kinds.first() else { return };
    let writer = "cd {dir} && echo half >items && sync items . && echo more >>items && sync items \
        && : >items && sync items && i=0 && while :; do i=$((i+1)); echo line $i >>items; \
        sync items; echo line $i; done";
    let reader = "cat {dir}/items 2>/dev/null || true";
    let ways = [("", 1, "is \"half\", but the writer's next was"), ("--skip-start", 0, "held")];
    for (more, code, words) in ways {
        let directory = directory();
        let more = format!("{more} --rounds 2 --lines 6 --states 30 --fs {kind}");
        let output = any(directory.path(), writer, reader, &more);
        let told = text(&output.stdout) + &said(&output);
        assert_eq!(output.status.code(), Some(code), "{more}: {told}");
        assert!(told.contains(words), "{more}: {told}");
    }
}
