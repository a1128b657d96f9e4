//! A terminal without a user (a pseudo-terminal).
//!
//! *Owns*: making one. *May not touch*: what is written into it.

use std::fs::File;
use std::io;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// A terminal in raw mode (it echoes nothing and changes no byte): the end from which the shown
/// bytes are read, and the end to which a program writes.
///
/// # Errors
/// What the kernel answers.
pub fn raw_terminal() -> io::Result<(File, File)> {
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    unlockpt(&own)?;
    let programs =
        ioctl_tiocgptpeer(&own, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let mut mode = tcgetattr(&programs)?;
    mode.make_raw();
    tcsetattr(&programs, OptionalActions::Now, &mode)?;
    Ok((own.into(), programs.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IsTerminal as _, Read as _, Write as _};

    #[test]
    fn what_is_written_is_shown_as_it_is() {
        let (mut own, mut programs) = raw_terminal().expect("a terminal");
        assert!(programs.is_terminal());
        programs.write_all(b"a\nb\tc").expect("written");
        let mut shown = [0; 5];
        own.read_exact(&mut shown).expect("read");
        assert_eq!(&shown, b"a\nb\tc");
    }
}
