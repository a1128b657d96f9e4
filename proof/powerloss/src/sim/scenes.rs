//! How the disks of the corpus were made.
//!
//! *Owns*: the scenes and the right outcome of each, written by hand. *May not touch*: the files
//! that are there already (`corpus.rs`).

use inkstone::{Log, Lsn};
use inkstone_io::{Directory, OpenFile};
use inkstone_sim::{DiskOptions, Fate, Item, ItemKind, PowerCut, SimDisk};

use super::corpus::{Right, Scene, payload};
use super::explore::{PATH, open};
use super::variant::{RECORD_BYTES_MAX, Variant, small};

type Made = Result<(SimDisk, Right), String>;
type Make = fn() -> Made;

/// Every scene by the name of its file, with what it is.
const SCENES: [(&str, &str, Make); 18] = [
    (
        "torn-header",
        "a segment change, the header's first sector holds garbage and the rest is lost",
        torn_header,
    ),
    (
        "lost-seal",
        "a segment change, the new header is durable and the old segment's seal is lost",
        lost_seal,
    ),
    ("torn-group-head", "the first sector of a group is lost, the others arrived", torn_group_head),
    ("torn-group-middle", "a sector in the middle of a group is lost", torn_group_middle),
    (
        "recycled",
        "the last segment has old blocks, with sound old frames behind the log's end",
        recycled,
    ),
    ("recycled-torn", "as recycled, and the first sector of the last group is lost", recycled_torn),
    (
        "rot-below-promise",
        "a bit rotted in record 2, and a later group promises it",
        rot_below_promise,
    ),
    (
        "rot-in-last-group",
        "a bit rotted in the last group, which nothing promises",
        rot_in_last_group,
    ),
    (
        "rot-after-close",
        "a bit rotted in the last record, and closing promised it",
        rot_after_close,
    ),
    ("lost-rename", "a segment was being made, and its new name is lost", lost_rename),
    ("cut-front-undone", "truncate_before, and its group is lost", cut_front_undone),
    (
        "cut-front-name-kept",
        "truncate_before is durable, the old segment's new name is lost",
        cut_front_name_kept,
    ),
    ("cut-back-undone", "truncate_after, and the header that says so is lost", cut_back_undone),
    (
        "cut-back",
        "truncate_after is durable, and another record has the LSN of one that was cut",
        cut_back,
    ),
    (
        "next-is-empty",
        "the next segment's file has no bytes, and a file has its size before its name",
        next_is_empty,
    ),
    (
        "second-crash",
        "two crashes: the last group torn, then the opening's epoch group torn too",
        second_crash,
    ),
    (
        "old-epoch-behind-hole",
        "frames of a killed writer lie whole behind a hole, and a later epoch is short of them",
        old_epoch,
    ),
    ("lost-middle", "three segments, and the second is gone", lost_middle),
];

/// Makes every scene, by the name of its file.
///
/// # Errors
/// A scene whose outcome is not the right one.
pub fn scenes() -> Result<Vec<(&'static str, Scene)>, String> {
    let scene = |&(name, what, make): &(&'static str, &str, Make)| {
        let told = |why: String| format!("{name}: {why}");
        let (disk, right) = make().map_err(told)?;
        let files = disk.medium().into_iter().filter_map(|(path, bytes)| {
            let name = path.file_name()?.to_str()?.to_owned();
            Some((name, bytes))
        });
        let scene = Scene { what: what.to_owned(), right, files: files.collect() };
        scene.check().map_err(told)?;
        Ok((name, scene))
    };
    SCENES.iter().map(scene).collect()
}

fn disk() -> SimDisk {
    SimDisk::new(7, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() })
}

