//! Bills on file systems of our own: what is counted is tested exactly. Needs root, loop devices
//! and tracefs; where those are missing each test prints loudly that it did not run.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::support::{can_bill, not_run, plan, ways};
use inkstone_host::FsKind;
use inkstone_lab::billing::{Devices, bill_pass};
use inkstone_lab::image::{Image, LoopMode};
use inkstone_lab::pass::{Limits, Writer};
use inkstone_lab::result::{Bill, DurableFinding, Kind, Table, Way};
use inkstone_lab::site::Site;
use inkstone_lab::stage::stage;
use inkstone_lab::writing::Writing;

const COMMITS: u64 = 64;
const FILE_BYTES: u64 = 1 << 20;

/// Runs the ways on one image and returns the run, or prints loudly why not.
fn on(test: &str, kind: FsKind, mode: LoopMode, ways: Vec<Writing>) -> Option<Table> {
    on_in(Path::new(env!("CARGO_TARGET_TMPDIR")), test, kind, mode, ways)
}

/// As [`on`], with the image's backing file below `parent`.
fn on_in(
    parent: &Path,
    test: &str,
    kind: FsKind,
    mode: LoopMode,
    ways: Vec<Writing>,
) -> Option<Table> {
    if !can_bill(test) {
        return None;
    }
    let directory = tempfile::tempdir_in(parent).expect("a directory");
    let run =
        crate::support::run(directory.path(), &crate::support::on(kind, mode, plan(ways, COMMITS)));
    assert!(
        std::fs::read_dir(directory.path()).expect("the directory").next().is_none(),
        "something was left behind"
    );
    match run {
        Err(why) if why.contains("is not installed") => not_run(test, &why),
        run => return Some(run.expect("a run")),
    }
    None
}

fn measured<'a>(run: &'a Table, name: &str) -> &'a Way {
    let way = run.way(name).unwrap_or_else(|| panic!("no way {name}"));
    assert!(way.is_measured(), "{name}: {:?}", way.missing);
    way
}

fn bill<'a>(run: &'a Table, name: &str) -> &'a Bill {
    let bill = measured(run, name).bill.as_ref().expect("a bill");
    assert_eq!((bill.commits, bill.lost_events), (COMMITS, 0), "{name}");
    bill
}

/// On a device that only we use: flushes equal the kernel's own count, and at least 99% of the
/// writes are explained.
fn agrees(run: &Table) {
    for way in &run.ways {
        let bill = bill(run, &way.name);
        let check = bill.cross_check.expect("counters");
        assert_eq!(check.traced_flushes, check.counted_flushes, "{}", way.name);
        assert_eq!(check.traced_write_sectors, check.counted_write_sectors, "{}", way.name);
        let unknown = bill.count(Kind::UnattributedWrite);
        let known = bill.own_writes().requests;
        assert!(unknown * 100 <= known, "{}: {:?}", way.name, bill.unattributed);
    }
}

const WAYS: [&str; 7] = [
    "new fdatasync",
    "fallocate fdatasync",
    "zero-range fdatasync",
    "zeros fdatasync",
    "reuse fdatasync",
    "reuse direct o-dsync",
    "reuse direct rwf-dsync",
];

/// The published result, counted: growing and unwritten blocks make the journal write at each
/// commit, written ones do not.
fn overwrites_cost_one_write_and_one_flush(test: &str, kind: FsKind) {
    let Some(run) = on(test, kind, LoopMode::Direct, ways(WAYS, FILE_BYTES)) else { return };
    agrees(&run);
    for name in ["new fdatasync", "fallocate fdatasync", "zero-range fdatasync"] {
        let bill = bill(&run, name);
        assert!(
            bill.count(Kind::JournalWrite) >= COMMITS,
            "{name}: {:?}",
            bill.of(&[Kind::JournalWrite])
        );
        assert_eq!(bill.count(Kind::DataWrite), COMMITS, "{name}");
        assert!(bill.count(Kind::Flush) > COMMITS, "{name}: the journal flushes too");
    }
    for name in
        ["zeros fdatasync", "reuse fdatasync", "reuse direct o-dsync", "reuse direct rwf-dsync"]
    {
        let bill = bill(&run, name);
        // The first commit after a preparation may include what the preparation left: once in the
        // whole pass.
        assert!(
            bill.count(Kind::JournalWrite) <= 1,
            "{name}: {:?}",
            bill.of(&[Kind::JournalWrite])
        );
        assert_eq!(
            (bill.count(Kind::DataWrite), bill.of(&[Kind::DataWrite]).bytes),
            (COMMITS, COMMITS * 4096),
            "{name}"
        );
        assert!(
            (COMMITS..=COMMITS + 1).contains(&bill.count(Kind::Flush)),
            "{name}: {} flushes",
            bill.count(Kind::Flush)
        );
        assert_eq!(bill.count(Kind::DataRead), 0, "{name}");
    }
    for way in &run.ways {
        let durable = &measured(&run, &way.name).durable;
        assert!(
            matches!(durable, Some(DurableFinding::Seen { commits: COMMITS })),
            "{}: {durable:?}",
            way.name
        );
    }
}

