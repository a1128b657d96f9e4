//! Disks that once were hard, opened by every build: the right outcome of each is in its file.
//!
//! *Owns*: opening all of them. *May not touch*: the files.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::path::Path;

use inkstone_powerloss::sim::corpus::{Right, Scene};

fn corpus() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_stem().unwrap().to_string_lossy().into_owned(),
                std::fs::read_to_string(path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_disk_of_the_corpus_opens_as_is_right() {
    let corpus = corpus();
    for (name, text) in &corpus {
        let scene = Scene::from_text(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        scene.check().unwrap_or_else(|why| panic!("{name}, {}: {why}", scene.what));
    }
    assert!(corpus.len() >= 15, "{} disks", corpus.len());
    assert!(corpus.iter().map(|(_, text)| text.len()).sum::<usize>() < 200 << 10);
}

/// The check can fail: with one byte of a header changed, or with another outcome called right, no
/// disk passes.
#[test]
fn a_wrong_outcome_is_noticed() {
    let corpus = corpus();
    for (name, text) in &corpus {
        let scene = Scene::from_text(text).unwrap();
        let wrong = match &scene.right {
            Right::Corrupt => vec![Right::Records(Vec::new()), Right::Records(vec![(1, 2, 1)])],
            Right::Records(lives) => {
                let longer =
                    lives.iter().map(|(first, last, life)| (*first, last + 1, *life)).collect();
                let other =
                    lives.iter().map(|(first, last, life)| (*first, *last, life + 1)).collect();
                vec![Right::Corrupt, Right::Records(longer), Right::Records(other)]
            }
        };
        for right in wrong {
            assert!(
                Scene { right: right.clone(), ..scene.clone() }.check().is_err(),
                "{name} is {right:?} too"
            );
        }
    }
}

/// A disk that is hard can be added: its text holds all of it.
#[test]
fn a_disk_is_written_as_it_was_read() {
    for (name, text) in corpus() {
        let scene = Scene::from_text(&text).unwrap();
        assert_eq!(Scene::from_text(&scene.to_text()).unwrap(), scene, "{name}");
        assert_eq!(scene.to_text(), text, "{name}");
    }
}
