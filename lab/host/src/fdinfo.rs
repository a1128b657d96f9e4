//! How a process has opened a descriptor, from the text of `/proc/PID/fdinfo/N`.
//!
//! *Owns*: the meaning of the flags. *May not touch*: /proc, which the caller reads.

/// How a descriptor was opened, as far as durability needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenedAs {
    /// For writing.
    pub writes: bool,
    /// With O_DIRECT.
    pub direct: bool,
    /// With O_DSYNC or O_SYNC: each write is durable by itself.
    pub durable: bool,
    /// With O_SYNC: its time stamps are durable, too.
    pub full: bool,
}

impl OpenedAs {
    /// Reads the text; `None` if it has no flags.
    pub fn parse(fdinfo: &str) -> Option<OpenedAs> {
        let text = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = i32::from_str_radix(text.trim(), 8).ok()?;
        let has = |flag: i32| flags & flag != 0;
        let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
        let (direct, durable) = (has(libc::O_DIRECT), has(libc::O_DSYNC));
        Some(OpenedAs { writes, direct, durable, full: flags & libc::O_SYNC == libc::O_SYNC })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_octal() {
        let of =
            |flags: i32| OpenedAs::parse(&format!("pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t1\n"));
        let opened = |writes, direct, durable| {
            Some(OpenedAs { writes, direct, durable, full: direct && durable })
        };
        assert_eq!(of(libc::O_RDONLY | libc::O_CLOEXEC), opened(false, false, false));
        assert_eq!(of(libc::O_RDWR | libc::O_DSYNC), opened(true, false, true));
        assert_eq!(of(libc::O_WRONLY | libc::O_SYNC | libc::O_DIRECT), opened(true, true, true));
        assert_eq!(OpenedAs::parse("pos:\t0\n"), None);
    }
}
