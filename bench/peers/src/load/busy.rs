//! Threads that wait for their records while the machine has other things to do: processes that
//! spin, one CPU for all, half a CPU, a host that takes the processors away now and then.
//!
//! *Owns*: the conditions, who takes part, when the condition holds: from before a turn until after
//! it. *May not touch*: how a turn runs; how a process is confined or made to spin
//! (`inkstone-host`).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use inkstone_host::{HalfCpu, Helper, OneCpu};

use super::appending::{Appending, Shape};
use super::plan::{Load, Plan, helper};
use crate::engine::{Kind, Purpose, Setup};
use crate::result::{Arm, LoadResult};
use crate::rounds::{self, Contestant, Finish, Made};
use crate::threads::{Manner, Turn};

/// The log with a number of yields that does not adapt: the settings that its default is compared
/// with.
pub const FIXED: &[&str] = &["inkstone yields 0", "inkstone yields 32"];
const FIXED_YIELDS: [u32; 2] = [0, 32];

const RECORD_BYTES: usize = 128;

/// What the machine does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Quiet,
    /// So many processes spin.
    Spinning(usize),
    /// Each processor is taken away for 3.5 ms at a time, for so many percent of the time.
    Stealing(u32),
    /// All threads of this process are on one CPU.
    OneCpu,
    /// This process has half a CPU.
    HalfCpu,
}

const CONDITIONS: [Condition; 9] = [
    Condition::Quiet,
    Condition::Spinning(1),
    Condition::Spinning(2),
    Condition::Spinning(4),
    Condition::Stealing(1),
    Condition::Stealing(3),
    Condition::Stealing(10),
    Condition::OneCpu,
    Condition::HalfCpu,
];

impl Condition {
    fn name(self) -> String {
        match self {
            Self::Quiet => "quiet".into(),
            Self::Spinning(count) => format!("spin-{count}"),
            Self::Stealing(percent) => format!("steal-{percent}"),
            Self::OneCpu => "one-cpu".into(),
            Self::HalfCpu => "half-cpu".into(),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Quiet => "nothing else".into(),
            Self::Spinning(1) => "1 process spins".into(),
            Self::Spinning(count) => format!("{count} processes spin"),
            Self::Stealing(percent) => {
                format!("each processor is taken away for 3.5 ms at a time, {percent}% of the time")
            }
            Self::OneCpu => "all threads of the program are on one CPU".into(),
            Self::HalfCpu => {
                "the program has half a CPU (50 ms of each 100 ms, all its threads together)".into()
            }
        }
    }

    /// Why it cannot be had here.
    fn missing(self) -> Option<String> {
        let tried = match self {
            Self::OneCpu => OneCpu::begin().map(drop),
            Self::HalfCpu => HalfCpu::begin().map(drop),
            Self::Stealing(percent) => {
                return paused(&["steal", &percent.to_string()]).err().map(|e| format!("{e:#}"));
            }
            Self::Quiet | Self::Spinning(_) => Ok(()),
        };
        tried.err().map(|error| error.to_string())
    }
}

/// The processes beside the measurement, and the condition of each; they pause until a turn.
type Beside = Rc<RefCell<Vec<(Condition, Helper)>>>;

/// A process that pauses. `words` say what it does when it goes on.
fn paused(words: &[&str]) -> Result<Helper> {
    let (one, _) = helper(words)?;
    one.pause()?;
    Ok(one)
}

fn beside(conditions: &[Condition]) -> Result<Beside> {
    let mut all = Vec::new();
    for &condition in conditions {
        match condition {
            Condition::Spinning(count) => {
                for _ in 0..count {
                    all.push((condition, paused(&["spin"])?));
                }
            }
            Condition::Stealing(percent) => {
                all.push((condition, paused(&["steal", &percent.to_string()])?));
            }
            Condition::Quiet | Condition::OneCpu | Condition::HalfCpu => {}
        }
    }
    Ok(Rc::new(RefCell::new(all)))
}

/// A turn while the condition holds.
fn under(condition: Condition, beside: &Beside) -> TurnOf {
    let beside = Rc::clone(beside);
    Box::new(move |appending, time| {
        let _bound = (condition == Condition::OneCpu).then(OneCpu::begin).transpose()?;
        let _half = (condition == Condition::HalfCpu).then(HalfCpu::begin).transpose()?;
        let beside = beside.borrow();
        let its = || beside.iter().filter(|(of, _)| *of == condition).map(|(_, helper)| helper);
        its().try_for_each(Helper::resume)?;
        let turn = appending.run(time);
        its().try_for_each(Helper::pause)?;
        turn
    })
}

