//! The machine, as the result describes it.
//!
//! *Owns*: reading it from /proc and /sys. *May not touch*: disks.

use std::fs;

use inkstone_host::can_trace;
use inkstone_io::is_root;

use crate::result::Machine;

/// The machine that this process runs on. Unknown fields are empty.
pub fn machine() -> Machine {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = text("/proc/sys/kernel/osrelease");
    let version = text("/proc/sys/kernel/version");
    let field = |file: &str, name: &str| {
        let line = file.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory_kib = field(&text("/proc/meminfo"), "MemTotal")
        .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    Machine {
        kernel: format!("{release} {version}"),
        cpu: field(&text("/proc/cpuinfo"), "model name").unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        root: is_root(),
        trace_refused: can_trace().err(),
    }
}
