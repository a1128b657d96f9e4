//! `inkstone lab all`: every experiment in one result, within a time that is known beforehand.
//!
//! *Owns*: how the time is shared out, which parts are skipped when it is used up. *May not touch*:
//! how any part is measured.
//!
//! Before each part the remaining time is shared out again, by weight: a quick part leaves more to
//! the later ones, a slow one less. A part that takes far more than its share is ended as by
//! Ctrl-C, with the results that it has by then.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use inkstone_io::{Directory, is_root};

use crate::experiment::list::EXPERIMENTS;
use crate::experiment::part::{Images, Part, Size};
use crate::experiment::ways::quick;
use crate::result::LabResult;
use crate::rounds::{Pace, ROUNDS_MIN};
use crate::run::Plan;
use crate::site::OpenSite;

use super::parts::{clear, one};
use super::{Context, LabError, Started, in_directory};

/// How much time there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// At most a minute.
    Quick,
    /// Narrower intervals, in at most 6 minutes.
    Standard,
    /// More rounds, in up to half an hour.
    Full,
}

impl Tier {
    /// The time for all parts; rounds; commits of a bill. It leaves enough of the promised time for
    /// the steps before and after, and for a part that ends late.
    fn limits(self) -> (Duration, u32, u64) {
        let (seconds, rounds, commits) = match self {
            Self::Quick => (48, ROUNDS_MIN, 32),
            Self::Standard => (310, 9, 128),
            Self::Full => (1700, 15, 128),
        };
        (Duration::from_secs(seconds), rounds, commits)
    }
}

/// A part with less time than this shows nothing.
const SHARE_MIN: Duration = Duration::from_millis(300);
/// A part that takes this multiple of its share is ended.
const SHARES_MAX: f64 = 1.3;
/// Creating and removing an image on an ordinary disk; a smaller share does not make this shorter.
const IMAGE_TIME_MIN: Duration = Duration::from_secs(3);

/// The parts with their weights. The answer of the lab comes first, since the time may run out; of
/// E1 only the first set-up.
fn parts() -> Vec<(Part, f64)> {
    let answer = Plan::new("quick", "Durable 4 KiB commits, one after the other", quick());
    let answer = Plan { timeline_commits: 3, ..answer };
    let mut parts = vec![(Part::Here(answer), 6.0)];
    for experiment in EXPERIMENTS {
        let of_it = (experiment.parts)(Size::Small).into_iter();
        let count = if experiment.name == "e1" { 1 } else { usize::MAX };
        parts.extend(of_it.take(count).map(|part| {
            let weight = match &part {
                Part::Here(_) => 5.0,
                Part::On(_) => 6.0,
                Part::Fallocate(_) => 2.0,
                Part::Trial(trial) => trial.seconds / 4.0,
            };
            (part, weight)
        }));
    }
    parts.retain(|(part, _)| is_root() || !matches!(part, Part::On(_)));
    parts
}

fn images(part: &Part) -> u32 {
    match part {
        Part::On(Images { kinds, modes, .. }) => (kinds.len() * modes.len()) as u32,
        Part::Fallocate(atlas) if is_root() => atlas.kinds.len() as u32,
        _ => 0,
    }
}

/// Runs everything in the directory (the current one if `None`), and leaves nothing there.
///
/// # Errors
/// When nothing can be measured there at all.
pub fn all(
    directory: Option<&Path>,
    tier: Tier,
    seed: u64,
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    let mut parts = parts();
    let room_bytes = parts.iter().map(|(part, _)| part.room_bytes()).max().unwrap_or(0);
    let begin = Instant::now();
    in_directory(directory, room_bytes, context, |open, started, context| {
        in_turn(open, (tier, seed), &mut parts, begin, context, started);
        Ok(())
    })
}

fn in_turn(
    open: &OpenSite,
    (tier, seed): (Tier, u64),
    parts: &mut [(Part, f64)],
    begin: Instant,
    context: &mut Context<'_>,
    started: &mut Started,
) {
    let (time, rounds, _) = tier.limits();
    let kept = open.site.directory.list().unwrap_or_default();
    let count = parts.len();
    for index in 0..count {
        if context.interrupted() {
            return;
        }
        let rest: f64 = parts[index..].iter().map(|(_, weight)| weight).sum();
        let (part, weight) = &mut parts[index];
        let share = time.saturating_sub(begin.elapsed()).mul_f64(*weight / rest);
        if share < SHARE_MIN.max(IMAGE_TIME_MIN * images(part)) {
            let text = format!("{} was left out: earlier parts used up the time", part.name());
            started.warn("left-out", text, CURE);
            continue;
        }
        let for_images = images(part);
        if let Some(plan) = part.plan_mut() {
            pace(plan, (tier, seed), share / for_images.max(1), for_images > 0);
        }
        let title = format!("{}/{count} {}", index + 1, part.name());
        let pace = Pace { rounds, budget: Some(share), seed };
        let (stop, command) = (context.stop, context.command.clone());
        let (done, was_cut) = within(stop, share.mul_f64(SHARES_MAX), |stop| {
            let mut context = Context { stop, progress: context.progress, command };
            one(open, part, &pace, &title, &mut context, started)
        });
        if was_cut {
            let text = format!(
                "{} took far longer than its share of the time and was stopped: it has fewer \
                 rounds than the others",
                part.name()
            );
            started.warn("cut-short", text, CURE);
        }
        started.keep(part.name(), done);
        clear(open, &kept);
    }
}

const CURE: &str = "take --standard or --full, or run its own command";

/// Rounds of short passes: half of the share is for measuring, the rest for bringing files into
/// their states, and for creating an image.
fn pace(plan: &mut Plan, (tier, seed): (Tier, u64), share: Duration, on_image: bool) {
    let (_, rounds, commits) = tier.limits();
    let share = if on_image { share.mul_f64(0.5) } else { share };
    let ways = plan.ways.len() as f64;
    plan.rounds = rounds;
    plan.limits.time = share.mul_f64(0.28 / (ways * f64::from(rounds)));
    plan.deadline = Some(share.mul_f64(0.7));
    plan.bill_commits = commits;
    plan.bill_time = share.mul_f64(0.15 / ways);
    plan.seed = seed;
}

/// Runs `body` with a flag that is set when the user wants to stop or `limit` has passed; also
/// returns whether it was the limit.
fn within<T>(stop: &AtomicBool, limit: Duration, body: impl FnOnce(&AtomicBool) -> T) -> (T, bool) {
    const LOOK: Duration = Duration::from_millis(20);
    let ended = AtomicBool::new(stop.load(Ordering::Relaxed));
    let (alive, gone) = channel::<()>();
    std::thread::scope(|scope| {
        let ended = &ended;
        let watch = scope.spawn(move || {
            let begin = Instant::now();
            while gone.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let is_over = begin.elapsed() >= limit;
                if is_over || stop.load(Ordering::Relaxed) {
                    ended.store(true, Ordering::Relaxed);
                    return is_over;
                }
            }
            false
        });
        let done = body(ended);
        drop(alive);
        (done, watch.join().unwrap_or(false))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_ended_and_told() {
        let stop = AtomicBool::new(false);
        let wait = |flag: &AtomicBool| {
            let begin = Instant::now();
            while !flag.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            flag.load(Ordering::Relaxed)
        };
        assert_eq!(within(&stop, Duration::from_millis(50), wait), (true, true));
        assert_eq!(within(&stop, Duration::from_secs(20), |_| 7), (7, false));
        let stop = AtomicBool::new(true);
        assert_eq!(within(&stop, Duration::from_secs(20), wait), (true, false));
    }
}
