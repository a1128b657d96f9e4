//! The simulated disk with a scheduling point before and after each operation.
//!
//! *Owns*: where another thread may go on while one does I/O. *May not touch*: what the operations
//! do. The simulator's own lock is held within one call only, never over a switch.

use std::sync::Arc;

use inkstone_io::Result;
use inkstone_sim::SimDirectory;
use inkstone_sim::hooked::{Call, Hook};
use shuttle::sync::atomic::{AtomicBool, Ordering};

use crate::scheduler::at_io;

pub const PATH: &str = "/log";

/// Another thread may go on here.
#[derive(Debug, Default)]
pub struct Steps {
    point: AtomicBool,
    is_forked: std::sync::atomic::AtomicBool,
}

impl Steps {
    fn pass(&self) {
        at_io(|| _ = self.point.load(Ordering::SeqCst));
    }

    /// From here on whoever asks is in a forked child, or is not. Nothing is refused but by the
    /// log: what it does, the disk shows.
    pub fn be_forked(&self, is_forked: bool) {
        self.is_forked.store(is_forked, Ordering::Relaxed);
    }
}

impl Hook for Steps {
    fn before(&self, _: &Call<'_>) -> Result<()> {
        self.pass();
        Ok(())
    }

    fn after(&self) {
        self.pass();
    }

    fn is_forked(&self) -> bool {
        self.is_forked.load(Ordering::Relaxed)
    }
}

/// Operations are points where others may go on. To look at a disk when nobody else is left, open
/// its directory as it is.
pub fn stepped(inner: SimDirectory) -> SimDirectory {
    inner.hooked(Arc::<Steps>::default())
}
