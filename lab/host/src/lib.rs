//! The host under a lab: loop devices, mounts, work directories, counters of block devices, the
//! kernel's trace of their requests, signals to processes that a lab has started, and processes
//! that run beside a measurement; and the ways of writing a file that labs compare with those of
//! the log.
//!
//! [`LabFile`] writes a file of [`inkstone_io`] by mappings and C streams too; [`LabEngine`] is the
//! one stack of engines: the caller's thread, io_uring, Linux AIO. A program that embeds the log
//! compiles none of this.
//!
//! *Owns*: everything that a lab makes on a machine and must not leave behind. [`LoopDevice`],
//! [`Mount`], [`WorkDir`], [`Tracer`] and [`Helper`] remove what
//! they made when they are dropped. What a killed process left is found again by name and lock:
//! [`sweep`], [`sweep_trace_instances`]. *May not touch*: anything that other programs made, and
//! the log: it knows files, devices and sectors.
//!
//! Most of it needs root. What does not: [`block_stat`], [`monotonic_ns`], [`mount_points`],
//! [`WorkDir`], [`loops_backed_under`], [`raw_terminal`], [`LabFile`], [`LabEngine`],
//! [`ExtentMap`].

mod apart;
mod atomic;
mod attributes;
mod child;
mod counters;
mod engine;
mod extents;
mod fallocate;
mod fdinfo;
mod file_handle;
mod file_system;
mod lab_file;
mod layout;
mod layout_btrfs;
mod layout_disk;
mod layout_ext4;
mod loop_device;
mod maker;
mod mapping;
mod mount;
mod patience;
mod plain_file;
mod process;
mod ring_page;
mod seal;
mod served_mount;
mod stream;
mod terminal;
mod trace;
mod trace_decode;
mod trace_event;
mod trace_format;
mod tracefs;
mod workdir;

pub use apart::{Network, spawn_apart};
pub use atomic::atomic_write_bytes;
pub use attributes::attributes;
pub use child::{
    ForkedChild, Only, Refusal, alone, close_standard_descriptors, fork_child, give_up_root,
    give_up_root_on_this_thread, in_forked_child, not_run, refuse, without_descriptors,
};
pub use counters::{
    BlockStat, Usage, block_stat, monotonic_ns, own_threads, process_usage, thread_usage,
};
pub use engine::kind::EngineKind;
pub use engine::request::{Completion, Operation, Request};
pub use engine::{LabEngine, MAX_DEPTH};
pub use extents::{Coverage, Extent, ExtentMap, ExtentState};
pub use fallocate::FallocateMode;
pub use fdinfo::OpenedAs;
pub use file_handle::file_handle;
pub use file_system::{FsKind, find_tool, run_on_device};
pub use inkstone_io::{DeviceNumber, MountPoint, NotADeviceNumber, mount_points};
pub use lab_file::{Advice, LabDirectory, LabFile};
pub use layout::{LogPlace, log_place};
pub use layout_btrfs::{BtrfsDevice, btrfs_devices};
pub use loop_device::{LoopDevice, LoopOptions, loops_backed_under};
pub use mount::{Mount, mounts_under, unmount};
pub use patience::Patience;
pub use plain_file::{open_plain, read_text};
pub use process::{Helper, Signal, end_with_parent, has_ended, signal_group, signal_process, spin};
pub use seal::{living_beside, seal};
pub use served_mount::ServedMount;

pub use terminal::raw_terminal;
pub use trace::{Trace, Tracer};
pub use trace_event::{Call, Comm, RequestFlags, RequestOp, TraceEvent, TraceKind};
pub use tracefs::{can_trace, sweep_trace_instances};
pub use workdir::{WorkDir, sweep};
