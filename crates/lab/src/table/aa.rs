//! Identical arms against each other: whether the lab would call equal things different.
//!
//! *Owns*: how that is told. *May not touch*: the comparison itself (`stats`).

use super::TableStyle;
use super::numbers::{ratio, sig3};
use super::text::{Tint, paragraph};
use crate::result::AaResult;
use crate::stats;

/// The share of equal pairs that chance may call different.
const BY_CHANCE: f64 = 0.05;

/// How many pairs of identical arms were called different, and whether chance explains it.
pub fn render_aa(aa: &AaResult, style: &TableStyle) -> String {
    let mut out = String::new();
    paragraph(&mut out, style, "", &format!("Identical arms: {} against itself", aa.cell), Tint::Strong);
    super::place_lines(&aa.place, style, &mut out);
    if aa.pairs == 0 {
        paragraph(&mut out, style, "  ", "No pair was measured.", Tint::Plain);
        return out;
    }
    let share = 100.0 * f64::from(aa.different) / f64::from(aa.pairs);
    let chance = stats::binomial_tail(aa.pairs, aa.different, BY_CHANCE);
    let (judged, tint) = match chance {
        chance if chance < 0.025 => {
            ("more than chance explains: distrust the verdicts of this machine", Tint::Bad)
        }
        _ => ("within what chance explains at 5%", Tint::Good),
    };
    let text =
        format!("{} of {} pairs called different ({}%): {judged}", aa.different, aa.pairs, sig3(share));
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
