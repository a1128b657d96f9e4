//! Questions about two ways of writing, with the answers yes, no or cannot tell: one rule for all
//! questions.
//!
//! *Owns*: the rule, and when there is no answer. *May not touch*: measuring, and how answers are
//! printed.
//!
//! A wrong answer costs more than none. So there is no answer if the lab doubts what a run means
//! (memory, no flushes), or if there are too few rounds for an interval, and the interval is
//! corrected for all questions asked at once (Bonferroni). A busy machine makes the interval wide:
//! its warning stands beside the answer. *No* means that the whole interval shows no such effect,
//! or hardly any.

use serde::{Deserialize, Serialize};

use crate::result::{CellResult, DurableFinding, Outcome, Relative, Round, Run, Verdict, Warning};
use crate::stats::{SAME_WITHIN, relative_of_several};
use crate::warnings::of_run;

/// A question and its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    /// The question in one sentence, which names both ways.
    pub question: String,
    /// The place, as tables name it.
    pub place: String,
    /// The answer.
    pub answer: Told,
    /// The figure behind the answer: above 1 the second is faster. Its interval is corrected for
    /// all questions asked at once.
    pub relative: Option<Relative>,
    /// Why there is no answer.
    pub reason: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// Yes.
    Yes,
    /// No.
    No,
    /// The figures allow both, or there are none.
    CannotTell,
}

impl Told {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// Which effect the question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The second is faster.
    Faster,
    /// They differ, in either direction.
    Differs,
}

/// Warnings about a single run; the others are about the machine and the place.
const OF_A_RUN: [&str; 3] = ["few-commits", "noisy", "flush-too-fast"];
/// Warnings that do not concern the compared rounds: about clean-up, other parts, or a percentile
/// of a single value.
const HARMLESS: [&str; 8] = [
    "swept",
    "left-out",
    "cut-short",
    "part-failed",
    "no-trace",
    "no-root",
    "no-atlas",
    "few-commits",
];

/// Warnings about noise: the intervals have it in them.
const NOISE: [&str; 4] = ["cpu-busy", "device-busy", "noisy", "powersave"];

/// The first warning that forbids an answer about this run: those about noise stand beside it
/// instead.
pub fn forbidding(run: &Run, warnings: &[Warning]) -> Option<Warning> {
    against(run, warnings).into_iter().find(|warning| !NOISE.contains(&warning.name.as_str()))
}

/// Those warnings of a result that concern this run's figures: where a wrong answer would be
/// expensive, each forbids one.
pub fn against(run: &Run, warnings: &[Warning]) -> Vec<Warning> {
    let of_place =
        warnings.iter().filter(|warning| !OF_A_RUN.contains(&warning.name.as_str())).cloned();
    let all = of_place.chain(of_run(run));
    all.filter(|warning| !HARMLESS.contains(&warning.name.as_str())).collect()
}

/// The subject of a question: two cells, each with its run.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// The cell to compare with.
    pub base: (&'a Run, &'a str),
    /// The cell to judge.
    pub other: (&'a Run, &'a str),
    /// The effect in question.
    pub effect: Effect,
}

/// Answers one of `asked` questions that are read together, in a result with these warnings.
pub fn answer(question: String, pair: &Pair<'_>, asked: usize, warnings: &[Warning]) -> Asked {
    let found = figures(pair, asked);
    let warned = forbidding(pair.base.0, warnings).or_else(|| forbidding(pair.other.0, warnings));
    let relative = found.as_ref().ok().copied();
    let told = found.and_then(|relative| match warned {
        // The result has the text of the warning.
        Some(warning) => Err(format!("the lab warns about this run ({})", warning.name)),
        None => told(&relative, pair.effect),
    });
    let (answer, reason) = match told {
        Ok(answer) => (answer, None),
        Err(why) => (Told::CannotTell, Some(why)),
    };
    Asked { question, place: pair.other.0.place.name.clone(), answer, relative, reason }
}

fn figures(pair: &Pair<'_>, asked: usize) -> Result<Relative, String> {
    let Pair { base, other, .. } = pair;
    let found = relative_of_several(rounds(*base)?, rounds(*other)?, other.0.seed, asked);
    found.ok_or_else(|| "no rounds of the two can be paired".into())
}

