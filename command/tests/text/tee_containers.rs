//! `inkstone tee` in containers whose services are `nobody` inside, and which share one `/dev/shm`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{copy_the_command, fed, not_run, said, until};
use crate::with_tee::{put, text};

/// The number of the service inside each of them.
const NOBODY: u32 = 65_534;

/// A `/dev/shm` for the tests alone; it vanishes with the process that holds it.
struct Memory(Child);

impl Memory {
    fn new() -> Option<Self> {
        let script = "mount -t tmpfs -o mode=1777 memory /dev/shm && echo ready && exec cat";
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "sh", "-c", script]);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut said = String::new();
        let mut out = BufReader::new(holder.stdout.take().expect("a pipe"));
        out.read_line(&mut said).expect("its output");
        let memory = Self(holder);
        (said == "ready\n").then_some(memory)
    }

    /// The stages in it that have a line in them, with the owner of their directories.
    fn stages_with(&self, line: &str) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        // Where others see it.
        let at = format!("/proc/{}/root/dev/shm", self.0.id());
        for directory in fs::read_dir(at).expect("memory").flatten() {
            let owner = directory.metadata().map_or(0, |facts| facts.uid());
            for stage in fs::read_dir(directory.path()).into_iter().flatten().flatten() {
                let bytes = fs::read(stage.path()).unwrap_or_default();
                if bytes.windows(line.len()).any(|window| window == line.as_bytes()) {
                    found.push((directory.file_name().to_string_lossy().into_owned(), owner));
                }
            }
        }
        found
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// One whose `nobody` is the user `outside` of this machine.
struct Container {
    at: PathBuf,
    outside: u32,
}

impl Container {
    fn new(made: &Path, outside: u32) -> Self {
        let at = made.join(outside.to_string());
        fs::create_dir(&at).expect("made");
        chown(&at, Some(outside), Some(outside)).expect("given");
        Self { at, outside }
    }

    /// `tee` there, whose lines wait in its stage for an hour; `None` where there are no user
    /// namespaces.
    fn tee(&self, memory: &Memory, program: &Path) -> Option<Child> {
        let (holder, outside) = (memory.0.id().to_string(), self.outside.to_string());
        let mut tee = Command::new("nsenter");
        tee.args(["--target", &holder, "--mount", "setpriv", "--clear-groups"]);
        tee.args(["--reuid", &outside, "--regid", &outside, "unshare", "--user", "sh", "-c"]);
        tee.arg("read mapped && exec \"$0\" \"$@\"").arg(program).arg("tee");
        tee.arg(self.at.join("s.log")).args(["--survive", "kill", "--flush-every", "1h"]);
        tee.args(["--buffers", "64KiB"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut tee = tee.spawn().ok()?;
        // It is in its namespace once that is another than this one.
        let of = |id: &str| fs::read_link(format!("/proc/{id}/ns/user")).ok();
        let id = tee.id().to_string();
        until("the namespace", || {
            let is_in = of(&id).is_some_and(|own| Some(own) != of("self"));
            is_in || tee.try_wait().expect("asked").is_some()
        });
        let map = format!("{NOBODY} {} 1\n", self.outside);
        let map = |name| fs::write(format!("/proc/{id}/{name}"), &map);
        if map("uid_map").and_then(|()| map("gid_map")).is_err() {
            let _ = tee.kill().and_then(|()| tee.wait());
            return None;
        }
        put(&mut tee, "mapped\n");
        Some(tee)
    }
}

#[test]
#[ignore = "needs root and user namespaces"]
fn services_that_are_nobody_in_two_containers_have_a_stage_each_and_lose_no_line() {
    let name = "services_that_are_nobody_in_two_containers_have_a_stage_each_and_lose_no_line";
    let Some(memory) = Memory::new() else {
        return not_run(name, "unshare --mount does not work here");
    };
    let made = tempfile::tempdir().expect("a directory");
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).expect("for everybody");
    let program = made.path().join("inkstone");
    copy_the_command(&program);
    let containers = [165_534, 265_534].map(|outside| Container::new(made.path(), outside));
    let line = |round: u32, of: &Container| format!("round {round} of {}\n", of.outside);
    // Each is killed with a line that is only in its stage, and recovers it.
    for round in 0..2 {
        let mut running = Vec::new();
        for (container, own) in containers.iter().zip(["inkstone-65534", "inkstone-65534.1"]) {
            let Some(mut tee) = container.tee(&memory, &program) else {
                return not_run(name, "unshare --user does not work here");
            };
            let line = line(round, container);
            put(&mut tee, &line);
            until("its line in a stage", || {
                let has_ended = tee.try_wait().expect("asked").is_some();
                has_ended || !memory.stages_with(&line).is_empty()
            });
            if tee.try_wait().expect("asked").is_some() {
                panic!("{}", said(&tee.wait_with_output().expect("its end")));
            }
            assert_eq!(memory.stages_with(&line), [(own.into(), container.outside)]);
            running.push(tee);
        }
        for mut tee in running {
            tee.kill().and_then(|()| tee.wait()).expect("killed");
        }
    }
    // In the other order: each finds its own.
    for container in containers.iter().rev() {
        let output = fed(container.tee(&memory, &program).expect("as before"), b"");
        assert!(output.status.success(), "{}", said(&output));
        let lines = line(0, container) + &line(1, container);
        assert_eq!(text(&container.at.join("s.log")), lines, "{}", said(&output));
    }
}
