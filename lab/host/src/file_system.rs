//! The file systems that labs and tests make on devices of their own: how each is made and mounted,
//! and the tools for that.
//!
//! *Owns*: names and arguments of tools, and when one is run again since another program's device
//! came between. *May not touch*: devices and mounts, which the caller has.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use inkstone_io::named_choice;

named_choice! {
    /// A kind of file system.
    FsKind, "file system" {
        Ext4 = "ext4", "ext4 with a journal";
        Ext4NoJournal = "ext4-nojournal", "ext4 without a journal";
        Ext4DataJournal = "ext4-data-journal", "ext4 mounted with data=journal";
        Xfs = "xfs", "xfs";
        Btrfs = "btrfs", "btrfs, copy on write";
    }
}

/// With other arguments the kernel would write inode tables and the journal later, in threads of
/// its own. Below 512 MiB mkfs.ext4 chooses blocks of 1 KiB, and a 4 KiB commit would differ from
/// one on a real disk.
const EXT4: [&str; 6] = ["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

impl FsKind {
    /// Its name in the kernel.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4DataJournal => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The options that it is mounted with, to be what it is.
    pub fn mount_options(self) -> &'static str {
        if self == Self::Ext4DataJournal { "data=journal" } else { "" }
    }

    /// The size of a disk that it can be made on, in bytes; most of it is not written.
    pub fn disk_bytes(self) -> u64 {
        match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4DataJournal => 64 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 256 << 20,
        }
    }

    /// Whether files can be written past the page cache: with data=journal ext4 passes all data
    /// through its journal.
    pub fn has_direct(self) -> bool {
        self != Self::Ext4DataJournal
    }

    fn mkfs(self) -> (&'static str, Vec<&'static str>) {
        match self {
            Self::Ext4 | Self::Ext4DataJournal => ("mkfs.ext4", EXT4.to_vec()),
            Self::Ext4NoJournal => ("mkfs.ext4", [&EXT4[..], &["-O", "^has_journal"]].concat()),
            Self::Xfs => ("mkfs.xfs", vec!["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", vec!["-q", "-f"]),
        }
    }

    /// Makes it on a device.
    ///
    /// # Errors
    /// In words: its tool is missing, with the package that has it, or what the tool said.
    pub fn make(self, device: &Path) -> Result<(), String> {
        let (name, arguments) = self.mkfs();
        run_on_device(name, &arguments, device, |code| code == 0)
    }

    /// Has its own tool check it, on a device where it is not mounted.
    ///
    /// # Errors
    /// In words: its tool is missing, or found damage.
    pub fn check(self, device: &Path) -> Result<(), String> {
        let (name, arguments): (_, &[&str]) = match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4DataJournal => ("e2fsck", &["-fn"]),
            Self::Xfs => ("xfs_repair", &["-n"]),
            Self::Btrfs => ("btrfs", &["check", "--readonly"]),
        };
        run_on_device(name, arguments, device, |code| code == 0)
    }

    /// Which of the tools that it needs is missing here, in words: to be made, and to be mounted
    /// again after a crash.
    pub fn missing(self) -> Option<String> {
        let more: &[&str] = match self {
            Self::Ext4NoJournal => &["e2fsck"],
            Self::Btrfs => &["btrfs"],
            _ => &[],
        };
        let mut needed = [self.mkfs().0].into_iter().chain(more.iter().copied());
        let name = needed.find(|name| find_tool(name).is_none())?;
        Some(format!("{self}: {}", not_installed(name)))
    }
}

/// Where a tool of the system is; root's own are not on every user's path.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').map(|directory| Path::new(directory).join(name)).find(|tool| tool.exists())
}

fn not_installed(name: &str) -> String {
    let package = match name {
        "mkfs.xfs" | "xfs_repair" => "xfsprogs",
        "mkfs.btrfs" | "btrfs" => "btrfs-progs",
        _ => "e2fsprogs",
    };
    format!("{name} is not installed: it is in the package {package}")
}

/// The message of mkfs.btrfs if a mounted device vanishes while it checks them all.
const LOOKED_AWAY: &str = "cannot check mount status";
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Runs a tool (mkfs, fsck) on a device, with these arguments before it; repeats that for some
/// seconds while another program's device makes it fail.
///
/// # Errors
/// In words: the tool is missing, or has ended with a code that is not accepted.
pub fn run_on_device(
    name: &str,
    arguments: &[&str],
    device: &Path,
    accept: fn(i32) -> bool,
) -> Result<(), String> {
    let program = find_tool(name).ok_or_else(|| not_installed(name))?;
    let run = || Command::new(&program).args(arguments).arg(device).output();
    let output = again(run, || thread::sleep(PAUSE)).map_err(|error| format!("{name}: {error}"))?;
    if output.status.code().is_some_and(accept) {
        return Ok(());
    }
    let said = [output.stdout, output.stderr];
    let words = said.map(|said| String::from_utf8_lossy(&said).trim().to_string());
    Err(format!("{name} {}: {}", output.status, words.join(" ")))
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