fn rounds<'a>((run, name): (&'a Run, &str)) -> Result<&'a [Round], String> {
    let named = |cell: &&CellResult| cell.name == name;
    match run.cells.iter().find(named).map(|cell| &cell.outcome) {
        Some(Outcome::Measured(measured)) => match &measured.durable {
            DurableFinding::NotCovered { reason } => {
                Err(format!("`{name}` was not durable: {reason}"))
            }
            _ => Ok(&measured.rounds),
        },
        Some(Outcome::Invalid { reason }) => Err(format!("`{name}`: {reason}")),
        Some(Outcome::NotRun) | None => Err(format!("`{name}` did not run")),
    }
}

fn told(relative: &Relative, effect: Effect) -> Result<Told, String> {
    let (_, high) = relative.interval().ok_or_else(|| relative.interval_words())?;
    match (effect, relative.verdict) {
        (_, Verdict::Faster) | (Effect::Differs, Verdict::Slower) => Ok(Told::Yes),
        (Effect::Faster, Verdict::Slower) => Ok(Told::No),
        (Effect::Faster, _) if high <= SAME_WITHIN => Ok(Told::No),
        (Effect::Differs, Verdict::Tie) => Ok(Told::No),
        _ => Err("the interval allows both".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{cell, run};

    fn seen() -> DurableFinding {
        DurableFinding::Seen { commits: 10 }
    }

    /// Two ways whose rounds vary by up to `noise`.
    fn of(base_us: f64, other_us: f64, noise: f64) -> Run {
        let mut made =
            run(vec![cell("new fsync", base_us, seen()), cell("reuse fsync", other_us, seen())]);
        if let Outcome::Measured(measured) = &mut made.cells[1].outcome {
            for round in &mut measured.rounds {
                let factor = if round.number.is_multiple_of(2) { noise } else { 1.0 / noise };
                round.total_ns = (round.total_ns as f64 * factor) as u64;
            }
        }
        made
    }

    fn ask(run: &Run, effect: Effect, warnings: &[Warning]) -> Asked {
        let pair = Pair { base: (run, "new fsync"), other: (run, "reuse fsync"), effect };
        answer("is it?".into(), &pair, 4, warnings)
    }

    #[test]
    fn an_answer_is_yes_no_or_cannot_tell() {
        use {Effect::*, Told::*};
        for (base, other, noise, faster, differs) in [
            (200.0, 100.0, 1.01, Yes, Yes),
            (100.0, 200.0, 1.01, No, Yes),
            (100.0, 100.0, 1.01, No, No),
            (105.0, 100.0, 1.5, CannotTell, CannotTell),
            (120.0, 100.0, 1.4, CannotTell, CannotTell),
        ] {
            let run = of(base, other, noise);
            for (effect, wanted) in [(Faster, faster), (Differs, differs)] {
                let found = ask(&run, effect, &[]);
                assert_eq!(found.answer, wanted, "{base} {other} {noise} {effect:?}: {found:?}");
                assert_eq!(found.reason.is_some(), wanted == CannotTell, "{found:?}");
                assert!(found.relative.is_some());
            }
        }
    }

    #[test]
    fn nothing_is_told_where_the_lab_warns_or_there_is_nothing_to_stand_on() {
        let sure = of(200.0, 100.0, 1.01);
        let warning =
            |name: &str| Warning { name: name.into(), text: "so".into(), cure: String::new() };
        assert_eq!(ask(&sure, Effect::Faster, &[warning("swept")]).answer, Told::Yes);
        assert_eq!(
            ask(&sure, Effect::Faster, &[warning("cpu-busy")]).answer,
            Told::Yes,
            "it stands beside"
        );
        let warned = ask(&sure, Effect::Faster, &[warning("memory")]);
        assert!(
            warned.answer == Told::CannotTell
                && warned.reason.is_some_and(|why| why.contains("memory"))
        );
        assert!(warned.relative.is_some(), "the figure stands all the same");
        let mut few = sure.clone();
        let mut not_durable = sure.clone();
        let mut invalid = sure.clone();
        if let Outcome::Measured(measured) = &mut few.cells[1].outcome {
            measured.rounds.truncate(4);
        }
        if let Outcome::Measured(measured) = &mut not_durable.cells[1].outcome {
            measured.durable = DurableFinding::NotCovered { reason: "memory".into() };
        }
        invalid.cells[1].outcome = Outcome::Invalid { reason: "EOPNOTSUPP".into() };
        for (run, said) in
            [(few, "too few rounds"), (not_durable, "memory"), (invalid, "EOPNOTSUPP")]
        {
            let found = ask(&run, Effect::Faster, &[]);
            assert!(
                found.answer == Told::CannotTell
                    && found.reason.is_some_and(|why| why.contains(said))
            );
        }
    }
}
