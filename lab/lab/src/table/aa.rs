//! Identical arms compared with each other: whether the lab calls equal things different.
//!
//! *Owns*: the text. *May not touch*: the comparison itself (`stats`).

use super::TableStyle;
use super::numbers::{ratio, sig3};
use super::text::{Tint, paragraph};
use crate::result::AaResult;
use crate::stats;
use crate::twins::{BY_CHANCE, together};

/// How many pairs of identical arms were called different, and whether chance explains it.
pub fn render_aa(aa: &AaResult, style: &TableStyle) -> String {
    let mut out = String::new();
    paragraph(
        &mut out,
        style,
        "",
        &format!("Identical arms: {} against itself", aa.cell),
        Tint::Strong,
    );
    super::place_lines(&aa.place, style, &mut out);
    if aa.pairs == 0 {
        paragraph(&mut out, style, "  ", "No pair was measured.", Tint::Plain);
        return out;
    }
    let (text, tint) = judged(aa);
    paragraph(&mut out, style, "  ", &text, tint);
    let at = |q: f64| stats::quantile(&aa.speedups, q).map_or_else(|| "-".to_owned(), ratio);
    if !aa.speedups.is_empty() {
        let text = format!(
            "speedups found, where 1.00 is right: median {}, nine in ten {}..{}, all {}..{}; {} rounds each",
            at(0.5),
            at(0.05),
            at(0.95),
            at(0.0),
            at(1.0),
            aa.rounds
        );
        paragraph(&mut out, style, "  ", &text, Tint::Plain);
    }
    out
}

/// With fewer pairs there is no verdict if none or one is called different: one in twenty may be.
const PAIRS_JUDGED: u32 = 20;

fn judged(aa: &AaResult) -> (String, Tint) {
    let (judged, tint) = match stats::binomial_tail(aa.pairs, aa.different, BY_CHANCE) {
        chance if chance < 0.025 => {
            ("more than chance explains: distrust the verdicts of this machine", Tint::Bad)
        }
        _ if aa.pairs < PAIRS_JUDGED => ("too few pairs to judge by", Tint::Plain),
        _ => ("within what chance explains at 5%", Tint::Good),
    };
    let share = sig3(100.0 * aa.share());
    (format!("{} of {} pairs called different ({share}%): {judged}", aa.different, aa.pairs), tint)
}

/// Every experiment's rows compared with themselves, and the sum.
pub fn render_twins(all: &[AaResult], interrupted: bool, style: &TableStyle) -> String {
    let mut out = String::new();
    let Some(first) = all.first() else { return out };
    paragraph(&mut out, style, "", "Identical rows: each against itself", Tint::Strong);
    super::place_lines(&first.place, style, &mut out);
    for one in all {
        let (text, tint) = match one.pairs {
            0 if interrupted => {
                ("no pair has an interval: the run was interrupted".to_owned(), Tint::Plain)
            }
            0 => ("no pair has an interval: give it more time (--seconds)".to_owned(), Tint::Plain),
            _ => judged(one),
        };
        paragraph(&mut out, style, "  ", &format!("{}: {text}", one.cell), tint);
        for called in &one.called {
            paragraph(&mut out, style, "      ", called, Tint::Plain);
        }
    }
    let sum = together(all);
    if sum.pairs > 0 {
        let (text, tint) = judged(&sum);
        paragraph(&mut out, style, "  ", &format!("all together: {text}"), tint);
    }
    out
}
