//! The disk of a node: a real kernel file system on a disk in memory whose power can be cut while
//! it is in use.
//!
//! *Owns*: the disk, its mount, the choice of what a power cut leaves. *May not touch*: the process
//! that uses it.
//!
//! A cut has three steps, and the caller kills the node between the first and the second:
//! [`NodeDisk::cut`] stops the disk between two requests, [`NodeDisk::release`] lets the kernel's
//! requests fail, so that the dead process can end, and [`NodeDisk::boot_after`] mounts what the
//! power cut has left. A living node never hears of a request that failed because of it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use inkstone_powerloss::kernel::disk::Disk;
use inkstone_powerloss::kernel::fault::{Access, Effect, Rule};
use inkstone_powerloss::kernel::image::Image;
use inkstone_powerloss::kernel::machine::{FsKind, Machine, Running};
use inkstone_powerloss::kernel::states::{Cut, Subset, choose};

/// Of so many crash states, of different kinds, one is taken.
const CHOSEN_FROM: usize = 16;

/// What a cut left on the disk, in words that repeat the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Sectors (or discards) that were not flushed.
    pub units: usize,
    /// How many of these were found afterwards.
    pub kept: usize,
    pub subset: Subset,
}

/// How a disk fails for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Writes fail with `EIO`, after so many that pass.
    WritesFail(u64),
    /// Flushes fail with `EIO`, after so many that pass, and what they were to make durable is
    /// lost.
    FlushesFail(u64),
    SlowFlushes(Duration),
}

/// A disk, its file system and its machine. Dropping it removes all.
pub struct NodeDisk {
    // The file system goes before the machine.
    running: Option<Running>,
    machine: Machine,
    disk: Disk,
    kind: FsKind,
    cut: Option<Cut>,
}

impl NodeDisk {
    /// A new file system, mounted, with an empty directory for a node that is durable there. Its
    /// work directory is in `parent`.
    pub fn make(parent: &Path, kind: FsKind) -> Result<Self, String> {
        let machine = Machine::new(parent)?;
        let disk = Disk::new(&kind.to_string(), Image::new(kind.disk_bytes()));
        machine.make(&disk, kind)?;
        let running = machine.boot(&disk, kind)?;
        let made = Self { running: Some(running), machine, disk, kind, cut: None };
        let directory = made.directory();
        let fail = |error: io::Error| format!("{}: {error}", directory.display());
        std::fs::create_dir(&directory).map_err(fail)?;
        // The node gets the directory: its name is not part of the test.
        for path in [directory.as_path(), made.machine.target()] {
            File::open(path).and_then(|file| file.sync_all()).map_err(fail)?;
        }
        Ok(made)
    }

    pub fn directory(&self) -> PathBuf {
        self.machine.target().join("node")
    }

    pub fn cut(&mut self) {
        self.cut = Some(self.disk.cut_power());
    }

    /// Lets waiting requests fail.
    pub fn release(&self) {
        self.disk.power_off();
    }

    /// Takes the file system away, as a power cut does, and mounts what the cut has left: a draw of
    /// `seed` from what was not flushed. The node has ended before.
    ///
    /// # Errors
    /// The outer one: this machine. The inner one: the file system does not come up again, which is
    /// a finding.
    pub fn boot_after(&mut self, seed: u64) -> Result<Result<Left, String>, String> {
        let cut = self.cut.take().ok_or("the power was not cut")?;
        if let Some(running) = self.running.take() {
            running.shut_down()?;
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut states = choose(&cut.units, CHOSEN_FROM, rng.u64(..));
        let (subset, kept) = states.swap_remove(rng.usize(..states.len()));
        let left = Left {
            units: cut.units.len(),
            kept: kept.iter().filter(|&&kept| kept).count(),
            subset,
        };
        self.disk.power_on(cut.state(&kept));
        match self.machine.boot(&self.disk, self.kind) {
            Ok(running) => self.running = Some(running),
            Err(why) => return Ok(Err(format!("{why} ({left:?})"))),
        }
        // A full disk is a trouble of its own; it ends with the power.
        let _ = self.free();
        Ok(Ok(left))
    }

    /// The disk fails in this way from now on.
    pub fn trouble(&self, trouble: Trouble) {
        let failing = |on, skip| Rule { skip, ..Rule::every(on, Effect::Error) };
        self.disk.change_faults(|faults| match trouble {
            Trouble::WritesFail(skip) => faults.rules.push(failing(Access::Write, skip)),
            Trouble::FlushesFail(skip) => {
                faults.rules.push(failing(Access::Flush, skip));
                faults.drops_cache = true;
            }
            Trouble::SlowFlushes(time) => {
                faults.rules.push(Rule::every(Access::Flush, Effect::Slow(time)));
            }
        });
    }

    /// The disk is sound again. Returns how many requests it had failed or slowed down.
    pub fn repair(&self) -> u64 {
        self.disk.change_faults(|faults| std::mem::take(faults).fired)
    }

    fn ballast(&self) -> PathBuf {
        self.machine.target().join("ballast")
    }

    /// Takes all the room that the file system has left.
    pub fn fill(&self) -> Result<(), String> {
        let mut at_bytes: u64 = 0;
        let mut step_bytes = self.kind.disk_bytes();
        while step_bytes >= 4096 {
            let mut tool = Command::new("fallocate");
            tool.args(["--offset", &at_bytes.to_string(), "--length", &step_bytes.to_string()]);
            let done = tool.arg(self.ballast()).stderr(std::process::Stdio::null()).status();
            match done.map_err(|error| format!("fallocate: {error}"))?.success() {
                true => at_bytes += step_bytes,
                false => step_bytes /= 4,
            }
        }
        Ok(())
    }

    pub fn free(&self) -> Result<(), String> {
        std::fs::remove_file(self.ballast())
            .map_err(|error| format!("{}: {error}", self.ballast().display()))
    }

    /// Ends all of it: nothing in it is in use any more.
    pub fn remove(mut self) -> Result<(), String> {
        if let Some(running) = self.running.take() {
            running.shut_down()?;
        }
        self.machine.remove()
    }
}
