//! The kernel's tracefs: where it is mounted, a mount of our own where it is not, our instances in
//! it, and sweeping those that killed processes left.
//!
//! *Owns*: `instances/inkstone-*`. Its own mount is in no directory: it ends with its descriptor.
//! *May not touch*: the machine's main trace buffer, other tools' instances, the machine's own
//! mount of tracefs.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};
use rustix::fs::Access;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::maker::{maker, may_live, next_name};
use crate::patience::Patience;

const USUAL_PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const TRACEFS_MAGIC: u64 = 0x7472_6163;
const INSTANCE_PREFIX: &str = "inkstone-";
/// The bit of `CAP_SYS_ADMIN`, which mounting needs.
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Longer than any file of tracefs that is read here.
const READ_BYTES: u64 = 64 * 1024;
/// How long an instance may stay busy after its files are closed.
const BUSY_FOR: Duration = Duration::from_secs(2);

/// A mounted tracefs. All mounts of it show the same instances.
struct Tracefs {
    path: PathBuf,
    /// The root of a mount of our own.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds tracefs or mounts it for this value alone.
    fn find() -> Result<Tracefs> {
        if let Some(path) = usual_place() {
            return Ok(Tracefs { path, _mount: None });
        }
        let mount = || {
            let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            // No options of tracefs itself: they would change every other mount of it too.
            fsconfig_create(&context)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let mount = mount().map_err(|error| {
            Error::new("mount", "tracefs", error).advise(
                "a trace needs root and a kernel with CONFIG_TRACING, outside of a container; \
                 before Linux 5.2 mount tracefs at /sys/kernel/tracing",
            )
        })?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Tracefs { path, _mount: Some(mount) })
    }
}

fn usual_place() -> Option<PathBuf> {
    USUAL_PLACES.iter().map(PathBuf::from).find(|path| {
        let kind = rustix::fs::statfs(path).map(|found| found.f_type.cast_unsigned());
        kind.is_ok_and(|kind| kind == TRACEFS_MAGIC)
    })
}

/// One instance of tracefs: buffers and switches of our own. Dropped, it is removed.
pub(super) struct Instance {
    path: PathBuf,
    is_removed: bool,
    _tracefs: Tracefs,
}

impl Instance {
    /// A new instance, switched off.
    pub(super) fn create() -> Result<Instance> {
        let tracefs = Tracefs::find()?;
        let path = tracefs.path.join("instances").join(next_name(INSTANCE_PREFIX));
        fs::create_dir(&path).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => "a trace needs root",
                io::ErrorKind::OutOfMemory => "trace buffers need a few MiB of memory for each CPU",
                _ => "a trace needs a kernel with trace instances (CONFIG_TRACING)",
            };
            Error::new("create a trace instance", &path, error).advise(advice)
        })?;
        let instance = Instance { path, is_removed: false, _tracefs: tracefs };
        instance.write("tracing_on", "0")?;
        Ok(instance)
    }

    /// A file of this instance.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file of this instance, with room for all of it in the first `read`: some of these
    /// files (`events/header_page`) return their beginning once and nothing after that, so the
    /// short first reads of `read_to_string` would lose the rest.
    pub(super) fn read(&self, name: &str) -> Result<String> {
        let path = self.file(name);
        let read = retry(|| {
            let mut bytes = vec![0; READ_BYTES as usize];
            let mut file = fs::File::open(&path)?;
            let len = file.read(&mut bytes)?;
            bytes.truncate(len);
            file.take(READ_BYTES).read_to_end(&mut bytes)?;
            String::from_utf8(bytes).map_err(io::Error::other)
        });
        read.map_err(|error| Error::new("read", &path, error))
    }

    /// Writes a file of this instance, without creating one.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.file(name);
        let written =
            retry(|| fs::OpenOptions::new().write(true).open(&path)?.write_all(text.as_bytes()));
        written.map_err(|error| {
            Error::new("write", &path, error).advise(format!("the kernel refused {text:?}"))
        })
    }

    /// Switches it off and removes it, once. All its files have to be closed.
    pub(super) fn remove(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_removed, true) {
            return Ok(());
        }
        let off = self.write("tracing_on", "0");
        remove_instance(&self.path, BUSY_FOR).and(off)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

fn remove_instance(path: &Path, patience: Duration) -> Result<()> {
    let mut patience = Patience::new(patience);
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && patience.pause(Duration::from_millis(5)) => {}
            answer => {
                return answer.map_err(|error| {
                    Error::new("remove a trace instance", path, error)
                        .advise("close what reads its files, then remove it with rmdir")
                });
            }
        }
    }
}

/// Whether [`Tracer::of_disks`](crate::Tracer::of_disks) can work here, without starting
/// anything.
///
/// # Errors
/// The reason in words, with what would change it.
pub fn can_trace() -> std::result::Result<(), String> {
    if let Some(path) = usual_place() {
        let instances = path.join("instances");
        if rustix::fs::access(&instances, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            return Err(format!("{} is not ours to write: run as root", instances.display()));
        }
        if !fs::exists(path.join("events/block/block_rq_issue")).unwrap_or(false) {
            let why = "this kernel has no block trace events: it needs CONFIG_BLK_DEV_IO_TRACE";
            return Err(why.to_string());
        }
        return Ok(());
    }
    let kinds = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kinds.lines().any(|line| line.trim_start_matches("nodev").trim() == "tracefs") {
        return Err("this kernel has no tracefs: it needs CONFIG_TRACING".to_string());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    if effective.unwrap_or(0) & CAP_SYS_ADMIN == 0 {
        let why = "tracefs is not mounted, and mounting it needs CAP_SYS_ADMIN: run as root, or \
                   mount it at /sys/kernel/tracing";
        return Err(why.to_string());
    }
    Ok(())
}

/// Removes the trace instances that killed processes left. Returns sentences about what it removed,
/// and what it could not remove.
pub fn sweep_trace_instances() -> Vec<String> {
    // Where tracefs is mounted nowhere, instances live on unseen: a mount of our own shows them.
    let Ok(tracefs) = Tracefs::find() else { return Vec::new() };
    let entries = fs::read_dir(tracefs.path.join("instances")).into_iter().flatten().flatten();
    // The kernel refuses to remove one with open files, should its maker live in another container.
    let dead = entries.filter(|entry| {
        let process = maker(&entry.file_name(), INSTANCE_PREFIX);
        process.is_some_and(|process| !may_live(process))
    });
    dead.filter_map(|entry| match remove_instance(&entry.path(), Duration::ZERO) {
        Ok(()) => Some(format!("removed trace instance {}", entry.path().display())),
        // The sweep of another lab was faster.
        Err(_) if !entry.path().exists() => None,
        Err(error) => Some(error.to_string()),
    })
    .collect()
}
