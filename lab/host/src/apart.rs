//! A process in namespaces of its own: whatever it starts ends with it, also what has left its
//! process group and its session.
//!
//! *Owns*: making them. *May not touch*: what runs in them, and the namespaces of the process that
//! calls: a thread of its own enters them, starts the process, and ends.

use std::ffi::CStr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use inkstone_io::{Error, Result, mount_points};
use rustix::mount::{MountPropagationFlags, mount_change};

use crate::mount::detach;
use crate::workdir::is_in_workdir;

/// Which network a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// That of the machine.
    Shared,
    /// A loopback device of its own: its ports meet nobody's.
    Own,
}

/// Starts a command as the first process of a PID namespace, with mounts and a `/proc` of its own.
/// When it ends, the kernel kills all that it has started, and it counts as ended only when those
/// have ended. `directory`: where it works. Needs root.
///
/// # Errors
/// Not root, or the command cannot be started.
pub fn spawn_apart(command: &mut Command, network: Network, directory: &Path) -> Result<Child> {
    let program = Path::new(command.get_program()).to_path_buf();
    let failed = |source| Error::new("start in namespaces of its own", &program, source);
    // SAFETY: the call is made in a child that is about to become the program. It makes one system
    // call with texts that live for ever, and touches no memory and no lock of this process.
    let command = unsafe { command.pre_exec(mount_proc) };
    // The namespaces of a thread that has entered others once are never those of its process again.
    let started = std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            enter(network, directory)?;
            command.spawn()
        });
        entered.join().unwrap_or_else(|_| Err(io::Error::other("its thread has panicked")))
    });
    started.map_err(failed)
}

/// The calling thread's next children are in the namespaces; so are its own mounts and network.
fn enter(network: Network, directory: &Path) -> io::Result<()> {
    let own = if network == Network::Own { libc::CLONE_NEWNET } else { 0 };
    // SAFETY: no memory is passed. It changes this thread alone.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS | own) })?;
    // What is mounted here later is seen by nobody else.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    // The copies of what other labs have mounted would keep it in use after they have unmounted it.
    for point in mount_points().map_err(io::Error::other)?.iter().rev() {
        let target = &point.target;
        if is_in_workdir(target) && !directory.starts_with(target) {
            match detach(target) {
                // Its lab has unmounted it, or removed its directory, meanwhile.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                }
                done => done.map_err(io::Error::other)?,
            }
        }
    }
    if network == Network::Own { loopback_up() } else { Ok(()) }
}

fn loopback_up() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros is a request without a name and without flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request lives through the call, which reads it.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
}

/// The numbers in the old `/proc` are those of the machine.
fn mount_proc() -> io::Result<()> {
    const PROC: &CStr = c"proc";
    // SAFETY: three texts that live for ever, and no data.
    check(unsafe {
        libc::mount(PROC.as_ptr(), c"/proc".as_ptr(), PROC.as_ptr(), 0, std::ptr::null())
    })
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{Mount, WorkDir};

    const SCRIPT: &str = "cat /proc/net/dev | wc -l; echo $$; \
        setsid sh -c 'trap \"\" HUP; echo away >away; sleep 1000; echo late >late' >/dev/null & \
        while [ ! -e away ]; do :; done; echo; sleep 1000";

    /// A newline in the path of another lab, or an unmount at the wrong moment, and no program
    /// could be started.
    #[test]
    fn other_labs_have_any_name_and_end_at_any_time() {
        if !inkstone_io::is_root() {
            return crate::not_run("other_labs_have_any_name_and_end_at_any_time", "it needs root");
        }
        let made = tempfile::tempdir().expect("a directory");
        let parent = made.path().join("a line\nand \\ another");
        std::fs::create_dir(&parent).expect("a directory");
        let lab = WorkDir::create(&parent).expect("a work directory");
        let mount = || Mount::new(Path::new("none"), lab.path(), "tmpfs", "").expect("mounted");
        let first = mount();
        let starts = || {
            let mut command = Command::new("true");
            let child = spawn_apart(&mut command, Network::Shared, Path::new("/"));
            assert!(child.expect("it starts").wait().expect("it ends").success());
        };
        starts();
        first.unmount().expect("unmounted");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    mount().unmount().expect("unmounted");
                }
            });
            (0..100).for_each(|_| starts());
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_has_left_the_session_ends_with_the_first_process() {
        if !inkstone_io::is_root() {
            return crate::not_run("what_has_left_the_session_ends", "it needs root");
        }
        let made = tempfile::tempdir().expect("a directory");
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).current_dir(made.path()).stdout(Stdio::piped());
        let mut child = spawn_apart(&mut shell, Network::Own, made.path()).expect("root may");
        let mut out = io::BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = [const { String::new() }; 3];
        for line in &mut lines {
            io::BufRead::read_line(&mut out, line).expect("a line");
        }
        // Two lines of heading and the loopback device.
        assert_eq!(lines.map(|line| line.trim().to_owned()), ["3", "1", ""]);
        let below = || {
            let all = std::fs::read_dir("/proc").expect("/proc").flatten();
            let at = |entry: std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).ok();
            all.filter_map(at).filter(|cwd| cwd.as_path() == made.path()).count()
        };
        assert!(below() >= 3, "the shell, the one that went away, and their sleeps");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(below(), 0, "each process had ended when the first one had");
        assert!(UdpSocket::bind("127.0.0.1:0").is_ok(), "this process has its own network");
    }
}
