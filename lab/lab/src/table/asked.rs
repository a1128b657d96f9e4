//! Questions and their answers, each with its figure, or with the reason why there is no answer.
//!
//! *Owns*: their layout in a terminal of any width. *May not touch*: answers.

use crate::asked::{Asked, Told};

use super::TableStyle;
use super::text::{Tint, paint, paragraph};

/// `cannot tell`, with the space around it.
const ANSWER_WIDTH: usize = 14;

/// The answers, place by place, and what they mean.
pub fn render_asked(asked: &[Asked], style: &TableStyle) -> String {
    let mut out = String::new();
    let mut place = None;
    for one in asked {
        if place != Some(&one.place) {
            paragraph(&mut out, style, "", &format!("On {}:", one.place), Tint::Strong);
            place = Some(&one.place);
        }
        line(&mut out, one, style);
    }
    if !asked.is_empty() {
        let rule = "yes and no: the whole 95% interval says so, widened for all questions of a place; an effect below 1.1 times is a no too. \
         A busy machine makes intervals wide; where the lab doubts what a run means, there is no answer.";
        paragraph(&mut out, style, "", rule, Tint::Dim);
    }
    out
}

fn line(out: &mut String, asked: &Asked, style: &TableStyle) {
    let tint = match asked.answer {
        Told::Yes => Tint::Good,
        Told::No => Tint::Bad,
        Told::CannotTell => Tint::Dim,
    };
    let figure = asked.relative.map(|relative| match relative.interval() {
        Some((low, high)) => format!(" {:.2} [{low:.2}..{high:.2}]", relative.speedup),
        None => format!(" {:.2}", relative.speedup),
    });
    let why = asked.reason.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    let text = format!("{}{}{why}", asked.question, figure.unwrap_or_default());
    let indent = " ".repeat(ANSWER_WIDTH);
    let mut rest = String::new();
    paragraph(&mut rest, style, &indent, &text, Tint::Plain);
    // The answer is in the indentation of the first line.
    let answer = format!("{:ANSWER_WIDTH$}", format!("  {}", asked.answer.words()));
    out.push_str(&paint(style, tint, &answer));
    out.push_str(rest.strip_prefix(indent.as_str()).unwrap_or(&rest));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Relative, Verdict};

    #[test]
    fn every_answer_has_its_line_at_any_width() {
        let one = |answer, relative, reason: Option<&str>| Asked {
            question: "Is `zero-range fsync` faster than `new fsync`, in files of 8MiB?".into(),
            place: "ext4, direct loop".into(),
            answer,
            relative,
            reason: reason.map(str::to_owned),
        };
        let figure = Some(Relative::with_interval(1.41, (1.26, 1.52), Verdict::Faster));
        let asked = [
            one(Told::Yes, figure, None),
            one(Told::No, Some(Relative::with_interval(1.01, (0.95, 1.04), Verdict::Tie)), None),
            one(
                Told::CannotTell,
                Some(Relative::without_interval(1.3)),
                Some("too few rounds for an interval"),
            ),
        ];
        for width in [40, 80, 120] {
            let text = render_asked(&asked, &TableStyle { width, ..TableStyle::default() });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        let text = render_asked(&asked, &TableStyle { width: 120, ..TableStyle::default() });
        for said in [
            "On ext4, direct loop:\n",
            "  yes         Is `zero-range fsync` faster",
            "8MiB? 1.41 [1.26..1.52]\n",
            "  no          Is",
            "  cannot tell Is",
            "1.30; too few rounds for an interval",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert_eq!(text.matches("On ext4").count(), 1);
        assert_eq!(render_asked(&[], &TableStyle::default()), "");
    }
}
