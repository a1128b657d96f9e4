//! Processors that are taken away from everybody else now and then, as the host of a virtual
//! machine takes them from its guests.
//!
//! *Owns*: a thread of real-time priority for each processor, and when it runs. *May not touch*:
//! other processes, and what the process is measured for: a process of its own does nothing else.

use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{Error, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long a processor is gone: what was seen on machines whose hosts do this
/// (docs/performance.md).
const STOP: Duration = Duration::from_micros(3500);

/// Takes each processor that this process may use away, for 3.5 ms at a time and `percent` of the
/// time, at random moments. `ready` is called when all threads have their priority. It does not
/// return.
///
/// # Errors
/// The kernel refuses the priority: it takes root, or `CAP_SYS_NICE`.
pub fn steal(percent: u32, ready: impl FnOnce()) -> Result<()> {
    if !(1..=50).contains(&percent) {
        return Err(Error::invalid(
            "steal",
            "the processors",
            "from 1 to 50 percent can be stolen",
        ));
    }
    let usable = sched_getaffinity(None)
        .map_err(|error| Error::new("sched_getaffinity", "this process", error))?;
    let processors = (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu));
    become_real_time()?;
    // New threads have the priority of the thread that starts them.
    let thieves: Vec<_> =
        processors.map(|cpu| thread::spawn(move || steal_one(cpu, percent))).collect();
    ready();
    for thief in thieves {
        thief.join().unwrap_or_else(|_| {
            Err(Error::invalid(
                "steal",
                "the processors",
                "a thread that takes one away has panicked",
            ))
        })?;
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

    #[test]
    fn no_more_than_half_can_be_stolen() {
        for percent in [0, 51, u32::MAX] {
            let error =
                steal(percent, || panic!("it must not begin")).expect_err("too much or too little");
            assert!(error.to_string().contains("from 1 to 50"), "{error}");
        }
    }
}
