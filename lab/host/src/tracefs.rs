//! The kernel's tracefs: where it is mounted, our own mount of it where it is not, our instances in
//! it, and sweeping what killed processes left of both.
//!
//! *Owns*: `instances/inkstone-*` and mounts at `/run/inkstone-tracefs-*`. *May not touch*: the
//! machine's main trace buffer, other tools' instances, the machine's own mount of tracefs.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::Access;

use crate::mount::Mount;
use crate::owner::{Owner, number};
use inkstone_io::mount_points;
use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};

const USUAL_PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const TRACEFS_MAGIC: u64 = 0x7472_6163;
const INSTANCE_PREFIX: &str = "inkstone-";
const MOUNT_PREFIX: &str = "inkstone-tracefs-";
const MOUNT_PARENT: &str = "/run";
/// The bit of `CAP_SYS_ADMIN`, which mounting needs.
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Longer than any file of tracefs that is read here.
const READ_BYTES: usize = 64 * 1024;
/// How long an instance may stay busy after its files are closed.
const BUSY_FOR: Duration = Duration::from_secs(2);

/// A mounted tracefs; the last user of a private mount unmounts it.
pub(super) struct Tracefs {
    path: PathBuf,
    private: Option<Arc<PrivateMount>>,
}

/// Our own mount of tracefs. It shows the same instances as every other mount of it.
struct PrivateMount {
    /// Taken when it is unmounted.
    mount: Option<Mount>,
    path: PathBuf,
}

/// The private mount of this process, while it is in use.
static PRIVATE: Mutex<Weak<PrivateMount>> = Mutex::new(Weak::new());

