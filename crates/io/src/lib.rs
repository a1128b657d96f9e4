// *Owns*: aligned buffers, preparing the blocks of a file, reading, writing and syncing it at
// offsets, a pool of threads for blocking calls, directories, and what a file system and a device
// can do. *May not touch*: records, LSNs, groups, segments. It knows files and bytes, nothing about
// a log. The ways of writing that only labs measure are in `inkstone-host`.

//! What an Inkstone log needs of the system: its system calls, and the `unsafe` code for them.
//! Programs that use a log need `inkstone` and not this.
//!
//! The log is written over the traits in [`seam`]: a [`Directory`] of [`File`]s with plain calls,
//! and its [`Lock`]. [`OsDirectory`] implements them over Linux. A simulated disk can implement the
//! same, and the code above them runs unchanged: it holds an [`AnyDirectory`].
//!
//! Every error names the operation, the path, the offset if there is one, and often what to do.
//! [`transfer`] handles `EINTR` and short transfers for all calls.

mod any;
mod begun;
mod bell;
mod buffer;
mod capability;
mod clock;
mod command;
mod descriptor;
mod device_number;
mod directory;
mod directory_lock;
mod error;
pub mod fiemap;
mod file;
mod file_ages;
mod fork;
mod growing;
mod held;
mod likeness;
mod limits;
mod lock;
mod lock_table;
mod mount_table;
#[cfg(not(target_os = "linux"))]
mod no_shared_page;
mod pool;
mod prepare;
#[cfg(target_os = "linux")]
mod recent;
mod residency;
pub mod seam;
#[cfg(target_os = "linux")]
mod shared_page;
mod size_signal;
mod strategy;
mod sys;
#[cfg(feature = "text-log")]
mod text_log;
pub mod transfer;
mod yielding;

pub use any::{AnyDirectory, AnyLock, DirectoryCalls, LockWatch};
pub use begun::start_thread;
pub use bell::Bell;
pub use buffer::{AlignedBuf, BLOCK_BYTES};
pub use capability::{
    Barriers, Capabilities, CopyOnWrite, DeviceFacts, DioAlignment, MountFacts, free_bytes, is_root,
};
pub use clock::{CoarseInstant, TICK, since_start};
pub use command::ignored::{WaitingSignals, is_ignored};
pub use command::input::{Got, Input, InputStop, has_reader, wait_to_read, wait_to_write};
pub use device_number::{DeviceNumber, NotADeviceNumber};
pub use directory::{DirectoryIdentity, FILE_MODE, OsDirectory};
pub use directory_lock::DirectoryLock;
pub use error::{Error, MORE_THREADS, Result, is_not_here};
pub use file::OsFile;
pub use file_ages::{KeptByAge, kept_by_age};
pub use fork::{ForkMark, LeftInChild};
pub use growing::{GrowingBuf, GrownBytes};
pub use held::OwnName;
pub use limits::{descriptors_max, file_bytes_max};
pub use lock::OsLock;
pub use mount_table::{MountPoint, mount_points};
#[cfg(not(target_os = "linux"))]
pub use no_shared_page::{PAGE_WORDS, SharedPage, SharedPageReader};
pub use pool::{Done, Job, Pool};
pub use residency::Residency;
pub use seam::{Directory, File, FileFacts, Lock, OpenFile, Persist, SyncKind};
#[cfg(target_os = "linux")]
pub use shared_page::{PAGE_WORDS, SharedPage, SharedPageReader};
pub use size_signal::NoSizeSignal;
pub use strategy::{Access, Durability, NamedChoice, Preparation, Reuse, Strategy};
#[cfg(feature = "text-log")]
pub use text_log::append_file::{AppendFacts, AppendFile, Named, Owner, let_others_go_first};
#[cfg(all(feature = "text-log", target_os = "linux"))]
pub use text_log::memory::{STAGE_WORDS, StageBuffer, StageLayout, buffers_in_memory};
#[cfg(all(feature = "text-log", target_os = "linux"))]
pub use text_log::stage_file::StageFile;
#[cfg(feature = "text-log")]
pub use text_log::stderr::say;
#[cfg(feature = "text-log")]
pub use text_log::writer_lock::{Taken, WriterLock};
pub use yielding::AdaptiveYielding;
