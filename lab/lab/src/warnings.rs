//! What a reader should know before believing a run, each with its cure.
//!
//! *Owns*: the catalogue and its limits. *May not touch*: the figures; a warning changes none.

use std::time::Duration;

use inkstone_host::{BlockStat, block_stat};
use inkstone_io::{Barriers, Capabilities};

use crate::result::{Machine, Round, Table, Warning, Way};
use crate::stage::DISK_FULL;
use crate::stats::quantile;
use crate::writing::Writing;

/// A cache flush or FUA write that is faster than this did not reach a medium: a system call alone
/// takes about a microsecond, the fastest persistent-memory and Optane devices take five to ten.
const FLUSH_NS_MIN: u64 = 5_000;
/// With fewer operations than this, tail percentiles are single values.
const COMMITS_MIN: u64 = 100;
/// Rounds of the baseline that differ by more than this factor between their quartiles make
/// intervals wide.
const SPREAD_MAX: f64 = 1.5;
/// How long the device is watched before the run.
const WATCH: Duration = Duration::from_millis(250);
/// Share of all CPUs in use by others above which they are called busy.
const CPU_PERCENT_MAX: u64 = 40;
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
    warnings.extend(busy(capabilities));
    warnings
}

/// Watches the device and the CPUs for a moment in which the lab itself does nothing.
fn busy(capabilities: &Capabilities) -> Vec<Warning> {
    let number = capabilities.device.as_ref().map(|device| device.number);
    let stat = || block_stat(number?).ok();
    let (cpu_before, before) = (cpu_times(), stat());
    std::thread::sleep(WATCH);
    let (cpu_after, after) = (cpu_times(), stat());
    let device = before
        .zip(after)
        .and_then(|(before, after)| device_busy(capabilities, &after.since(&before)));
    let cpu = cpu_before.zip(cpu_after).and_then(|(before, after)| cpu_busy(before, after));
    device.into_iter().chain(cpu).collect()
}

/// (busy, all) ticks of all CPUs since the start.
fn cpu_times() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
    let all: u64 = ticks.iter().take(8).sum();
    // The fourth and fifth number are idle time and time waiting for I/O.
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Some((all - idle, all))
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
                "stop the other load: no claim about time is judged beside it",
            )
        })
    }
}

fn cpu_busy(
    (busy_before, all_before): (u64, u64),
    (busy_after, all_after): (u64, u64),
) -> Option<Warning> {
    let all = all_after.checked_sub(all_before).filter(|&all| all > 0)?;
    let percent = busy_after.saturating_sub(busy_before) * 100 / all;
    (percent > CPU_PERCENT_MAX).then(|| {
        warning(
            "cpu-busy",
            format!(
                "other processes used {percent}% of the CPUs before the run, so commits wait for a \
                 CPU too"
            ),
            "stop the other load; it affects medians less than means and tails",
        )
    })
}

fn device_busy(capabilities: &Capabilities, span: &BlockStat) -> Option<Warning> {
    let device = capabilities.device.as_ref()?;
    let requests = span.reads + span.writes;
    let per_s = requests * 1000 / WATCH.as_millis() as u64;
    (per_s > BUSY_PER_S).then(|| {
        warning(
            "device-busy",
            format!(
                "{} served {per_s} requests a second for other processes before the run",
                device.name
            ),
            "stop the other load, or use only the ratios, which are paired round by round",
        )
    })
}

/// Warnings about the machine.
pub fn of_machine(machine: &Machine) -> Vec<Warning> {
    let slow = machine.governor.as_deref() == Some("powersave");
    let text = "the CPU's governor is powersave: the CPU slows down in short waits";
    let cure = "set the governor to performance (cpupower frequency-set -g performance)";
    slow.then(|| warning("powersave", text, cure)).into_iter().collect()
}

/// The warning that makes a run fail and that is shown above the tables.
pub const DISK_FULL_WARNING: &str = "disk-full";

/// Warnings about the figures.
pub fn of_table(table: &Table) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let name = name_of(table);
    let is_writing = |way: &&Way| way.file_bytes.is_some() && way.is_measured();
    let commits = |way: &Way| way.latency.as_ref().map_or(0, |latency| latency.count);
    let few = table.ways.iter().filter(is_writing).filter(|way| commits(way) < COMMITS_MIN);
    let few: Vec<&str> = few.map(|way| way.name.as_str()).collect();
    if !few.is_empty() {
        let few = few.join(", ");
        warnings.push(warning(
            "few-commits",
            format!(
                "{name}: fewer than {COMMITS_MIN} commits each: {few}; their p99 is a single value"
            ),
            "measure more: larger files, or more rounds",
        ));
    }
    if let Some((way, took_ns)) = too_fast(table) {
        warnings.push(warning(
            "flush-too-fast",
            format!(
                "{way}: a sync takes {took_ns} ns, and no medium behind a volatile cache is \
             that fast"
            ),
            "check for a RAM disk, a hypervisor with cache=unsafe, or barriers switched off below",
        ));
    }
    warnings.extend(spread(table, &name));
    let reasons = table.ways.iter().filter_map(|way| way.missing.as_ref());
    let full = reasons.filter(|reason| reason.starts_with(DISK_FULL)).count();
    if full > 0 {
        warnings.push(warning(
            DISK_FULL_WARNING,
            format!(
                "{name}: {full} of {} ways were not measured, because the disk filled up during \
                 the run",
                table.ways.len()
            ),
            "free some space, or measure in another directory; other processes may have filled \
             the disk too",
        ));
    }
    warnings
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

