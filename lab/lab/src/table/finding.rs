//! The text at the end: warnings with their cures, the finding with its advice.
//!
//! *Owns*: the layout. *May not touch*: the content, which comes from the lab.

use super::TableStyle;
use super::text::{Tint, paragraph};
use crate::result::{Finding, Warning};

/// `! text`, and under it the cure.
pub(super) fn warnings(warnings: &[Warning], style: &TableStyle, out: &mut String) {
    for warning in warnings {
        paragraph(out, style, "! ", &warning.text, Tint::Bad);
        if !warning.cure.trim().is_empty() {
            paragraph(out, style, "  cure: ", &warning.cure, Tint::Plain);
        }
    }
}

/// The sentence, why, and what to do.
pub(super) fn finding(finding: &Finding, style: &TableStyle, out: &mut String) {
    paragraph(out, style, "", &finding.sentence, Tint::Strong);
    for (lead, words) in [("Why: ", &finding.why), ("Do this: ", &finding.advice)] {
        if let Some(words) = words {
            paragraph(out, style, lead, words, Tint::Strong);
        }
    }
    out.push('\n');
}
