//! Every experiment. A new one is a file beside this one with a type that implements
//! [`Experiment`], its `mod`, and its line here.
//!
//! *Owns*: the list, and its order: that of `lab all`, so the most useful come first. *May not
//! touch*: what any of them measures.

use super::definition::{Experiment, OwnCommand, Size};

type Make = fn(Size) -> Box<dyn Experiment>;

const LIST: &[Make] = &[
    made::<super::depth::DepthPlan>,
    made::<super::practice::PracticePlan>,
    made::<super::log::LogPlan>,
    made::<super::mixed::MixedPlan>,
    made::<super::pool::PoolPlan>,
    made::<super::read::ReadPlan>,
    made::<super::text::TextPlan>,
    // Only claims run these.
    made::<super::reserved::UnwrittenReads>,
    made::<super::reserved::Reserving>,
    made::<super::reads_writes::ReadsAndWrites>,
    made::<super::neighbours::Neighbours>,
    made::<super::place::Place>,
    made::<super::full_disk::FullDisk>,
    made::<super::growing::Growing>,
    made::<super::shared_offset::SharedOffset>,
    made::<super::pieces::Pieces>,
    made::<super::text::Buffers>,
];

fn made<E: Experiment + 'static>(size: Size) -> Box<dyn Experiment> {
    Box::new(E::sized(size))
}

/// Every experiment at this size, also those that only claims run.
pub fn all(size: Size) -> impl Iterator<Item = Box<dyn Experiment>> {
    LIST.iter().map(move |make| make(size))
}

/// Those that have a command of their own, each with that.
pub fn commands(size: Size) -> impl Iterator<Item = (Box<dyn Experiment>, OwnCommand)> {
    all(size).filter_map(|experiment| experiment.command().map(|command| (experiment, command)))
}

/// The one that gives results of this name.
pub fn giving(result: &str, size: Size) -> Option<Box<dyn Experiment>> {
    all(size).find(|experiment| experiment.gives(result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SIZES: [Size; 7] = [
        Size::Usual,
        Size::Published,
        Size::Quick,
        Size::Standard,
        Size::Full,
        Size::Twins,
        Size::Claims,
    ];

    #[test]
    fn names_are_unique_and_no_result_belongs_to_two() {
        let names: Vec<&str> = all(Size::Usual).map(|experiment| experiment.name()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), LIST.len(), "{names:?}");
        for name in names {
            for result in [name.to_owned(), format!("{name}-more")] {
                let givers = all(Size::Usual).filter(|experiment| experiment.gives(&result));
                assert_eq!(givers.count(), 1, "{result}");
            }
        }
        assert!(giving("reads", Size::Usual).is_none());
    }

    #[test]
    fn each_has_rows_room_and_time_at_every_size() {
        let pace = super::super::Pace { rounds: 5, budget: None, seed: 1, twins: false };
        for size in SIZES {
            for mut experiment in all(size) {
                let name = experiment.name();
                assert!(
                    experiment.room_needed_bytes() > 0 && experiment.rows() > 0,
                    "{name} {size:?}"
                );
                assert!(
                    experiment.steps(&pace) > 0 && experiment.claims_s() > 0.0,
                    "{name} {size:?}"
                );
                let is_command = experiment.command().is_some();
                assert!(
                    is_command || experiment.settings().is_empty(),
                    "{name}: nobody can set its options"
                );
            }
        }
    }
}
