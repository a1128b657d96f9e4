//! Processors that a process does not have: all its threads on one CPU, half a CPU for all of them,
//! CPUs that are taken away now and then, as the host of a virtual machine takes them.
//!
//! *Owns*: the affinity and the control group of this process, given back when it ends; a thread of
//! real-time priority for each CPU that is taken away. *May not touch*: other processes, and limits
//! that were there before.
//!
//! A killed lab leaves an empty control group at most; the next [`HalfCpu::begin`] removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{Error, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::counters::own_threads;
use crate::maker::{maker, may_live, next_name};

/// All threads of this process on one CPU, those that they start meanwhile too. Dropping it gives
/// each thread back what it had.
#[derive(Debug)]
pub struct OneCpu {
    /// What each thread had.
    before: Vec<(Pid, CpuSet)>,
    /// For threads that were started meanwhile.
    of_caller: CpuSet,
}

impl OneCpu {
    /// Begins: on the first CPU that the calling thread may use.
    ///
    /// # Errors
    /// The kernel refuses; then nothing has changed.
    pub fn begin() -> Result<Self> {
        let of_caller = affinity(None)?;
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| of_caller.is_set(cpu));
        let mut one = CpuSet::new();
        one.set(first.unwrap_or(0));
        // What was changed is given back if a later thread refuses.
        let mut bound = Self { before: Vec::new(), of_caller };
        // Threads that are started meanwhile by one that is not bound yet are found by the second
        // look.
        let second_look = std::iter::once_with(threads).flatten();
        for thread in threads().into_iter().chain(second_look) {
            let had = match affinity(Some(thread)) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                had => had?,
            };
            if had != one {
                set(thread, &one)?;
                bound.before.push((thread, had));
            }
        }
        Ok(bound)
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        for thread in threads() {
            let had = self.before.iter().find(|(known, _)| *known == thread).map(|(_, had)| had);
            // A thread that has ended meanwhile needs nothing.
            let _ = set(thread, had.unwrap_or(&self.of_caller));
        }
    }
}

fn threads() -> Vec<Pid> {
    let numbers = own_threads().into_iter().filter_map(|number| i32::try_from(number).ok());
    numbers.filter_map(Pid::from_raw).collect()
}

fn affinity(thread: Option<Pid>) -> Result<CpuSet> {
    sched_getaffinity(thread)
        .map_err(|error| Error::new("sched_getaffinity", "this process", error))
}

/// A thread that has ended meanwhile is fine.
fn set(thread: Pid, to: &CpuSet) -> Result<()> {
    match sched_setaffinity(Some(thread), to) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(Error::new("sched_setaffinity", "this process", error)),
    }
}

/// The name of our groups begins so.
const PREFIX: &str = "inkstone-lab-";
/// In each period the process may run so long, on all CPUs together.
const QUOTA_US: u32 = 50_000;
const PERIOD_US: u32 = 100_000;

/// This process with half a CPU, by a control group (v1 or v2). Dropping it brings the process back
/// to where it was.
#[derive(Debug)]
pub struct HalfCpu {
    group: PathBuf,
    /// The file of the group where the process was.
    home: PathBuf,
}

impl HalfCpu {
    /// Begins: makes a group beside all others and goes into it. It takes root.
    ///
    /// # Errors
    /// No control groups for processor time are mounted, or they refuse; then the process is where
    /// it was.
    pub fn begin() -> Result<Self> {
        let place = Path::new("/sys/fs/cgroup");
        let own = fs::read_to_string("/proc/self/cgroup")
            .map_err(|error| Error::new("read", "/proc/self/cgroup", error))?;
        let refused = |why| Error::invalid("limit", "/proc/self/cgroup", why);
        let (root, home, limits) = if let Some(home) = v1_home(&own) {
            let quota = ("cpu.cfs_quota_us", QUOTA_US.to_string());
            (place.join("cpu"), home, vec![("cpu.cfs_period_us", PERIOD_US.to_string()), quota])
        } else if let Some(home) = v2_home(&own) {
            // It may be on already; if it is refused, so is the limit below.
            let _ = fs::write(place.join("cgroup.subtree_control"), "+cpu");
            (place.to_path_buf(), home, vec![("cpu.max", format!("{QUOTA_US} {PERIOD_US}"))])
        } else {
            return Err(refused("it names no group for processor time"));
        };
        let home = root.join(home.trim_start_matches('/')).join("cgroup.procs");
        if !home.exists() {
            return Err(refused("the group where this process is cannot be seen from here"));
        }
        sweep(&root);
        let group = root.join(next_name(PREFIX));
        fs::create_dir(&group).map_err(|error| Error::new("create", &group, error))?;
        let half = Self { group, home };
        for (name, value) in limits {
            put(&half.group.join(name), &value)?;
        }
        put(&half.group.join("cgroup.procs"), &std::process::id().to_string())?;
        Ok(half)
    }
}

