//! A network device whose packets this process reads and writes (TUN).
//!
//! *Owns*: making it, and packets in and out. *May not touch*: addresses, routes, namespaces, what
//! is in a packet.
//!
//! The kernel removes the device when its last descriptor is closed, so a killed process leaves
//! none.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const CLONE: &str = "/dev/net/tun";
const TUNSETIFF: libc::c_ulong = 0x4004_54CA;
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

/// A TUN device: whole IP packets, without any header of its own.
#[derive(Debug)]
pub struct Tunnel {
    file: File,
    name: String,
}

impl Tunnel {
    /// Makes a device of that name in this network namespace. It may be moved to another one: it
    /// stays this process's.
    ///
    /// # Errors
    /// Not root, no `/dev/net/tun`, a name that is taken or longer than 15 bytes.
    pub fn create(name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            let why = format!("{name:?} is no name for one");
            return Err(Error::invalid("make a network device", CLONE, why));
        }
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = retry(|| how.open(CLONE))
            .map_err(|error| Error::new("open", CLONE, error).advise("modprobe tun; root"))?;
        // SAFETY: all zeros is a valid `ifreq`: numbers, bytes and null pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        let fd = file.as_raw_fd();
        // SAFETY: the request reads and writes one `ifreq`, which lives until the call returns.
        match unsafe { libc::ioctl(fd, TUNSETIFF as libc::Ioctl, &raw mut request) } {
            0 => Ok(Self { file, name: name.into() }),
            _ => {
                let error = io::Error::last_os_error();
                Err(Error::new("make a network device (TUNSETIFF)", CLONE, error))
            }
        }
    }

    /// Its name when it was made.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next packet that the kernel sends through the device; `None` if none comes within
    /// `time`. A packet that is longer than `to` is cut.
    ///
    /// # Errors
    /// The device was removed, with its namespace.
    pub fn receive(&self, to: &mut [u8], time: Duration) -> Result<Option<usize>> {
        let fail = |error| Error::new("read from", &self.name, error);
        let time = Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        loop {
            match (&self.file).read(to) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(fail(error)),
                Err(_) => {}
            }
            let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut ready, Some(&time)) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(fail(error.into())),
            }
        }
    }

    /// Hands a packet to the kernel, as if it had come in through the device.
    ///
    /// # Errors
    /// The device is down or was removed, or the packet is none.
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        retry(|| (&self.file).write(packet).map(drop))
            .map_err(|error| Error::new("write to", &self.name, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_in_and_out() {
        for name in ["", "a-name-of-16-byte", "a\0b"] {
            assert!(Tunnel::create(name).is_err(), "{name:?}");
        }
        let name = format!("inkt{}", std::process::id());
        let tunnel = match Tunnel::create(&name) {
            Ok(tunnel) => tunnel,
            Err(error) => return println!("NOT RUN: no TUN device: {error}"),
        };
        let mut packet = [0; 2000];
        assert!(tunnel.send(&[0; 3]).is_err(), "it is down");
        let up =
            ["address add 10.213.255.1/32 dev", "link set up dev", "route add 10.213.255.2/32 dev"];
        for words in up {
            let mut ip = std::process::Command::new("ip");
            match ip.args(words.split(' ')).arg(&name).status() {
                Ok(status) if status.success() => {}
                other => return println!("NOT RUN: ip {words} {name}: {other:?}"),
            }
        }
        let socket = std::net::UdpSocket::bind("10.213.255.1:0").expect("its address");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
        socket.send_to(b"there", "10.213.255.2:9").expect("sent");
        let bytes = loop {
            let bytes = tunnel
                .receive(&mut packet, Duration::from_secs(5))
                .expect("open")
                .expect("a packet");
            // The kernel sends packets of its own too (IPv6).
            if packet[0] >> 4 == 4 {
                break bytes;
            }
        };
        assert_eq!(
            (&packet[16..20], &packet[bytes - 5..bytes]),
            (&[10, 213, 255, 2][..], &b"there"[..])
        );
        // Back: addresses and ports exchanged; the sums stay right, since they add up.
        for (first, second, count) in [(12, 16, 4), (20, 22, 2)] {
            for at in 0..count {
                packet.swap(first + at, second + at);
            }
        }
        tunnel.send(&packet[..bytes]).expect("taken");
        let mut got = [0; 16];
        let (count, from) = socket.recv_from(&mut got).expect("it comes back");
        assert_eq!(
            (&got[..count], from.to_string()),
            (&b"there"[..], "10.213.255.2:9".to_string())
        );
    }
}
