//! For users of tracing-appender: one line is another.
//!
//! ```text
//! cargo run -p example-text-log --bin with-tracing -- app.log
//! ```
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use inkstone_appender::{Keep, LogWriter, Rotation, Survive};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("the log's path is missing")?;

    // Before: let (writer, _guard) =
    // tracing_appender::non_blocking(tracing_appender::rolling::daily("logs", "app.log"));
    let (writer, guard) = LogWriter::builder(path)
        .rotate(Rotation::new().at_bytes(64 << 20).every(std::time::Duration::from_secs(86_400)))
        .keep(Keep::new().files(10))
        .survive(Survive::Kill)
        .open()?;
    tracing_subscriber::fmt().with_writer(writer.clone()).with_ansi(false).init();

    for request in 0..1000 {
        tracing::info!(request, "served");
    }
    // Dropping the guard would write everything as well; closing says whether it could.
    guard
        .close()
        .with_context(|| format!("{} lines were not written", writer.stats().unwritten_lines))
}
