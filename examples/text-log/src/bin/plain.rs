//! Without any framework: `writeln!` from several threads.
//!
//! ```text
//! cargo run -p example-text-log --bin plain -- app.log
//! ```
#![forbid(unsafe_code)]

use std::io::Write as _;

use anyhow::{Context, Result};
use inkstone_appender::{LogWriter, Survive};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("the log's path is missing")?;
    let (log, guard) = LogWriter::builder(path).survive(Survive::Kill).open()?;
    if let Some(recovery) = guard.recovery() {
        println!("{recovery}");
    }
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let mut log = &log;
            threads.spawn(move || {
                for number in 0..1000 {
                    // Fails only when the log is closed, or in a forked child.
                    let _ = writeln!(log, "thread {thread} line {number}");
                }
            });
        }
    });
    guard.close()?;
    println!("{:?}", log.stats());
    Ok(())
}