pub fn busy(plan: &Plan, load: &Load, threads: u32) -> Result<Vec<LoadResult>> {
    let shape =
        Shape { threads, record_bytes: RECORD_BYTES, manner: Manner::Closed, is_fresh: false };
    let (had, missing): (Vec<_>, Vec<_>) = CONDITIONS
        .map(|condition| (condition, condition.missing()))
        .into_iter()
        .partition(|(_, why)| why.is_none());
    let conditions: Vec<_> = had.iter().map(|(condition, _)| *condition).collect();
    let beside = beside(&conditions)?;
    let mut contestants = Vec::new();
    let mut add = |name: &str, kind, yields| {
        let setup = Setup { yields, ..Setup::plain(RECORD_BYTES, Purpose::Durable) };
        let made = Appending::engine(plan, name, kind, setup, shape);
        let turns =
            conditions.iter().map(|condition| (name.to_owned(), under(*condition, &beside)));
        contestants.extend(Shared::all(made, turns.collect()));
    };
    for &kind in &plan.engines {
        add(kind.name(), kind, None);
        if kind == Kind::Inkstone {
            FIXED.iter().zip(FIXED_YIELDS).for_each(|(name, yields)| add(name, kind, Some(yields)));
        }
    }
    let measured = rounds::run(&plan.pace, contestants);
    let mut results = by_condition(load, &conditions, measured);
    for (condition, why) in missing {
        let notes =
            vec![format!("!! LEFT OUT, it cannot be had here: {}", why.unwrap_or_default())];
        results.push(result(load, condition, Vec::new(), notes));
    }
    Ok(results)
}

/// The arms come engine by engine, in each condition by condition.
fn by_condition(load: &Load, conditions: &[Condition], measured: Vec<Arm>) -> Vec<LoadResult> {
    let mut sorted: Vec<Vec<Arm>> = conditions.iter().map(|_| Vec::new()).collect();
    for (at, arm) in measured.into_iter().enumerate() {
        sorted[at % conditions.len()].push(arm);
    }
    let one = |(&condition, arms)| {
        let notes = vec![
            "all conditions are measured in the same rounds, by the same engines; \
                          groups and segments are of all together"
                .to_owned(),
        ];
        result(load, condition, arms, notes)
    };
    conditions.iter().zip(sorted).map(one).collect()
}

fn result(load: &Load, condition: Condition, arms: Vec<Arm>, notes: Vec<String>) -> LoadResult {
    LoadResult {
        name: format!("{} {}", load.name, condition.name()),
        title: format!("{}; {}", load.title(), condition.words()),
        ..load.result(RECORD_BYTES, arms, notes)
    }
}

/// A turn under some condition.
type TurnOf = Box<dyn FnMut(&mut Appending, Duration) -> Result<Turn>>;

/// An engine that several contestants measure, in one of its conditions: the same threads and
/// files, and one check at the end that counts for all.
struct Shared {
    name: String,
    engine: Rc<RefCell<Engine>>,
    turn: TurnOf,
}

/// The engine, and what its end came to: the first who asks ends it.
struct Engine {
    appending: Option<Box<Appending>>,
    end: Option<Result<Finish, String>>,
}

impl Shared {
    /// A contestant for each name and kind of turn; or for each the reason why there is none.
    fn all(made: Result<Appending>, turns: Vec<(String, TurnOf)>) -> Vec<Made> {
        let engine = match made {
            Ok(one) => Rc::new(RefCell::new(Engine { appending: Some(Box::new(one)), end: None })),
            Err(error) => {
                let why = format!("{error:#}");
                return turns.into_iter().map(|(name, _)| Err((name, anyhow!("{why}")))).collect();
            }
        };
        let one = |(name, turn)| -> Made {
            Ok(Box::new(Self { name, engine: Rc::clone(&engine), turn }))
        };
        turns.into_iter().map(one).collect()
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Appending, &mut TurnOf) -> Result<T>) -> Result<T> {
        let mut engine = self.engine.borrow_mut();
        act(engine.appending.as_mut().context("it has ended")?, &mut self.turn)
    }
}

impl Contestant for Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn rest(&mut self) -> Result<()> {
        self.with(|appending, _| appending.rest())
    }

    fn calm(&mut self) -> Result<()> {
        self.with(|appending, _| appending.calm())
    }

    fn turn(&mut self, time: Duration) -> Result<Turn> {
        self.with(|appending, turn| turn(appending, time))
    }

    fn finish(self: Box<Self>) -> Result<Finish> {
        let mut engine = self.engine.borrow_mut();
        let is_known = engine.end.is_some();
        if let Some(appending) = engine.appending.take() {
            engine.end = Some(
                (appending as Box<dyn Contestant>).finish().map_err(|error| format!("{error:#}")),
            );
        }
        match engine.end.as_ref().context("it has ended without a word")? {
            // The first one has said how.
            Ok(finish) if is_known => Ok(Finish { checked: finish.checked, ..Finish::default() }),
            Ok(finish) => Ok(finish.clone()),
            Err(why) => Err(anyhow!("{why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::What;
    use super::*;

    #[test]
    fn each_arm_goes_to_its_condition() {
        let load = Load { name: "busy-8", what: What::Busy(8) };
        let conditions = [Condition::Quiet, Condition::Spinning(2), Condition::OneCpu];
        let arms = ["a", "a", "a", "b", "b", "b"]
            .iter()
            .enumerate()
            .map(|(at, name)| Arm { p50_ns: Some(at as u64 % 3), ..Arm::new(name) });
        let results = by_condition(&load, &conditions, arms.collect());
        assert_eq!(
            results.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["busy-8 quiet", "busy-8 spin-2", "busy-8 one-cpu"]
        );
        for (at, result) in (0..).zip(&results) {
            let seen: Vec<_> =
                result.arms.iter().map(|arm| (arm.name.as_str(), arm.p50_ns)).collect();
            assert_eq!(seen, [("a", Some(at)), ("b", Some(at))]);
        }
    }
}
