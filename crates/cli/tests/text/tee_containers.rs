//! `inkstone tee` in containers whose services are `nobody` inside, and which share one `/dev/shm`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use crate::with_tee::{said, text, wait_until};

/// The number of the service inside each of them.
const NOBODY: u32 = 65_534;

/// Prints loudly that a test did not run, past the test harness, which hides what a passing test
/// prints.
fn not_run(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

/// A `/dev/shm` for the tests alone; it vanishes with the process that holds it.
struct Memory(Child);

impl Memory {
    fn new() -> Option<Self> {
        let script = "mount -t tmpfs -o mode=1777 memory /dev/shm && echo ready && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut said = String::new();
        let mut out = BufReader::new(holder.stdout.take().expect("a pipe"));
        out.read_line(&mut said).expect("its output");
        if said != "ready\n" {
            holder.wait().expect("its end");
            return None;
        }
        Some(Self(holder))
    }

    /// Where others see it.
    fn path(&self) -> PathBuf {
        format!("/proc/{}/root/dev/shm", self.0.id()).into()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// One whose `nobody` is the user `outside` of this machine.
struct Container<'a> {
    memory: &'a Memory,
    at: PathBuf,
    outside: u32,
}

impl<'a> Container<'a> {
    fn new(memory: &'a Memory, made: &Path, outside: u32) -> Self {
        let at = made.join(outside.to_string());
        std::fs::create_dir(&at)
            .and_then(|()| chown(&at, Some(outside), Some(outside)))
            .expect("made");
        Self { memory, at, outside }
    }

    fn log(&self) -> PathBuf {
        self.at.join("s.log")
    }

    /// `tee` there, whose lines wait in its stage for an hour; `None` where there are no user
    /// namespaces.
    fn tee(&self, program: &Path) -> Option<(Child, ChildStdin)> {
        let id = self.memory.0.id().to_string();
        let outside = self.outside.to_string();
        let mut child = Command::new("nsenter")
            .args(["--target", &id, "--mount", "setpriv", "--clear-groups", "--reuid", &outside])
            .args([
                "--regid",
                &outside,
                "unshare",
                "--user",
                "sh",
                "-c",
                "read mapped && exec \"$0\" \"$@\"",
            ])
            .arg(program)
            .arg("tee")
            .arg(self.log())
            .args(["--survive", "kill", "--flush-every", "1h", "--buffers", "64KiB"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        // It is in its namespace once that is another than this one.
        let of = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/user")).ok();
        let id = child.id().to_string();
        wait_until("the namespace", || {
            of(&id).is_some_and(|own| Some(own) != of("self"))
                || child.try_wait().expect("asked").is_some()
        });
        let map = format!("{NOBODY} {} 1\n", self.outside);
        let mapped =
            ["uid_map", "gid_map"].map(|name| std::fs::write(format!("/proc/{id}/{name}"), &map));
        if mapped.iter().any(Result::is_err) {
            let _ = child.kill().and_then(|()| child.wait());
            return None;
        }
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(b"mapped\n").expect("the shell reads");
        Some((child, stdin))
    }
}

/// The stages in memory that have a line in them, with the owner of their directories.
fn stages_with(memory: &Memory, line: &str) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for directory in std::fs::read_dir(memory.path()).expect("memory").flatten() {
        let owner = directory.metadata().map_or(0, |facts| facts.uid());
        for stage in std::fs::read_dir(directory.path()).into_iter().flatten().flatten() {
            let bytes = std::fs::read(stage.path()).unwrap_or_default();
            if bytes.windows(line.len()).any(|window| window == line.as_bytes()) {
                found.push((directory.file_name().to_string_lossy().into_owned(), owner));
            }
        }
    }
    found
}

fn end((child, stdin): (Child, ChildStdin)) -> Output {
    drop(stdin);
    child.wait_with_output().expect("its end")
}

#[test]
fn services_that_are_nobody_in_two_containers_have_a_stage_each_and_lose_no_line() {
    let name = "services_that_are_nobody_in_two_containers_have_a_stage_each_and_lose_no_line";
    if !inkstone_io::is_root() {
        return not_run(name, "root alone can be other users and mount");
    }
    let Some(memory) = Memory::new() else {
        return not_run(name, "unshare --mount does not work here");
    };
    let made = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(made.path(), std::fs::Permissions::from_mode(0o755))
        .expect("for everybody");
    let program = made.path().join("inkstone");
    crate::support::copy_the_command(&program);
    let containers =
        [165_534, 265_534].map(|outside| Container::new(&memory, made.path(), outside));
    // Each is killed with a line that is only in its stage, and recovers it.
    for round in 0..2 {
        let mut running = Vec::new();
        for container in &containers {
            let Some((mut child, mut stdin)) = container.tee(&program) else {
                return not_run(name, "unshare --user does not work here");
            };
            let line = format!("round {round} of {}\n", container.outside);
            // It may be refused.
            let _ = stdin.write_all(line.as_bytes());
            wait_until("its line in a stage", || {
                !stages_with(&memory, &line).is_empty()
                    || child.try_wait().expect("asked").is_some()
            });
            if child.try_wait().expect("asked").is_some() {
                panic!("{}", said(&child.wait_with_output().expect("its end")));
            }
            let number = containers.iter().position(|other| other.outside == container.outside);
            let directory = ["inkstone-65534", "inkstone-65534.1"][number.expect("one of them")];
            assert_eq!(stages_with(&memory, &line), [(directory.into(), container.outside)]);
            running.push((child, stdin));
        }
        for (mut child, _stdin) in running {
            child.kill().and_then(|()| child.wait()).expect("killed");
        }
    }
    // In the other order: each finds its own.
    for container in containers.iter().rev() {
        let output = end(container.tee(&program).expect("as before"));
        assert!(output.status.success(), "{}", said(&output));
        let lines =
            [0, 1].map(|round| format!("round {round} of {}\n", container.outside)).concat();
        assert_eq!(text(&container.log()), lines, "{}", said(&output));
    }
}
