//! The ten experiments of the articles, E1 to E10.
//!
//! *Owns*: the list. *May not touch*: what each runs: a file of its own says that.

use super::part::{Part, Size};
use super::statement::Statement;
use super::{e1, e2, e3, e4, e5, e6, e7, e8, e9, e10};

/// An experiment of the articles.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// `e1` to `e10`.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What it runs.
    pub parts: fn(Size) -> Vec<Part>,
    /// What the articles and others say about it.
    pub statements: &'static [Statement],
}

macro_rules! experiments {
    ($($module:ident, $about:literal;)*) => {
        /// All of them, in the order of their numbers.
        pub const EXPERIMENTS: &[Experiment] = &[$(Experiment {
            name: stringify!($module),
            about: $about,
            parts: $module::parts,
            statements: $module::STATEMENTS,
        }),*];
    };
}

experiments! {
    e1, "Ways to write a durable log (articles 2 and 4)";
    e2, "First and second pass, with a journal and without (article 1)";
    e3, "What a durable write costs at the block layer (article 2)";
    e4, "fallocate, mode by mode (article 3)";
    e5, "A key-value store's log, with blocks reserved ahead and without (article 3)";
    e6, "Ways of doing I/O, and a mixed load (article 5)";
    e7, "A pool of threads that block (article 5)";
    e8, "Reading fast (articles 1 and 5)";
    e9, "A text log written by many threads (article 1)";
    e10, "The practice: the next file prepared ahead or used again (article 2)";
}

/// The one of this name.
pub fn named(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

/// Every statement, by experiment.
pub fn statements() -> impl Iterator<Item = &'static Statement> {
    EXPERIMENTS.iter().flat_map(|experiment| experiment.statements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_has_parts_at_both_sizes_and_statements_with_a_source() {
        let mut ids = Vec::new();
        for experiment in EXPERIMENTS {
            for size in [Size::Small, Size::Published] {
                assert!(!(experiment.parts)(size).is_empty(), "{}", experiment.name);
            }
            assert!(!experiment.statements.is_empty(), "{}", experiment.name);
            for statement in experiment.statements {
                assert!(!ids.contains(&statement.id), "{} twice", statement.id);
                ids.push(statement.id);
                assert!(statement.says.ends_with('.') && !statement.source.words().is_empty());
            }
        }
    }

    /// What is published is what the articles have.
    #[test]
    fn published_means_published() {
        use crate::image::{ImageKind, LoopMode};
        use crate::run::Plan;
        let parts = |name: &str| (named(name).expect("known").parts)(Size::Published);
        let plan = |part: &mut Part| -> Plan { part.plan_mut().expect("ways").clone() };
        let of_e1: Vec<Plan> = parts("e1").iter_mut().map(plan).collect();
        for plan in &of_e1[..3] {
            assert_eq!(plan.rounds, 3, "article 4's rounds");
            let is_whole =
                |writing: &crate::writing::Writing| (writing.file_bytes, writing.write_bytes);
            assert!(plan.ways.iter().map(is_whole).all(|bytes| bytes == (1 << 30, 4096)));
        }
        assert_eq!(of_e1[0].ways.len(), of_e1[1].ways.len());
        assert_eq!(of_e1[2].ways.len(), 5);
        let Part::On(images) = &parts("e2")[0] else { panic!("no images") };
        assert_eq!(images.kinds, [ImageKind::Ext4, ImageKind::Ext4NoJournal]);
        assert_eq!((images.image_bytes, &images.modes[..]), (2 << 30, &[LoopMode::Buffered][..]));
        assert_eq!(images.plan.rounds, 1);
        let is_paused = |writing: &crate::writing::Writing| (writing.file_bytes, writing.pause_ms);
        assert!(images.plan.ways.iter().map(is_paused).all(|found| found == (1 << 30, 10_000)));
        let Part::Fallocate(atlas) = &parts("e4")[0] else { panic!("no atlas") };
        assert_eq!(atlas.zeroing_bytes, 10 << 30);
        let pool = &parts("e7")[0];
        assert_eq!(pool.room_bytes(), 2 * 500_000 * 4096);
    }
}
