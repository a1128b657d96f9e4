//! One engine that several contestants measure: the same threads and files under other
//! circumstances, in one interleaved run.
//!
//! *Owns*: whose turn uses the engine, and that its one check at the end counts for all. *May not
//! touch*: what the circumstances are.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::appending::Appending;
use crate::rounds::{Contestant, Finish, Made};
use crate::threads::Turn;

/// A turn under some circumstances.
pub type TurnOf = Box<dyn FnMut(&mut Appending, Duration) -> Result<Turn>>;

/// An engine in one of its circumstances.
pub struct Shared {
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
    pub fn all(made: Result<Appending>, turns: Vec<(String, TurnOf)>) -> Vec<Made> {
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
