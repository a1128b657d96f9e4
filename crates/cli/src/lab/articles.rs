//! The tables of docs/notebook/lab*.md that set the articles beside the lab: their commands are commands, and their published numbers
//! are published.
//!
//! *Owns*: that comparison. *May not touch*: the pages, and `articles.md`, which is what the articles say.

use std::collections::BTreeSet;

use inkstone_io::Durability;
use inkstone_lab::experiment::{Experiment as _, LogPlan, MixedPlan, PoolPlan, Size};
use inkstone_lab::image::{ImageKind, LoopMode};
use inkstone_lab::presets::Preset;

use super::published::{PARTS, parse};
use super::{LabCommand, atlas_options, filesystems_options};

/// The lab's pages as one: the articles' table is in the notebook's first, their published tables are in those of the experiments.
const PAGE: &str = concat!(
    include_str!("../../../../docs/notebook/lab.md"),
    include_str!("../../../../docs/notebook/lab-write.md"),
    include_str!("../../../../docs/notebook/lab-io.md"),
    include_str!("../../../../docs/notebook/lab-claims.md"),
    include_str!("../../../../docs/notebook/lab-choice.md"),
    include_str!("../../../../docs/lab.md"),
    include_str!("../../../../docs/bench-and-tune.md"),
    include_str!("../../../../docs/lab-answers.md"),
);
const NOTEBOOK: &str = include_str!("../../../../.ci/notebook");
const ARTICLES: &str = include_str!("articles.md");

/// Every number in a text, as written, without commas between thousands.
fn numbers(text: &str) -> BTreeSet<String> {
    let text: Vec<char> = text.chars().collect();
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < text.len() {
        if !text[at].is_ascii_digit()
            || at > 0 && (text[at - 1].is_ascii_alphanumeric() || text[at - 1] == '.')
        {
            at += 1;
            continue;
        }
        let mut number = String::new();
        while at < text.len() {
            let next_is_digit = text.get(at + 1).is_some_and(char::is_ascii_digit);
            match text[at] {
                digit if digit.is_ascii_digit() => number.push(digit),
                '.' if next_is_digit => number.push('.'),
                ',' if text[at + 1..].iter().take_while(|c| c.is_ascii_digit()).count() == 3 => {}
                _ => break,
            }
            at += 1;
        }
        found.insert(number);
    }
    found
}

/// The cells of each row of the table.
fn rows() -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE.split_once("## The articles, section by section").expect("the section");
    let section = section.split("\n###").next().expect("its end");
    let rows = section.lines().filter(|line| line.starts_with("| E"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn every_command_of_the_articles_table_parses() {
    let rows = rows();
    let sections: BTreeSet<&str> = rows.iter().filter_map(|row| row[0].split([',', ' ']).next()).collect();
    let all: BTreeSet<String> = (1..=10).map(|n| format!("E{n}")).collect();
    assert_eq!(sections, all.iter().map(String::as_str).collect(), "an article's section has no row");
    for row in &rows {
        assert_eq!(row.len(), 5, "{row:?}");
        let command = row[1].trim_matches('`');
        let words: Vec<&str> = command.strip_prefix("inkstone ").expect(command).split_whitespace().collect();
        if let Err(error) = parse(&words[1..]) {
            panic!("{command}: {error}");
        }
    }
}

fn parsed(words: &[&str]) -> LabCommand {
    parse(words).expect("a command").command.expect("a subcommand")
}

/// What `inkstone lab published` runs is what the pages say, and nothing of them is left out.
#[test]
fn the_parts_of_lab_published_are_the_commands_of_the_articles_table() {
    let lines: BTreeSet<String> = PARTS.iter().map(|part| part.line(false)).collect();
    assert_eq!(lines.len(), PARTS.len(), "a command stands twice");
    let names: BTreeSet<&str> = PARTS.iter().map(|part| part.name).collect();
    assert_eq!(names.len(), PARTS.len(), "a name stands twice");
    for row in rows() {
        let command = row[1].trim_matches('`');
        assert!(lines.contains(command), "{command} is no part of lab published");
    }
    for part in PARTS {
        let line = part.line(false);
        assert!(PAGE.contains(&format!("`{line}`")), "{line} is on no page");
        parse(&part.words(true)).unwrap_or_else(|error| panic!("{}: {error}", part.line(true)));
    }
}

/// Each cell that says "not measured yet" is filled by a part that docs/notebook/lab.md names for it.
#[test]
fn what_is_not_measured_yet_has_a_part_that_measures_it() {
    let (_, list) = PAGE.split_once("### Not measured yet").expect("the list");
    let list = list.split("\n## ").next().expect("its end");
    let rows: Vec<&str> =
        list.lines().filter(|line| line.starts_with("| ") && !line.contains("| part |")).collect();
    let mut cells = 0;
    for row in &rows {
        let columns: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, count, part, _] = columns[..] else { panic!("{row}") };
        cells += count.parse::<usize>().expect("a number of cells");
        let part = part.trim_matches('`');
        let is_step = NOTEBOOK.contains(&format!("step {part} "));
        assert!(is_step || PARTS.iter().any(|known| known.name == part), "nothing measures {part}");
    }
    let said = PAGE
        .lines()
        .filter(|line| !line.starts_with("### "))
        .map(|line| line.matches("not measured yet").count());
    assert_eq!(cells, said.sum::<usize>(), "the list and the pages differ");
}

/// The words of the articles that the test below relies on.
#[test]
fn the_sizes_are_the_articles_own() {
    let words = ARTICLES.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "1 GiB, sequential, one thread, 4 KiB aligned writes, made durable after every write",
        "Article 4 (an SSD, 3 rounds, ms",
        "1 GiB, 4 KiB buffered writes; a first pass over a prepared file, a pause of 10 s",
        "On an ext4 image of 2 GiB, through a *buffered* loop device (the published set-up",
        "zeroing 10 GiB by writing",
        "8 threads, 128-byte values, every write synced (`num` 1,000,000, of which fillsync does 1 in 1000)",
        "--size=10G",
        "--ioengine=io_uring --iodepth=16",
        "--numjobs=8 --runtime=60",
        "500,000 sequential 4 KiB `pwrite` + `fsync`, then 500,000 random 4 KiB `pread`",
    ] {
        assert!(words.contains(said), "{said}");
    }
}