fn log_of(disk: &SimDisk) -> Result<Log, String> {
    let variant = Variant { disk: disk.options(), options: small().free_segments_max(2) };
    open(disk, &variant).map_err(words)
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

fn append(
    log: &Log,
    lsns: std::ops::RangeInclusive<u64>,
    life: u32,
    bytes: usize,
) -> Result<(), String> {
    lsns.into_iter().try_for_each(|lsn| {
        let given = log.append_durable(&payload(lsn, life, bytes)).map_err(words)?;
        if given.get() == lsn { Ok(()) } else { Err(format!("LSN {given} instead of {lsn}")) }
    })
}

fn life(first: u64, last: u64) -> Right {
    Right::Records(vec![(first, last, 1)])
}

/// The first cut with an item of the wanted kind that is not durable.
fn cut_with(disk: &SimDisk, wanted: impl Fn(&Item) -> bool) -> Result<PowerCut, String> {
    let mut cuts = disk.take_epochs();
    cuts.push(disk.power_cut());
    cuts.into_iter()
        .find(|cut| cut.items().iter().any(&wanted))
        .ok_or_else(|| "there is no such cut".into())
}

fn sector_of(item: &Item) -> Option<u64> {
    match item.what {
        ItemKind::Sector { offset, .. } if item.file.ends_with(".ink") => Some(offset),
        _ => None,
    }
}

/// Keeps everything except one sector of the segment that is written, by its place among those of
/// the cut.
fn without_sector(cut: &PowerCut, which: usize) -> SimDisk {
    let mut seen = 0;
    cut.state(|_, item| {
        let is_lost = sector_of(item).is_some() && seen == which;
        seen += usize::from(sector_of(item).is_some());
        if is_lost { Fate::Dropped } else { Fate::Kept }
    })
}

fn nothing_more(disk: &SimDisk) -> SimDisk {
    disk.crash_with(|_| Fate::Dropped)
}

/// A log of three records in segment 1, and the disk, which records its epochs from there on.
fn three() -> Result<(SimDisk, Log), String> {
    let disk = disk();
    let log = log_of(&disk)?;
    append(&log, 1..=3, 1, 900)?;
    disk.record_epochs();
    Ok((disk, log))
}

/// A log of records up to `last`, each of which fills a segment.
fn large(last: u64) -> Result<(SimDisk, Log), String> {
    let disk = disk();
    let log = log_of(&disk)?;
    append(&log, 1..=last, 1, RECORD_BYTES_MAX)?;
    disk.record_epochs();
    Ok((disk, log))
}

fn torn_header() -> Made {
    let (disk, log) = large(2)?;
    append(&log, 3..=3, 1, RECORD_BYTES_MAX)?;
    let cut = cut_with(&disk, |item| sector_of(item) == Some(0))?;
    let found =
        cut.state(|_, item| if sector_of(item) == Some(0) { Fate::Garbage } else { Fate::Dropped });
    Ok((found, life(1, 2)))
}

fn lost_seal() -> Made {
    let (disk, log) = large(2)?;
    append(&log, 3..=3, 1, RECORD_BYTES_MAX)?;
    // The old segment is written once after the new header is durable.
    let is_seal =
        |item: &Item| &*item.file == "00000000000000000002.ink" && sector_of(item).is_some();
    Ok((cut_with(&disk, is_seal)?.state(|_, _| Fate::Dropped), life(1, 2)))
}

fn torn_group(which: usize) -> Made {
    let (disk, log) = three()?;
    append(&log, 4..=4, 1, 2500)?;
    let cut = cut_with(&disk, |item| sector_of(item).is_some())?;
    Ok((without_sector(&cut, which), life(1, 3)))
}

fn torn_group_head() -> Made {
    // Three records of 900 bytes end in the sixth sector of their block.
    torn_group(5)
}

fn torn_group_middle() -> Made {
    torn_group(8)
}

/// Segments 1 and 2 are truncated, and the next ones use their blocks.
fn used_again() -> Result<(SimDisk, Log), String> {
    let (disk, log) = large(5)?;
    log.truncate_before(Lsn::new(5)).map_err(words)?;
    append(&log, 6..=6, 1, RECORD_BYTES_MAX)?;
    append(&log, 7..=7, 1, RECORD_BYTES_MAX)?;
    if log.stats().segments_recycled == 0 {
        return Err("nothing was recycled".into());
    }
    disk.take_epochs();
    Ok((disk, log))
}

fn recycled() -> Made {
    let (disk, _log) = used_again()?;
    Ok((nothing_more(&disk), life(5, 7)))
}

fn recycled_torn() -> Made {
    let (disk, log) = used_again()?;
    append(&log, 8..=8, 1, 700)?;
    let cut = cut_with(&disk, |item| sector_of(item).is_some())?;
    let sectors = cut.items().iter().filter(|item| sector_of(item).is_some()).count();
    Ok((without_sector(&cut, sectors.saturating_sub(8)), life(5, 7)))
}

fn rot_at(disk: &SimDisk, text: &str) -> Result<SimDisk, String> {
    let found = nothing_more(disk);
    let name = "00000000000000000001.ink";
    let image = found.medium();
    let bytes = image
        .iter()
        .find(|(path, _)| path.ends_with(name))
        .map(|(_, bytes)| bytes)
        .ok_or("no segment")?;
    let at = bytes
        .windows(text.len())
        .position(|window| window == text.as_bytes())
        .ok_or("no such record")?;
    found.rot(PATH, name, at as u64 + 300, 4);
    Ok(found)
}

fn rot_below_promise() -> Made {
    let (disk, _log) = three()?;
    Ok((rot_at(&disk, "record 2 of")?, Right::Corrupt))
}

fn rot_in_last_group() -> Made {
    let (disk, log) = three()?;
    log.abandon();
    Ok((rot_at(&disk, "record 3 of")?, life(1, 2)))
}

fn rot_after_close() -> Made {
    let (disk, log) = three()?;
    log.close().map_err(words)?;
    Ok((rot_at(&disk, "record 3 of")?, Right::Corrupt))
}

fn lost_rename() -> Made {
    let (disk, log) = large(2)?;
    append(&log, 3..=3, 1, RECORD_BYTES_MAX)?;
    let is_rename = |item: &Item| matches!(item.what, ItemKind::Rename { .. });
    let cut = cut_with(&disk, is_rename)?;
    Ok((cut.state(|_, item| if is_rename(item) { Fate::Dropped } else { Fate::Kept }), life(1, 2)))
}

fn cut_front_undone() -> Made {
    let (disk, log) = three()?;
    log.truncate_before(Lsn::new(3)).map_err(words)?;
    let cut = cut_with(&disk, |item| sector_of(item).is_some())?;
    Ok((cut.state(|_, _| Fate::Dropped), life(1, 3)))
}

fn cut_front_name_kept() -> Made {
    let (disk, log) = large(4)?;
    log.truncate_before(Lsn::new(3)).map_err(words)?;
    let is_rename = |item: &Item| matches!(item.what, ItemKind::Rename { .. });
    let cut = cut_with(&disk, is_rename)?;
    Ok((cut.state(|_, _| Fate::Dropped), life(3, 4)))
}

fn cut_back_undone() -> Made {
    let (disk, log) = three()?;
    log.truncate_after(Lsn::new(1)).map_err(words)?;
    let cut = cut_with(&disk, |item| sector_of(item) == Some(0))?;
    Ok((cut.state(|_, _| Fate::Dropped), life(1, 3)))
}

fn cut_back() -> Made {
    let (disk, log) = three()?;
    log.truncate_after(Lsn::new(1)).map_err(words)?;
    append(&log, 2..=2, 2, 900)?;
    Ok((nothing_more(&disk), Right::Records(vec![(1, 1, 1), (2, 2, 2)])))
}

fn next_is_empty() -> Made {
    let (disk, log) = three()?;
    log.abandon();
    let directory = disk.directory(PATH);
    drop(directory.open("00000000000000000002.ink", &OpenFile::new_file()).map_err(words)?);
    directory.sync().map_err(words)?;
    Ok((nothing_more(&disk), Right::Corrupt))
}

fn second_crash() -> Made {
    let (first, _) = torn_group_head()?;
    first.record_epochs();
    drop(log_of(&first)?);
    let cut = cut_with(&first, |item| sector_of(item).is_some())?;
    // What the first crash left after the hole stays there: only the epoch group's own sectors are
    // touched.
    Ok((without_sector(&cut, 5), life(1, 3)))
}

fn old_epoch() -> Made {
    let (first, _) = torn_group_head()?;
    let log = log_of(&first)?;
    log.append_durable(&payload(4, 2, 60)).map_err(words)?;
    Ok((nothing_more(&first), Right::Records(vec![(1, 3, 1), (4, 4, 2)])))
}

fn lost_middle() -> Made {
    let (disk, log) = large(5)?;
    log.abandon();
    let found = nothing_more(&disk);
    let directory = found.directory(PATH);
    directory.remove("00000000000000000002.ink").map_err(words)?;
    directory.sync().map_err(words)?;
    Ok((found, Right::Corrupt))
}
