//! The progress of a run on a terminal: a bar with the time left.
//!
//! *Owns*: the bar on stderr. *May not touch*: results. When stderr is not a terminal there is no
//! bar. A thread of its own draws the bar twice a second and touches no file.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the bar is redrawn while a step runs: seldom enough not to disturb measurements.
const REDRAW: Duration = Duration::from_millis(500);

/// The progress of one run after another.
#[derive(Debug, Default)]
pub struct Progress {
    terminal: bool,
    bar: Option<ProgressBar>,
    begun_steps: u64,
}

impl Progress {
    /// A bar on stderr if that is a terminal, otherwise none.
    pub fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), bar: None, begun_steps: 0 }
    }

    /// No bar.
    pub fn silent() -> Self {
        Self::default()
    }

    /// Begins a run of `total_steps` steps. A run that is still shown is finished first.
    pub fn start(&mut self, total_steps: u64, title: &str) {
        self.finish();
        self.begun_steps = 0;
        if !self.terminal {
            return;
        }
        let bar =
            ProgressBar::with_draw_target(Some(total_steps), ProgressDrawTarget::stderr_with_hz(4));
        let style =
            ProgressStyle::with_template("{prefix} [{bar:20}] {pos}/{len}  {eta} left  {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(title.to_owned());
        bar.enable_steady_tick(REDRAW);
        self.bar = Some(bar);
    }

    /// Begins the step that `message` names; the previous one is done.
    pub fn step(&mut self, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.begun_steps);
            bar.set_message(message.to_owned());
        }
        self.begun_steps += 1;
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