/// The sizes of `--published` and its presets are those of the articles.
#[test]
fn published_means_published() {
    let LabCommand::Write { selection, running, .. } =
        parsed(&["write", "--preset", "e1", "--durability", "fsync", "--published"])
    else {
        panic!("another command")
    };
    let cells = selection.cells(Preset::E1).expect("cells");
    let plain = Preset::E1.cells();
    let arms: BTreeSet<_> =
        plain.iter().map(|cell| (cell.strategy.preparation, cell.strategy.reuse)).collect();
    assert_eq!(cells.len(), arms.len(), "each arm once");
    assert!(
        cells.iter().all(|cell| cell.strategy.durability == Durability::Fsync && cell.file_bytes == 1 << 30)
    );
    assert_eq!(running.plan(&selection, Preset::E1, "").expect("a plan").rounds, 3, "article 4's rounds");
    assert_eq!(running.cut(&cells), "", "whole files");
    let LabCommand::Write { selection, running, .. } =
        parsed(&["write", "--preset", "e1", "--published", "--time", "5s", "--commits", "9"])
    else {
        panic!("another command")
    };
    let cells = selection.cells(Preset::E1).expect("cells");
    assert_eq!(running.cut(&cells), "; each pass stops after 9 commits of 262144 or after 5s");
    let LabCommand::Filesystems { place, file_systems, loops, image_size, selection, running, .. } =
        parsed(&["filesystems", "--preset", "e2", "--published"])
    else {
        panic!("another command")
    };
    let options = filesystems_options(&place, &file_systems, &loops, image_size, &selection, &running)
        .expect("options");
    assert_eq!(
        (options.image_bytes, options.kinds),
        (2 << 30, vec![ImageKind::Ext4, ImageKind::Ext4NoJournal])
    );
    assert_eq!((options.modes, options.plan.rounds), (vec![LoopMode::Buffered], 1));
    assert!(options.plan.cells.iter().all(|cell| cell.file_bytes == 1 << 30 && cell.pause_ms == 10_000));
    let LabCommand::ZeroRange(arguments) = parsed(&["zero-range", "--published"]) else {
        panic!("another command")
    };
    let options = arguments.options();
    assert_eq!((options.file_bytes, options.pause_ms), (vec![1 << 30], 10_000));
    assert_eq!(options.kinds, Some(vec![ImageKind::Ext4, ImageKind::Ext4NoJournal]));
    assert_eq!(options.modes, [LoopMode::Buffered]);
    let LabCommand::Fallocate { place, file_systems, size, published, .. } =
        parsed(&["fallocate", "--published"])
    else {
        panic!("another command")
    };
    assert_eq!(atlas_options(&place, &file_systems, size, published).zeroing_bytes, 10 << 30);
    let log = LogPlan::sized(Size::Published);
    assert_eq!((log.threads, log.record_bytes, log.turn_records), (8, 128, Some(1000)));
    let mixed = MixedPlan::sized(Size::Published);
    assert_eq!(
        (mixed.file_bytes, mixed.turn_max.as_secs(), mixed.depth, mixed.jobs, mixed.asynchronous),
        (10 << 30, 60, 16, 8, true)
    );
    let pool = PoolPlan::sized(Size::Published);
    assert_eq!(
        (pool.threads, pool.operations, pool.growing),
        (vec![1, 2, 8, 64, 128, 256, 512], 500_000, true)
    );
}

#[test]
fn every_published_number_stands_in_the_articles() {
    let published = numbers(ARTICLES);
    let mut checked = 0;
    let mut check = |text: &str, row: &str| {
        for number in numbers(text) {
            assert!(published.contains(&number), "{number} is published nowhere: {row}");
            checked += 1;
        }
    };
    for row in rows() {
        check(row[2], row[0]);
    }
    // The published tables of the sections below, row by row: the figures beside each name.
    let mut lines = PAGE.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("| published") {
            check(line.split_once("| published").map_or("", |(_, rest)| rest), line);
        }
        if line.starts_with("Published, ") && lines.peek().is_some_and(|next| next.is_empty()) {
            lines.next();
            while let Some(row) = lines.next_if(|next| next.starts_with('|')) {
                check(row.split_once(" | ").map_or("", |(_, rest)| rest), row);
            }
        }
    }
    assert!(checked > 80, "only {checked} numbers were found: the pages have changed their form");
}

#[test]
fn numbers_are_found_as_people_write_them() {
    let of = |text: &str| numbers(text).into_iter().collect::<Vec<_>>();
    assert_eq!(of("E7: 66,667 op/s, 1.1% and 8.68, 4 KiB"), ["1.1", "4", "66667", "8.68"]);
    assert_eq!(of("32505, 65828"), ["32505", "65828"]);
}
