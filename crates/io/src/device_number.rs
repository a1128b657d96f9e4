//! Block devices by number.
//!
//! *Owns*: the two spellings of a device number. *May not touch*: devices.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::sys;

/// The number of a block device, as `lsblk` prints it: `7:0` is the first loop device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device of that driver.
    pub minor: u32,
}

/// The bits of the minor number inside the kernel's own `dev_t`.
const KERNEL_MINOR_BITS: u32 = 20;

impl DeviceNumber {
    /// From the kernel's own `dev_t` as trace events show it: `major << 20 | minor`. Not what
    /// `stat` gives.
    pub fn from_kernel(device: u32) -> Self {
        Self { major: device >> KERNEL_MINOR_BITS, minor: device & ((1 << KERNEL_MINOR_BITS) - 1) }
    }

    /// The kernel's own `dev_t`, for filters of trace events. Bits beyond 12 and 20 do not exist
    /// there and are cut.
    pub fn to_kernel(self) -> u32 {
        (self.major << KERNEL_MINOR_BITS) | (self.minor & ((1 << KERNEL_MINOR_BITS) - 1))
    }

    /// From user space's encoding: `st_dev` of a file for the device below it, `st_rdev` of a
    /// device node for itself.
    ///
    /// btrfs and overlayfs give every volume a made-up `st_dev` with major 0 that is no block
    /// device.
    pub fn from_st_dev(device: u64) -> Self {
        let (major, minor) = sys::device_number(device);
        Self { major, minor }
    }

    /// The device's own directory in sysfs.
    pub fn sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{self}"))
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The text is no `major:minor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotADeviceNumber(String);

impl fmt::Display for NotADeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no device number like 7:0", self.0)
    }
}

impl std::error::Error for NotADeviceNumber {}

impl FromStr for DeviceNumber {
    type Err = NotADeviceNumber;

    fn from_str(text: &str) -> std::result::Result<Self, NotADeviceNumber> {
        let parts = text.trim().split_once(':').and_then(|(major, minor)| {
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        parts.ok_or_else(|| NotADeviceNumber(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_have_three_spellings() {
        let loop0 = DeviceNumber { major: 7, minor: 0 };
        assert_eq!(loop0.to_kernel(), 7_340_032);
        assert_eq!(DeviceNumber::from_kernel(7_340_032), loop0);
        assert_eq!("7:0".parse(), Ok(loop0));
        assert_eq!(loop0.to_string(), "7:0");
        // A minor beyond 8 bits is split in user space's encoding and whole in the kernel's.
        let many = DeviceNumber { major: 259, minor: 300 };
        assert_eq!(DeviceNumber::from_st_dev(rustix::fs::makedev(259, 300)), many);
        assert_eq!(DeviceNumber::from_kernel(many.to_kernel()), many);
        for wrong in ["", "7", "7:", ":0", "7:x", "-7:0"] {
            assert!(wrong.parse::<DeviceNumber>().is_err(), "{wrong}");
        }
    }
}
