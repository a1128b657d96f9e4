//! Behind the `log` facade: a logger of a dozen lines. One record is one `writeln!`, so one line.
//!
//! ```text
//! cargo run -p example-text-log --bin with-log -- app.log
//! ```
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use inkstone_appender::{LogWriter, WhenFull};
use log::{LevelFilter, Log, Metadata, Record};

struct Logger(LogWriter);

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // An error means that the log is closed: there is nowhere to say so.
            let _ =
                writeln!(&self.0, "{:5} {}: {}", record.level(), record.target(), record.args());
        }
    }

    fn flush(&self) {
        let _ = self.0.flush_within(Duration::from_secs(5));
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("the log's path is missing")?;
    // This program would rather lose lines than wait; the log itself will say how many.
    let (writer, guard) =
        LogWriter::builder(path).when_full(WhenFull::DropAfter(Duration::ZERO)).open()?;
    log::set_boxed_logger(Box::new(Logger(writer)))?;
    log::set_max_level(LevelFilter::Info);
    for request in 0..1000 {
        log::info!("request {request} served");
    }
    Ok(guard.close()?)
}
