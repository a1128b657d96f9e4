//! The progress of a run on a terminal: a bar with the time left from the first second on.
//!
//! *Owns*: the bar on stderr, and lines printed above it. *May not touch*: results. When stderr is
//! not a terminal there is no bar. A thread of its own draws the bar twice a second and touches no
//! file.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// How often the bar is redrawn while a step runs: seldom enough not to disturb measurements.
const REDRAW: Duration = Duration::from_millis(500);
/// The caller's estimate counts as much as this many real steps.
const ESTIMATE_WEIGHT_STEPS: f64 = 2.0;

/// The function that prints the lines of [`Progress::announce`]. Its reader may stall, leave or
/// fail: that is not an error of the run.
pub type Announce = fn(&str);

/// The progress of one run after another.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    announce: Option<Announce>,
    bar: Option<ProgressBar>,
    begun_steps: u64,
}

impl Progress {
    /// A bar on stderr if that is a terminal, otherwise none; announcements go to `announce` either
    /// way.
    pub fn new(announce: Announce) -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
            announce: Some(announce),
            bar: None,
            begun_steps: 0,
        }
    }

    /// No bar, no announcements.
    pub fn silent() -> Self {
        Self { terminal: false, announce: None, bar: None, begun_steps: 0 }
    }

    /// Begins a run of `total_steps` steps, expected to take `expect_s` seconds together: the time
    /// left follows this estimate until steps have shown their pace. A run that is still shown is
    /// finished first.
    pub fn start(&mut self, total_steps: u64, title: &str, expect_s: f64) {
        self.finish();
        self.begun_steps = 0;
        if !self.terminal {
            return;
        }
        let bar =
            ProgressBar::with_draw_target(Some(total_steps), ProgressDrawTarget::stderr_with_hz(4));
        bar.set_style(style(expect_s));
        bar.set_prefix(title.to_owned());
        bar.enable_steady_tick(REDRAW);
        bar.tick();
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

    /// Prints lines now, above the bar.
    pub fn announce(&self, text: &str) {
        let Some(announce) = self.announce else { return };
        match &self.bar {
            Some(bar) => bar.suspend(|| announce(text)),
            None => announce(text),
        }
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

fn style(expect_s: f64) -> ProgressStyle {
    let left = move |state: &ProgressState, out: &mut dyn fmt::Write| {
        let left_s =
            left_s(state.pos(), state.len().unwrap_or(0), state.elapsed().as_secs_f64(), expect_s);
        // If writing to a String failed, only the bar's line would be lost.
        let _unlikely = out.write_str(&left_text(left_s));
    };
    let style = ProgressStyle::default_bar().progress_chars("=> ").with_key("left", left);
    style
        .template("{prefix} [{bar:20}] {pos}/{len}  {left}  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Seconds left after `done` of `total` steps in `elapsed_s`, when all were expected to take
/// `expect_s`. The expectation counts as [`ESTIMATE_WEIGHT_STEPS`] steps, so its weight fades as
/// steps are done.
fn left_s(done: u64, total: u64, elapsed_s: f64, expect_s: f64) -> f64 {
    let (done, total) = (done.min(total) as f64, total as f64);
    if total == 0.0 || done >= total {
        return 0.0;
    }
    let expect_s = if expect_s.is_finite() { expect_s.max(0.0) } else { 0.0 };
    let expected_step_s = expect_s / total;
    if done == 0.0 {
        return (expect_s - elapsed_s).max(expected_step_s);
    }
    let pace_s =
        (elapsed_s + ESTIMATE_WEIGHT_STEPS * expected_step_s) / (done + ESTIMATE_WEIGHT_STEPS);
    (total - done) * pace_s
}

fn left_text(left_s: f64) -> String {
    let whole = left_s.max(0.0).ceil() as u64;
    match whole {
        0..=1 => "a moment left".into(),
        2..=99 => format!("{whole} s left"),
        100..=5_999 => format!("{} min {:02} s left", whole / 60, whole % 60),
        _ => format!("{} h {:02} min left", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_counts_until_there_is_a_pace() {
        assert_eq!(left_s(0, 10, 0.0, 60.0), 60.0);
        assert_eq!(left_s(0, 10, 5.0, 60.0), 55.0);
        assert_eq!(left_s(0, 10, 500.0, 60.0), 6.0, "never nothing while a step runs");
        assert_eq!(left_s(10, 10, 70.0, 60.0), 0.0);
        let halfway_at_double_pace = left_s(50, 100, 60.0, 60.0);
        assert!((55.0..=60.0).contains(&halfway_at_double_pace), "{halfway_at_double_pace}");
    }

    #[test]
    fn ugly_estimates_do_no_harm() {
        for expect in [f64::NAN, f64::INFINITY, -5.0, 0.0] {
            let left = left_s(3, 9, 6.0, expect);
            assert!(left.is_finite() && left >= 0.0, "{expect} {left}");
        }
        assert_eq!(left_s(0, 0, 1.0, 1.0), 0.0);
    }

    #[test]
    fn time_left_reads_well() {
        assert_eq!(left_text(0.2), "a moment left");
        assert_eq!(left_text(41.3), "42 s left");
        assert_eq!(left_text(125.0), "2 min 05 s left");
        assert_eq!(left_text(7_260.0), "2 h 01 min left");
    }

    #[test]
    fn a_bar_can_be_walked_through() {
        let mut progress = Progress { terminal: true, announce: None, bar: None, begun_steps: 0 };
        progress.start(3, "quick", 1.0);
        for step in ["new", "zeros", "reuse"] {
            progress.step(step);
        }
        progress.announce("said nowhere");
        progress.finish();
        assert!(progress.bar.is_none());
        let mut silent = Progress::silent();
        silent.start(3, "quick", 1.0);
        silent.step("new");
        assert!(silent.bar.is_none());
        assert_eq!(
            style(1.0).get_tick_str(0).is_empty(),
            ProgressStyle::default_bar().get_tick_str(0).is_empty()
        );
    }
}
