//! The progress of a run on a terminal: what is done now, and since when it runs.
//!
//! *Owns*: the line on stderr. *May not touch*: results. When stderr is not a terminal there is no
//! line. A thread of its own draws it twice a second and touches no file.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the line is redrawn while a step runs: seldom enough not to disturb measurements.
const REDRAW: Duration = Duration::from_millis(500);

/// The progress of one run after another.
#[derive(Debug, Default)]
pub struct Progress {
    terminal: bool,
    line: Option<ProgressBar>,
}

impl Progress {
    /// A line on stderr if that is a terminal, otherwise none.
    pub fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), line: None }
    }

    /// No line.
    pub fn silent() -> Self {
        Self::default()
    }

    /// Begins a run. A run that is still shown is finished first.
    pub fn start(&mut self, title: &str) {
        self.finish();
        if !self.terminal {
            return;
        }
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
        let style = ProgressStyle::with_template("{prefix} {spinner} {elapsed}  {wide_msg}");
        line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        line.set_prefix(title.to_owned());
        line.enable_steady_tick(REDRAW);
        self.line = Some(line);
    }

    /// Begins the step that `message` names; the previous one is done.
    pub fn step(&mut self, message: &str) {
        if let Some(line) = &self.line {
            line.set_message(message.to_owned());
        }
    }

    /// Removes the line.
    pub fn finish(&mut self) {
        if let Some(line) = self.line.take() {
            line.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