impl Drop for HalfCpu {
    fn drop(&mut self) {
        // Where this fails the process stays limited: a lab sees it in its figures, and can do
        // nothing about it.
        let _ = put(&self.home, &std::process::id().to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

fn put(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).map_err(|error| Error::new("write", file, error))
}

/// Removes what killed labs left. One that lives may have made its group and not be in it yet; a
/// group with a process in it refuses to be removed.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if maker(&entry.file_name(), PREFIX).is_some_and(|process| !may_live(process)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Where a process is among the groups of v1 that limit processor time, if there are any.
fn v1_home(own: &str) -> Option<&str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let controllers = parts.nth(1)?;
        controllers.split(',').any(|name| name == "cpu").then(|| parts.next())?
    })
}

/// Where it is in the one tree of v2.
fn v2_home(own: &str) -> Option<&str> {
    own.lines().find_map(|line| line.strip_prefix("0::"))
}

/// How long a processor is gone: what was seen on machines whose hosts do this.
const STOP: Duration = Duration::from_micros(3500);

/// Takes each processor that this process may use away, for 3.5 ms at a time and `percent` of the
/// time, at random moments. `ready` is called when all threads have their priority. It does not
/// return.
///
/// # Errors
/// The kernel refuses the priority: it takes root, or `CAP_SYS_NICE`.
pub fn steal(percent: u32, ready: impl FnOnce()) -> Result<()> {
    let refused = |why| Error::invalid("steal", "the processors", why);
    if !(1..=50).contains(&percent) {
        return Err(refused("from 1 to 50 percent can be stolen"));
    }
    let usable = affinity(None)?;
    let processors = (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu));
    become_real_time()?;
    // New threads have the priority of the thread that starts them.
    let thieves: Vec<_> =
        processors.map(|cpu| thread::spawn(move || steal_one(cpu, percent))).collect();
    ready();
    for thief in thieves {
        thief.join().map_err(|_| refused("a thread that takes one away has panicked"))??;
    }
    Ok(())
}

fn steal_one(cpu: usize, percent: u32) -> Result<()> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one)
        .map_err(|error| Error::new("sched_setaffinity", "this process", error))?;
    let mean = STOP.mul_f64(f64::from(100 - percent) / f64::from(percent));
    let mut random = fastrand::Rng::with_seed(cpu as u64);
    loop {
        // The time between events that come at random.
        thread::sleep(mean.mul_f64(-(1.0 - random.f64()).ln()));
        let begun = Instant::now();
        while begun.elapsed() < STOP {
            std::hint::spin_loop();
        }
    }
}

fn become_real_time() -> Result<()> {
    // SAFETY: all bytes zero are a value of this structure of integers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the pointer is to a value that outlives the call; 0 names the calling thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if answer == 0 {
        return Ok(());
    }
    Err(Error::new("sched_setscheduler", "this process", std::io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn all_threads_are_on_one_cpu_until_it_ends() {
        // In a child: other tests of this process are not to be bound.
        let answer = crate::in_forked_child(|| {
            let before = affinity(None).expect("an affinity");
            let (tell, told) = channel::<()>();
            let waiting = std::thread::spawn(move || {
                let _ = told.recv();
                affinity(None).expect("an affinity")
            });
            let bound = OneCpu::begin().expect("the kernel lets a process bind itself");
            let started = std::thread::spawn(|| affinity(None).expect("an affinity").count());
            let one = threads()
                .into_iter()
                .all(|thread| affinity(Some(thread)).is_ok_and(|set| set.count() == 1));
            let inherits = started.join().expect("an end") == 1;
            drop(bound);
            drop(tell);
            let back = waiting.join().expect("an end") == before
                && affinity(None).expect("an affinity") == before;
            u8::from(one) | u8::from(inherits) << 1 | u8::from(back) << 2
        });
        assert_eq!(answer.expect("a child"), 0b111, "all bound, a new thread too, given back");
    }

    #[test]
    fn half_a_cpu_is_a_group_that_is_gone_afterwards() {
        let answer = crate::in_forked_child(|| {
            let own = || fs::read_to_string("/proc/self/cgroup").expect("a file");
            let before = own();
            let half = match HalfCpu::begin() {
                Ok(half) => half,
                Err(error) => {
                    eprintln!("NOT RUN: half_a_cpu_is_a_group_that_is_gone_afterwards: {error}");
                    return 7;
                }
            };
            let is_inside = own().contains(PREFIX);
            let group = half.group.clone();
            drop(half);
            u8::from(is_inside) | u8::from(own() == before) << 1 | u8::from(!group.exists()) << 2
        });
        assert_eq!(answer.expect("a child"), 0b111, "inside, back again, and nothing left");
    }

    #[test]
    fn the_place_of_a_process_is_read_from_both_versions() {
        let v1 = "9:name=systemd:/\n3:cpuset:/\n2:cpu,cpuacct:/some/group\n0::/\n";
        assert_eq!((v1_home(v1), v2_home(v1)), (Some("/some/group"), Some("/")));
        let v2 = "0::/user.slice\n";
        assert_eq!((v1_home(v2), v2_home(v2)), (None, Some("/user.slice")));
    }

    #[test]
    fn no_more_than_half_can_be_stolen() {
        for percent in [0, 51, u32::MAX] {
            let error = steal(percent, || panic!("it must not begin")).expect_err("out of range");
            assert!(error.to_string().contains("from 1 to 50"), "{error}");
        }
    }
}
