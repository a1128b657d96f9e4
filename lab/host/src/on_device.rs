//! Runs a tool (mkfs, fsck) on a device, while other programs attach and mount devices.
//!
//! *Owns*: when it is run again. *May not touch*: which tool, and what a failure means.

use std::io;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

/// The message of mkfs.btrfs if a mounted device vanishes while it checks them all.
const LOOKED_AWAY: &str = "cannot check mount status";
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Runs a tool on a device, with these arguments before it; repeats that for some seconds while
/// another program's device makes it fail.
///
/// # Errors
/// The tool could not be run. The caller judges its result.
pub fn run_on_device(program: &Path, arguments: &[&str], device: &Path) -> io::Result<Output> {
    let run = || Command::new(program).args(arguments).arg(device).output();
    again(run, || thread::sleep(PAUSE))
}

fn again(
    mut run: impl FnMut() -> io::Result<Output>,
    mut pause: impl FnMut(),
) -> io::Result<Output> {
    for _ in 1..TRIES {
        let output = run()?;
        if output.status.success() || !String::from_utf8_lossy(&output.stderr).contains(LOOKED_AWAY)
        {
            return Ok(output);
        }
        pause();
    }
    run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_did_is_tried_again_and_nothing_else() {
        let said = |words: &str| {
            Command::new("sh").args(["-c", "echo \"$0\" >&2; exit 1", words]).output()
        };
        let runs = |words: [&str; 3]| {
            let (mut count, mut pauses) = (0, 0);
            let run = || {
                count += 1;
                match words[(count - 1).min(2)] {
                    "" => Command::new("true").output(),
                    words => said(words),
                }
            };
            let output = again(run, || pauses += 1).expect("run");
            assert_eq!(pauses, count - 1);
            (count, output.status.success())
        };
        assert_eq!(runs([LOOKED_AWAY; 3]), (TRIES as usize, false));
        assert_eq!(runs(["not a block device"; 3]), (1, false));
        assert_eq!(runs([LOOKED_AWAY, LOOKED_AWAY, ""]), (3, true));
    }
}
