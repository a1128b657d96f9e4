//! `inkstone powerloss any --fs`: after a power cut a program that syncs is sound, and one that
//! does not is caught.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::io::Write as _;
use std::process::Command;

use inkstone_powerloss::kernel::machine::{FsKind, missing, missing_for};

const READER: &str = "cat {dir}/items 2>/dev/null || true";

/// Its exit code and its output.
fn any(kind: FsKind, sync: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let writer = format!(
        "cd {{dir}} && : >>items && sync items . && i=0 && while :; do i=$((i+1)); echo line $i >>items; {sync}; echo line $i; done"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkstone"));
    command.args([
        "powerloss",
        "any",
        "--rounds",
        "2",
        "--lines",
        "12",
        "--states",
        "16",
        "--in",
        ".",
    ]);
    command.args(["--fs", &kind.to_string(), "--writer", &writer, "--reader", READER]);
    let output = command.current_dir(directory.path()).output().unwrap();
    let said =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.code(), said.concat())
}

#[test]
fn the_power_finds_what_a_kill_cannot() {
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        if let Some(why) = missing().or_else(|| missing_for(kind)) {
            // Bypasses the test harness, which hides the output of passing tests.
            let _ = std::io::stderr()
                .write_all(format!("\nNOT RUN: any log on {kind}: {why}\n").as_bytes());
            continue;
        }
        let (code, said) = any(kind, "sync items");
        assert!(code == Some(0) && said.contains("every promise held"), "{kind}: {code:?} {said}");
        assert!(said.contains("right behind a line, nothing unflushed kept"), "{kind}: {said}");
        let (code, said) = any(kind, "true");
        assert!(code == Some(1) && said.contains("is missing"), "{kind}: {code:?} {said}");
    }
}
