//! What a reader should know before believing a run, each with its cure.
//!
//! *Owns*: the catalogue and its limits. *May not touch*: the figures; a warning changes none.

use std::time::Duration;

use inkstone_host::block_stat;
use inkstone_io::{Barriers, Capabilities};

use crate::result::{Table, Warning, Way};
use crate::writing::Writing;

/// A cache flush or FUA write that is faster than this did not reach a medium: a system call alone
/// takes about a microsecond, the fastest persistent-memory and Optane devices take five to ten.
const FLUSH_NS_MIN: u64 = 5_000;
/// How long the device is watched before the run.
const WATCH: Duration = Duration::from_millis(250);
/// Requests per second by others above which the device is called busy.
const BUSY_PER_S: u64 = 200;

fn warning(name: &str, text: impl Into<String>, cure: &str) -> Warning {
    Warning { name: name.into(), text: text.into(), cure: cure.into() }
}

/// Warnings about the place. Watches the device for a quarter of a second.
pub fn of_place(capabilities: &Capabilities) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mount = &capabilities.mount;
    if let Some(memory) = capabilities.memory_below() {
        warnings.push(warning(
            "memory",
            format!("{memory} is memory: nothing written here is durable, whatever the call says"),
            "run the lab in a directory on the disk that you want to measure",
        ));
    }
    if matches!(mount.file_system.as_str(), "overlay" | "fuse" | "fuseblk" | "9p" | "virtiofs") {
        warnings.push(warning(
            "stacked",
            format!(
                "{} passes files on to another file system, which is not visible here",
                mount.file_system
            ),
            "run the lab on the volume itself (in a container: on a mounted volume, not in the \
             image)",
        ));
    }
    if matches!(mount.file_system.as_str(), "nfs" | "nfs4" | "cifs" | "smb3" | "ceph") {
        warnings.push(warning(
            "network",
            format!(
                "{} is on the network: a sync is as durable as its server makes it",
                mount.file_system
            ),
            "ask the server's operator what a commit means there (sync or async export)",
        ));
    }
    if mount.barriers == Barriers::Off {
        warnings.push(warning(
            "no-barriers",
            "the mount has barriers off: a sync does not flush the device's cache",
            "mount with barrier=1, unless the device's cache survives a power loss",
        ));
    }
    if let Some(why) = capabilities.buffered_loop_below() {
        warnings.push(warning("buffered-loop", why, "attach it with `losetup --direct-io=on`"));
    }
    if mount.options.is_none() {
        warnings.push(warning(
            "barriers-not-known",
            "the mount's options are unknown, and so is whether a sync flushes the device's cache",
            "run the lab where /proc/self/mountinfo can be read and shows this mount",
        ));
    }
    warnings.extend(device_busy(capabilities));
    warnings
}

/// The processors' time in programs: the kernel's own threads work for the lab too, so only time
/// outside the kernel can be told apart.
#[derive(Debug)]
pub(crate) struct Used {
    user_ns: u64,
    all_ns: u64,
    own_ns: u64,
}

/// Share of the processors that other programs may use while the lab measures.
const OTHERS_PERCENT_MAX: u64 = 15;

impl Used {
    /// Until now.
    pub(crate) fn now() -> Option<Self> {
        // USER_HZ is 100 on every architecture of ours.
        const TICK_NS: u64 = 10_000_000;
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let words = stat.lines().next()?.split_whitespace().skip(1);
        let ticks: Vec<u64> = words.filter_map(|t| t.parse().ok()).take(8).collect();
        let user = ticks.iter().take(2).sum::<u64>();
        let own_ns = inkstone_host::process_usage().user_ns;
        Some(Self { user_ns: user * TICK_NS, all_ns: ticks.iter().sum::<u64>() * TICK_NS, own_ns })
    }

    /// The warning, if others used too much since then.
    pub(crate) fn others_since(&self, before: &Self) -> Option<Warning> {
        let others_ns = (self.user_ns - before.user_ns).saturating_sub(self.own_ns - before.own_ns);
        let percent = 100 * others_ns / (self.all_ns - before.all_ns).max(1);
        (percent > OTHERS_PERCENT_MAX).then(|| {
            let text = format!("other programs used {percent}% of the CPUs while the lab measured");
            warning(
                "cpu-busy",
                text,
                "stop the other load: no statement about time is judged beside it",
            )
        })
    }
}

/// Watches the device for a moment in which the lab itself does nothing.
fn device_busy(capabilities: &Capabilities) -> Option<Warning> {
    let device = capabilities.device.as_ref()?;
    let before = block_stat(device.number).ok()?;
    std::thread::sleep(WATCH);
    let span = block_stat(device.number).ok()?.since(&before);
    let per_s = (span.reads + span.writes) * 1000 / WATCH.as_millis() as u64;
    (per_s > BUSY_PER_S).then(|| {
        warning(
            "device-busy",
            format!(
                "{} served {per_s} requests a second for other processes before the run",
                device.name
            ),
            "stop the other load: no statement about time is judged beside it",
        )
    })
}

/// Warnings about the figures.
pub fn of_table(table: &Table) -> Option<Warning> {
    let (way, took_ns) = too_fast(table)?;
    Some(warning(
        OF_A_RUN,
        format!(
            "{way}: a sync takes {took_ns} ns, and no medium behind a volatile cache is that fast"
        ),
        "check for a RAM disk, a hypervisor with cache=unsafe, or barriers switched off below",
    ))
}

/// A way that claims durability and whose sync is faster than [`FLUSH_NS_MIN`], on a device that
/// reports a volatile cache; with its median. Persistent memory (`pmem0`) is its own medium, and
/// may be that fast.
pub(crate) fn too_fast(table: &Table) -> Option<(&str, u64)> {
    let volatile = table.place.write_cache.as_deref() == Some("write back");
    let is_memory_that_keeps =
        table.place.device.as_deref().is_some_and(|device| device.starts_with("pmem"));
    if !volatile || is_memory_that_keeps {
        return None;
    }
    let took = |way: &Way| {
        way.file_bytes?;
        let writing = Writing::named(&way.name).ok()?;
        let carries = writing.strategy.durability.with_the_write();
        let write = || way.figure("write p50").filter(|_| carries);
        way.figure("sync p50").or_else(write).map(|took_ns| took_ns as u64)
    };
    table.ways.iter().find_map(|way| {
        took(way).filter(|took_ns| *took_ns < FLUSH_NS_MIN).map(|took| (way.name.as_str(), took))
    })
}

/// Of a single run; the other warnings are about the machine and the place.
const OF_A_RUN: &str = "flush-too-fast";
/// Warnings that leave the compared rounds as they are: about clean-up and other parts. Other load
/// is none of them: it may slow one of two ways more than the other, in every round.
const HARMLESS: [&str; 3] = ["swept", "left-out", "part-failed"];

/// Whether it is about what was measured in the whole run: not a single table, not clean-up.
pub(crate) fn is_doubt(warning: &Warning) -> bool {
    let name = warning.name.as_str();
    name != OF_A_RUN && !HARMLESS.contains(&name)
}

/// The first of a result's warnings that forbids an answer about this run.
pub(crate) fn forbidding(table: &Table, warnings: &[Warning]) -> Option<Warning> {
    let of_place = warnings.iter().filter(|warning| warning.name != OF_A_RUN).cloned();
    let mut all = of_place.chain(of_table(table));
    all.find(|warning| !HARMLESS.contains(&warning.name.as_str()))
}