/// Warnings about a single run; the others are about the machine and the place.
const OF_A_RUN: [&str; 3] = ["few-commits", "noisy", "flush-too-fast"];
/// Warnings that leave the compared rounds as they are: about clean-up, other parts, or a
/// percentile of a single value; and that of noise, which the intervals have in them. Other load is
/// none of them: it may slow one of two ways more than the other, in every round.
const HARMLESS: [&str; 10] = [
    "swept",
    "left-out",
    "cut-short",
    "part-failed",
    "no-trace",
    "no-root",
    "no-atlas",
    "few-commits",
    "noisy",
    "powersave",
];

/// Whether it is about what was measured in the whole run: not a single table, not clean-up.
pub(crate) fn is_doubt(warning: &Warning) -> bool {
    let name = warning.name.as_str();
    !OF_A_RUN.contains(&name) && !HARMLESS.contains(&name)
}

/// The first of a result's warnings that forbids an answer about this run.
pub(crate) fn forbidding(table: &Table, warnings: &[Warning]) -> Option<Warning> {
    let is_of_a_run = |warning: &&Warning| OF_A_RUN.contains(&warning.name.as_str());
    let of_place = warnings.iter().filter(|warning| !is_of_a_run(warning)).cloned();
    let mut all = of_place.chain(of_table(table));
    all.find(|warning| !HARMLESS.contains(&warning.name.as_str()))
}

/// The table, with its place if that is not the directory of the others: `e2 on ext4, direct loop`.
fn name_of(table: &Table) -> String {
    match (table.name.as_str(), table.place.name.as_str()) {
        (name, "" | ".") => name.to_owned(),
        ("", place) => place.to_owned(),
        (name, place) => format!("{name} on {place}"),
    }
}

fn spread(table: &Table, name: &str) -> Option<Warning> {
    let base = table.way(table.baseline.as_ref()?).filter(|way| way.file_bytes.is_some())?;
    let per_commit: Vec<f64> = base.rounds.iter().map(Round::per_commit_ns).collect();
    let (low, high) = (quantile(&per_commit, 0.25)?, quantile(&per_commit, 0.75)?);
    (per_commit.len() >= 4 && high > low * SPREAD_MAX).then(|| {
        let times = high / low;
        warning(
            "noisy",
            format!(
                "{name}: rounds of its baseline differ by {times:.1} times between their quartiles"
            ),
            "stop other load, or take more rounds: more rounds make intervals narrower",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{run, way};
    use crate::result::DurableFinding::NotClaimed;

    #[test]
    fn a_disk_that_filled_up_is_told_and_other_reasons_are_not() {
        let mut full = run(["new fsync", "reuse fsync", "zeros fsync"]
            .map(|name| way(name, 100.0, NotClaimed))
            .to_vec());
        full.ways[1].missing = Some("EOPNOTSUPP".into());
        assert!(of_table(&full).iter().all(|warning| warning.name != DISK_FULL_WARNING));
        let error = inkstone_io::Error::new("pwrite", "/x", std::io::Error::from_raw_os_error(28));
        full.ways[2].missing = Some(crate::stage::WayError::from(error).reason());
        let said = of_table(&full);
        let warning =
            said.iter().find(|warning| warning.name == DISK_FULL_WARNING).expect("a warning");
        assert!(warning.text.contains("1 of 3 ways were not measured"), "{warning:?}");
    }

    #[test]
    fn a_noisy_run_is_named_with_its_place() {
        let mut noisy = run(vec![way("new fsync", 100.0, NotClaimed)]);
        for (number, round) in noisy.ways[0].rounds.iter_mut().enumerate() {
            round.total_ns *= 1 + number as u64;
        }
        noisy.name = "e2".into();
        for (place, wanted) in [(".", "e2: "), ("ext4, direct loop", "e2 on ext4, direct loop: ")] {
            noisy.place.name = place.into();
            let said = of_table(&noisy);
            let text =
                said.iter().find(|warning| warning.name == "noisy").map(|warning| &warning.text);
            assert!(text.is_some_and(|text| text.starts_with(wanted)), "{said:?}");
        }
    }
}
