//! Things of which a call changes more than a row of records, walked in classes: crashed within and
//! after every call, on disks that fail or are full, killed, crashed again while they recover,
//! opened again and again, and with a bit that rots.
//!
//! *Owns*: what goes wrong in which class. *May not touch*: what may be found
//! ([`inkstone_subject`]).

use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, SimDisk};
use inkstone_subject::states::past::Past;
use inkstone_subject::states::{Called, Op, history};
use inkstone_subject::{Broken, End, Step, Subject};

use super::prove::prove;
use super::space::Pick;
use super::tally::Tally;
use super::walk::Walk;
use super::way::{Cuts, Effort, Way, Wrong};

/// What goes wrong beside the power, or what is special in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Cut,
    /// Writes and syncs fail.
    Fails,
    Full,
    Killed,
    /// A bit rots.
    Rot,
    /// Each opening makes a few calls.
    Brief,
}

impl Class {
    pub const ALL: [Self; 6] =
        [Self::Cut, Self::Fails, Self::Full, Self::Killed, Self::Rot, Self::Brief];

    fn disk(self, seed: u64) -> SimDisk {
        // Not `ReportsLater`: a sync that lies is beyond any log.
        let after = [AfterEffect::RevertsToOld, AfterEffect::KeepsNew][(seed % 2) as usize];
        let mut options = DiskOptions { after_effect: Some(after), ..DiskOptions::default() };
        match self {
            Self::Fails => {
                let (sync_error_ppm, write_error_ppm) = (20_000, 5_000);
                options.rates =
                    FaultRates { sync_error_ppm, write_error_ppm, ..FaultRates::default() };
            }
            Self::Full => options.capacity_bytes = Some((256 << 10) + (seed % 8) * (16 << 10)),
            _ => {}
        }
        SimDisk::new(seed, options)
    }

    fn way(self) -> Way {
        let wrong = match self {
            Self::Fails => Wrong::Fails { retries: false },
            Self::Full => Wrong::Full,
            Self::Killed => Wrong::Kills,
            _ => Wrong::Nothing,
        };
        if self == Self::Rot {
            let effort = Effort { samples: 1000, all_of: 0, deep: 0 };
            return Way { pick: Pick::Rot, cuts: Cuts::AtEnd, ..Way::new(effort) };
        }
        Way { wrong, ..Way::new(Effort { samples: 1, all_of: 0, deep: 12 }) }
    }

    /// A history of so many calls.
    fn steps(self, seed: u64, length: usize) -> Vec<Step<Op>> {
        let mut steps = history(seed, length, self == Self::Full);
        if matches!(self, Self::Fails | Self::Full) {
            steps.retain(|step| !matches!(step, Step::PowerCut(_)));
        }
        if self == Self::Brief {
            let end =
                |at: usize| Step::End(if at.is_multiple_of(3) { End::Kill } else { End::Close });
            let parts = steps.chunks(1 + (seed % 4) as usize).enumerate();
            steps = parts.flat_map(|(at, part)| part.iter().cloned().chain([end(at)])).collect();
        }
        // Everything must work again when nothing fails any more.
        let [probe, kill] = [Step::Do(Op::Probe), Step::End(End::Kill)];
        steps.extend([Step::Calm, Step::Room, probe.clone(), kill, probe, Step::End(End::Close)]);
        steps
    }

    /// One history of so many calls, and what was seen of it. `at_end` looks at the disk behind it.
    ///
    /// # Errors
    /// Beside the tally: the promise that is broken.
    pub fn walk<T: Called>(
        self,
        subject: &impl Subject<Op = Op, Past = Past<T>>,
        first: Past<T>,
        (seed, length): (u64, usize),
        at_end: impl FnOnce(&SimDisk) -> Result<(), Broken>,
    ) -> (Tally, Result<(), Broken>) {
        let steps = self.steps(seed, length);
        let mut walk = Walk::new(subject.clone(), self.disk(seed), first, steps, self.way(), seed);
        let result = prove(&mut walk, &mut |_, _| {}).and_then(|()| at_end(&walk.disk));
        (walk.tally, result.map_err(|broken| broken.at(format_args!("{self:?}, seed {seed}"))))
    }
}

/// Walks histories until so many states were seen, each made from its seed. `INKSTONE_STATES` and
/// `INKSTONE_SEED` say otherwise how many and from which seed on; `INKSTONE_CLASS` names the one
/// class that is walked, and others are left out.
///
/// # Errors
/// The promise that is broken, and where.
pub fn look_at(
    class: &str,
    usual: u64,
    make: impl Fn(u64) -> (Tally, Result<(), Broken>),
) -> Result<Tally, Broken> {
    let mut tally = Tally::default();
    if std::env::var("INKSTONE_CLASS").is_ok_and(|only| only != class) {
        return Ok(tally);
    }
    let number = |name, or| match std::env::var(name) {
        Ok(value) => value.parse().map_err(|_| Broken::new("its number", name)),
        Err(_) => Ok(or),
    };
    let (wanted, mut seed) = (number("INKSTONE_STATES", usual)?, number("INKSTONE_SEED", 0)?);
    while tally.states < wanted {
        let (seen, result) = make(seed);
        result?;
        tally.add(&seen);
        seed += 1;
    }
    println!("{class}: up to seed {seed}, {} states, {:?}", tally.states, tally.depths);
    if class != "Rot" && tally.depths[1] <= wanted / 100 {
        return Err(Broken::new("deep", format!("few were crashed again: {tally:?}")));
    }
    Ok(tally)
}