impl Tracefs {
    /// Finds tracefs or mounts it at a directory of its own.
    pub(super) fn find() -> Result<Tracefs> {
        if let Some(path) = usual_place() {
            return Ok(Tracefs { path, private: None });
        }
        let mut shared = PRIVATE.lock().unwrap_or_else(PoisonError::into_inner);
        let mount = match shared.upgrade() {
            Some(mount) => mount,
            None => Arc::new(PrivateMount::new()?),
        };
        *shared = Arc::downgrade(&mount);
        Ok(Tracefs { path: mount.path.clone(), private: Some(mount) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        // Under the lock, so that no other thread mounts at the same directory while it is being
        // unmounted.
        let _guard = PRIVATE.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.private.take());
    }
}

impl PrivateMount {
    fn new() -> Result<PrivateMount> {
        let path = Path::new(MOUNT_PARENT).join(format!("{MOUNT_PREFIX}{}", Owner::current()));
        fs::create_dir(&path).or_else(exists_already).map_err(|error| {
            Error::new("create a place for tracefs", &path, error)
                .advise("run as root, or mount tracefs yourself")
        })?;
        // No options of tracefs itself: they would change every other mount of it too.
        match Mount::new(Path::new("nodev"), &path, "tracefs", "nosuid,nodev,noexec") {
            Ok(mount) => Ok(PrivateMount { mount: Some(mount), path }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(error.advise(
                    "a trace needs root and a kernel with CONFIG_TRACING, outside of a container",
                ))
            }
        }
    }
}

impl Drop for PrivateMount {
    fn drop(&mut self) {
        drop(self.mount.take());
        // Stays if it is still mounted; the next sweep removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

fn exists_already(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

fn usual_place() -> Option<PathBuf> {
    USUAL_PLACES.iter().map(PathBuf::from).find(|path| {
        let kind = rustix::fs::statfs(path).map(|found| found.f_type.cast_unsigned());
        kind.is_ok_and(|kind| kind == TRACEFS_MAGIC)
    })
}

/// Reads a file of tracefs with room for all of it in the first `read`.
///
/// Some of these files (`events/header_page`) return their beginning once and nothing after that,
/// so the short first reads of `read_to_string` would lose the rest.
fn read_at_once(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut bytes = vec![0; READ_BYTES];
    let mut length = 0;
    loop {
        let room = bytes.get_mut(length..).unwrap_or_default();
        match retry(|| file.read(room))? {
            0 => break,
            count => length += count,
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// One instance of tracefs: buffers and switches of our own. Dropped, it is removed.
pub(super) struct Instance {
    path: PathBuf,
    removed: bool,
    _tracefs: Tracefs,
}

static INSTANCES: AtomicU64 = AtomicU64::new(0);

impl Instance {
    /// A new instance, switched off.
    pub(super) fn create() -> Result<Instance> {
        let tracefs = Tracefs::find()?;
        let number = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let name = format!("{INSTANCE_PREFIX}{}-{number}", Owner::current());
        let path = tracefs.path().join("instances").join(name);
        fs::create_dir(&path).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => "a trace needs root",
                io::ErrorKind::OutOfMemory => "trace buffers need a few MiB of memory for each CPU",
                _ => "a trace needs a kernel with trace instances (CONFIG_TRACING)",
            };
            Error::new("create a trace instance", &path, error).advise(advice)
        })?;
        let instance = Instance { path, removed: false, _tracefs: tracefs };
        instance.write("tracing_on", "0")?;
        Ok(instance)
    }

    /// A file of this instance.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file of this instance.
    pub(super) fn read(&self, name: &str) -> Result<String> {
        let path = self.file(name);
        retry(|| read_at_once(&path)).map_err(|error| Error::new("read", &path, error))
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

    /// Switches it off and removes it. All its files have to be closed.
    pub(super) fn remove(mut self) -> Result<()> {
        self.removed = true;
        let off = self.write("tracing_on", "0");
        remove_instance(&self.path, BUSY_FOR).and(off)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.removed {
            let _ = self.write("tracing_on", "0");
            let _ = remove_instance(&self.path, BUSY_FOR);
        }
    }
}

fn remove_instance(path: &Path, patience: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && start.elapsed() < patience =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => {
                let error = Error::new("remove a trace instance", path, error);
                return Err(error.advise("close what reads its files, then remove it with rmdir"));
            }
        }
    }
}

/// Whether [`BlockTrace::start`](crate::BlockTrace::start) can work here, without starting
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
            return Err("this kernel has no block trace events: it needs CONFIG_BLK_DEV_IO_TRACE"
                .to_string());
        }
        return Ok(());
    }
    let kinds = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kinds.lines().any(|line| line.trim_start_matches("nodev").trim() == "tracefs") {
        return Err("this kernel has no tracefs: it needs CONFIG_TRACING".to_string());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective =
        effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    if effective & CAP_SYS_ADMIN == 0 {
        return Err(
            "tracefs is not mounted, and mounting it needs CAP_SYS_ADMIN: run as root, or mount it at \
            /sys/kernel/tracing"
                .to_string(),
        );
    }
    Ok(())
}

/// Removes the trace instances and private mounts of tracefs that killed processes left. Returns
/// sentences about what it removed, and what it could not remove.
pub fn sweep_trace_instances() -> Vec<String> {
    let mut words = Vec::new();
    let mut roots: Vec<PathBuf> = Vec::new();
    let mut dead_mounts = Vec::new();
    for point in mount_points().unwrap_or_default() {
        if point.file_system == "tracefs" {
            if is_dead_private_mount(&point.target) {
                dead_mounts.push(point.target.clone());
            }
            roots.push(point.target);
        }
    }
    // If tracefs is mounted nowhere, instances live on unseen: find them through our own mount, as
    // root.
    let own = if roots.is_empty() && rustix::process::geteuid().is_root() {
        Tracefs::find().ok()
    } else {
        None
    };
    roots.extend(own.as_ref().map(|tracefs| tracefs.path().to_path_buf()));
    if let Some(root) = roots.first() {
        sweep_instances(&root.join("instances"), &mut words);
    }
    for target in dead_mounts {
        // Without force or detaching: the kernel refuses to unmount a mount in use, and it stays.
        match rustix::mount::unmount(&target, rustix::mount::UnmountFlags::NOFOLLOW) {
            Ok(()) => words.push(format!("unmounted {}", target.display())),
            Err(error) => words.push(format!("could not unmount {}: {error}", target.display())),
        }
    }
    for entry in fs::read_dir(MOUNT_PARENT).into_iter().flatten().flatten() {
        if is_dead_private_mount(&entry.path()) && fs::remove_dir(entry.path()).is_ok() {
            words.push(format!("removed {}", entry.path().display()));
        }
    }
    words
}

fn sweep_instances(instances: &Path, words: &mut Vec<String>) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(instance_owner);
        if owner.is_none_or(Owner::is_alive) {
            continue;
        }
        match remove_instance(&entry.path(), Duration::ZERO) {
            Ok(()) => words.push(format!("removed trace instance {}", entry.path().display())),
            Err(error) => words.push(error.to_string()),
        }
    }
}

/// `inkstone-<pid>-<starttime>-<n>` and nothing else: other tools may call their instances
/// inkstone-something.
fn instance_owner(name: &str) -> Option<Owner> {
    let (owner, rest) = Owner::parse(name.strip_prefix(INSTANCE_PREFIX)?)?;
    let (_, rest) = number(rest.strip_prefix('-')?)?;
    rest.is_empty().then_some(owner)
}

fn is_dead_private_mount(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let owner = name.and_then(|name| Owner::parse(name.strip_prefix(MOUNT_PREFIX)?));
    path.parent() == Some(Path::new(MOUNT_PARENT))
        && owner.is_some_and(|(owner, rest)| rest.is_empty() && !owner.is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_have_an_owner() {
        let me = Owner::current();
        assert_eq!(instance_owner(&format!("inkstone-{me}-12")), Some(me));
        for wrong in [
            "inkstone-1-2",
            "inkstone-1-2-3x",
            "inkstone-1-2-",
            "ink-1-2-3",
            "inkstone-test",
            "inkstone-",
        ] {
            assert_eq!(instance_owner(wrong), None, "{wrong}");
        }
        assert!(is_dead_private_mount(Path::new("/run/inkstone-tracefs-1-1")));
        assert!(!is_dead_private_mount(Path::new("/tmp/inkstone-tracefs-1-1")));
        assert!(!is_dead_private_mount(&PathBuf::from(format!("/run/inkstone-tracefs-{me}"))));
    }
}
