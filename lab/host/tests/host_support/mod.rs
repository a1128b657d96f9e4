//! What the host tests share: a file system on a loop device in a work directory, and saying loudly
//! what did not run.

#![allow(dead_code)] // Each test binary uses its own part.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

pub(crate) use inkstone_host::not_run;
use inkstone_host::{LoopDevice, LoopOptions, Mount, WorkDir, find_tool, run_on_device, sweep};

pub(crate) const EXT4: &[&str] = &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
pub(crate) const XFS: &[&str] = &["-q", "-f"];
pub(crate) const BTRFS: &[&str] = &["-q", "-f"];
/// The least that mkfs.xfs accepts.
pub(crate) const XFS_MIB: usize = 320;

/// Whether this test can run here: as root, with loop devices and these tools. Says so loudly if
/// not.
pub(crate) fn can_run(test: &str, tools: &[&str]) -> bool {
    let missing = || tools.iter().find(|tool| find_tool(tool).is_none());
    let why = if !inkstone_io::is_root() {
        Some("it needs root".to_string())
    } else if File::open("/dev/loop-control").is_err() {
        Some("there is no /dev/loop-control".to_string())
    } else {
        missing().map(|tool| format!("{tool} is not installed"))
    };
    if let Some(why) = &why {
        not_run(test, why);
    }
    why.is_none()
}

/// Whether the kernel is of this version or newer. Says loudly if not, and what it lacks.
pub(crate) fn has_kernel(test: &str, (major, minor): (u32, u32), what: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit());
    let mut next =
        || numbers.next().and_then(|number| number.parse::<u32>().ok()).expect("a number");
    let has = (next(), next()) >= (major, minor);
    if !has {
        not_run(test, format!("Linux {} lacks {what} (from {major}.{minor} on)", release.trim()));
    }
    has
}

/// Runs a tool and gives what it printed.
pub(crate) fn run(tool: &str, args: &[&str]) -> String {
    let output = Command::new(find_tool(tool).expect(tool)).args(args).output().expect(tool);
    assert!(output.status.success(), "{tool} {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs one test of this program, which `set_up` may start in another way, in a process of its own.
pub(crate) fn this_test(program: &Path, test: &str, set_up: &[&str]) -> Command {
    let mut words: Vec<&str> = set_up.to_vec();
    let program = program.to_str().expect("text");
    words.extend([program, "--exact", test, "--nocapture"]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// Where temporary files go: a disk, never a tmpfs.
pub(crate) fn temporary() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// A file of that size with all its blocks written.
pub(crate) fn image(dir: &Path, mib: usize) -> PathBuf {
    let path = dir.join("image");
    let mut file = File::create(&path).expect("an image");
    for _ in 0..mib {
        file.write_all(&[0; 1 << 20]).expect("space for an image");
    }
    file.sync_all().expect("an image on disk");
    path
}

/// A mounted file system on a loop device. The fields go in this order.
pub(crate) struct FileSystem {
    pub(crate) mount: Option<Mount>,
    pub(crate) device: LoopDevice,
    pub(crate) dir: WorkDir,
}

impl FileSystem {
    /// Makes and mounts one; `mkfs` gets `args`.
    pub(crate) fn new(kind: &str, mib: usize, args: &[&str]) -> FileSystem {
        let mut made = Self::unmounted(kind, mib, args);
        made.mount(kind, "noatime");
        made
    }

    /// Makes one without mounting it.
    pub(crate) fn unmounted(kind: &str, mib: usize, args: &[&str]) -> FileSystem {
        Self::on_device(kind, mib, args, LoopOptions::default())
    }

    /// Makes one on such a device without mounting it.
    pub(crate) fn on_device(
        kind: &str,
        mib: usize,
        args: &[&str],
        options: LoopOptions,
    ) -> FileSystem {
        // Removes what killed labs left anywhere. A file system below a FUSE mount whose process
        // is dead makes mkfs.btrfs fail for every other device.
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| drop(sweep(temporary()).expect("swept")));
        let dir = WorkDir::create(temporary()).expect("a work directory");
        let device = LoopDevice::attach(&image(dir.path(), mib), options).expect("a loop device");
        let tool = format!("mkfs.{kind}");
        run_on_device(&tool, args, device.path(), |code| code == 0).expect("made");
        FileSystem { mount: None, device, dir }
    }

    pub(crate) fn mount(&mut self, kind: &str, options: &str) {
        let target = self.dir.path().join("mnt");
        fs::create_dir_all(&target).expect("a mount point");
        self.mount = Some(Mount::new(self.device.path(), &target, kind, options).expect("mounted"));
    }

    pub(crate) fn target(&self) -> &Path {
        self.mount.as_ref().expect("mounted").target()
    }

    /// Takes it all back and checks that each step works.
    pub(crate) fn remove(mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount().expect("unmounted");
        }
        self.device.detach().expect("detached");
        self.dir.remove().expect("removed");
    }
}