#[test]
#[ignore = "needs root, tracefs and mkfs.ext4"]
fn ext4_with_a_journal() {
    overwrites_cost_one_write_and_one_flush("ext4_with_a_journal", FsKind::Ext4);
}

#[test]
#[ignore = "needs root, tracefs and mkfs.xfs"]
fn xfs() {
    overwrites_cost_one_write_and_one_flush("xfs", FsKind::Xfs);
}

#[test]
fn ext4_without_a_journal_has_no_journal_writes_at_all() {
    let test = "ext4_without_a_journal_has_no_journal_writes_at_all";
    let Some(run) = on(test, FsKind::Ext4NoJournal, LoopMode::Direct, ways(WAYS, FILE_BYTES))
    else {
        return;
    };
    agrees(&run);
    for way in &run.ways {
        assert_eq!(bill(&run, &way.name).count(Kind::JournalWrite), 0, "{}", way.name);
        assert_eq!(bill(&run, &way.name).count(Kind::Flush), COMMITS, "{}", way.name);
    }
    assert!(
        bill(&run, "new fdatasync").count(Kind::MetadataWrite) >= COMMITS,
        "each append writes the inode"
    );
}

/// What the trace shows of writes without a sync is that they are not durable, whatever they claim.
#[test]
#[ignore = "needs root and tracefs"]
fn a_way_that_does_not_sync_is_seen_not_to_be_durable() {
    if !can_bill("a_way_that_does_not_sync_is_seen_not_to_be_durable") {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let image = Image::make(directory.path(), FsKind::Ext4, LoopMode::Direct, 336 << 20);
    let image = image.expect("an image");
    let mut site = Site::open(image.path(), "image", 16 << 20).expect("a site");
    site.private = true;
    let stop = AtomicBool::new(false);
    let session = site.session(&stop);
    for lie in ways(["reuse no-sync", "reuse direct no-sync"], FILE_BYTES) {
        let staged = stage(&session, &lie, "lie").expect("a file");
        let mut writer = Writer::for_way(&lie).expect("a writer");
        let devices = Devices::of(&site).expect("a device");
        let limits = Limits { commits: COMMITS, time: Duration::MAX };
        let of = (&lie, &staged.file);
        let billed = bill_pass(&devices, &session, of, &mut writer, limits);
        let (_, durable) = billed.expect("a bill");
        assert!(
            matches!(durable, DurableFinding::NotCovered { .. }),
            "{}: {durable:?}",
            lie.name()
        );
    }
    site.close().expect("closed");
    image.remove().expect("removed");
}

/// Every flush reaches the loop device, and ends in memory.
#[test]
fn a_file_system_on_memory_is_not_durable_however_well_it_flushes() {
    let test = "a_file_system_on_memory_is_not_durable_however_well_it_flushes";
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return not_run(test, "/dev/shm is not there");
    }
    let ways = ways(["reuse fdatasync"], FILE_BYTES);
    let Some(run) = on_in(memory, test, FsKind::Ext4, LoopMode::Buffered, ways) else { return };
    assert_eq!(bill(&run, "reuse fdatasync").count(Kind::Flush), COMMITS);
    let durable = &measured(&run, "reuse fdatasync").durable;
    assert!(
        matches!(durable, Some(DurableFinding::NotCovered { reason }) if reason.contains("memory")),
        "{durable:?}"
    );
}

/// The published trace has a read before each overwrite. It happens when less than a page is
/// overwritten and the page is not cached, and only then.
#[test]
fn a_read_comes_before_an_overwrite_only_of_part_of_an_uncached_page() {
    let test = "a_read_comes_before_an_overwrite_only_of_part_of_an_uncached_page";
    let names = [
        "reuse fdatasync",
        "reuse fdatasync cold",
        "reuse fdatasync 512B",
        "reuse fdatasync 512B cold",
    ];
    let ways = ways(names, FILE_BYTES);
    let Some(run) = on(test, FsKind::Ext4, LoopMode::Buffered, ways) else { return };
    agrees(&run);
    let reads = |name: &str| bill(&run, name).count(Kind::DataRead);
    assert_eq!(reads("reuse fdatasync"), 0);
    assert_eq!(reads("reuse fdatasync cold"), 0);
    assert_eq!(reads("reuse fdatasync 512B"), 0);
    let pages = COMMITS * 512 / 4096;
    assert_eq!(reads("reuse fdatasync 512B cold"), pages, "one for each page, at its first part");
}
