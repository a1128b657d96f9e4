//! Tests of the file that `inkstone tune` leaves beside a log.

use inkstone_io::{AnyDirectory, OsDirectory};
use inkstone_sim::{DiskOptions, SimDisk};

use super::*;
use crate::strategy::{choose, durability_for};

fn found() -> Capabilities {
    let mut found = Capabilities::of(std::path::Path::new("/proc")).expect("capabilities");
    found.mount.file_system = "ext4".into();
    found.direct = DioAlignment::Bytes { memory: 4, offset: 512 };
    found.file_system_id = Some(7);
    found
}

fn some() -> Strategy {
    let mut strategies = candidates();
    strategies.retain(|way| way.access == Access::Direct && way.durability == Durability::ODsync);
    strategies[0]
}

fn tuned() -> Tuned {
    Tuned::new(&found(), some(), "it was\nfaster", &["zeros: 3 us".into()]).expect("a durable way")
}

fn chosen(stored: Stored, found: &Capabilities, options: &Options) -> crate::strategy::Choice {
    choose(options, Some(found), stored).expect("never an error")
}

#[test]
fn what_was_written_is_read_and_used_and_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = AnyDirectory::new(OsDirectory::open(directory.path()).expect("a directory"));
    assert_eq!(Stored::of(&directory, Some(&found())), Stored::None);
    let tuned = tuned();
    for _ in 0..2 {
        tuned.write(directory.clone()).expect("written");
        assert_eq!(Stored::of(&directory, Some(&found())), Stored::Whole(Box::new(tuned.clone())));
    }
    assert_eq!(directory.list().expect("names"), [FILE]);
    let choice = chosen(Stored::of(&directory, Some(&found())), &found(), &Options::new());
    assert_eq!(choice.strategy, some());
    assert!(
        choice.reason.starts_with("tuned on 20") && choice.reason.ends_with(": it was faster"),
        "{choice}"
    );
    assert_eq!(choice.warnings, Vec::<String>::new());
}

#[test]
fn what_is_asked_for_goes_before_what_was_tuned() {
    let stored = || Stored::Whole(Box::new(tuned()));
    let buffered = chosen(stored(), &found(), &Options::new().access(Access::Buffered));
    assert_eq!(buffered.strategy.durability, durability_for(Access::Buffered, None));
    assert!(buffered.reason.starts_with("asked for buffered; as tuned it would be "), "{buffered}");
    let direct = chosen(stored(), &found(), &Options::new().access(Access::Direct));
    assert_eq!(direct.strategy, some(), "the tuned durability belongs to that access");
}

#[test]
fn a_file_for_another_place_is_void_and_says_what_differs() {
    type Change = fn(&mut Capabilities);
    let changes: [(&str, Change); 5] = [
        ("file-system-id", |found| found.file_system_id = Some(8)),
        ("file-system was", |found| found.mount.file_system = "xfs".into()),
        ("mount-options", |found| found.mount.options = Some("rw,data=journal".into())),
        ("O_DIRECT", |found| found.direct = DioAlignment::Refused),
        ("without barriers", |found| found.mount.barriers = Barriers::Off),
    ];
    for (word, change) in changes {
        let mut other = found();
        change(&mut other);
        let mut tuned = tuned();
        if word == "O_DIRECT" {
            // The facts are the same, and yet the way does not work.
            tuned.here = here(&other);
        }
        let choice = chosen(Stored::Whole(Box::new(tuned)), &other, &Options::new());
        let warned = choice.warnings.iter().find(|text| text.starts_with(FILE)).expect("a reason");
        assert!(warned.contains(word), "{word}: {warned}");
        assert!(!choice.reason.contains("tuned"), "{choice}");
    }
    let mut memory = found();
    memory.in_memory = true;
    assert!(
        Tuned::new(&memory, some(), "", &[]).expect_err("memory").to_string().contains("memory")
    );
}

#[test]
fn no_damaged_or_forged_file_is_used_or_stops_an_opening() {
    let sound = tuned().to_text();
    assert_eq!(Tuned::parse(sound.as_bytes()), Ok(tuned()));
    let mut bytes = sound.clone().into_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            assert!(Tuned::parse(&bytes).is_err(), "bit {bit} of byte {at}");
            bytes[at] ^= 1 << bit;
        }
        assert!(Tuned::parse(&bytes[..at]).is_err(), "cut at {at}");
    }
    // Whole, with a good checksum, and not durable.
    for durability in [Durability::None, Durability::Msync] {
        let mut forged = tuned();
        forged.strategy.durability = durability;
        let stored = Tuned::parse(forged.to_text().as_bytes())
            .map_or_else(Stored::Void, |t| Stored::Whole(Box::new(t)));
        let choice = chosen(stored, &found(), &Options::new());
        assert_eq!(choice.strategy.durability, Durability::RwfDsync, "{choice}");
        assert!(choice.warnings[0].contains("durability"), "{:?}", choice.warnings);
    }
    for bytes in
        [&b""[..], b"\xff\xfe", b"inkstone tuned 2\n", b"inkstone tuned 1\n", &[b'x'; 100_000]]
    {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(FILE), bytes).expect("written");
        let log = crate::Log::open(directory.path(), Options::small()).expect("it opens");
        assert!(
            log.choice().warnings.iter().any(|text| text.starts_with(FILE)),
            "{:?}",
            log.choice()
        );
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join(FILE)).expect("a directory of that name");
    crate::Log::open(directory.path(), Options::small()).expect("it opens");
}

#[test]
fn a_power_cut_at_any_moment_leaves_the_old_file_or_the_new_one() {
    let (old, mut new) = (tuned(), tuned());
    new.reason = "another".into();
    let disk = SimDisk::new(1, DiskOptions::default());
    let directory = disk.directory("/log");
    old.write(&directory).expect("written");
    disk.record_epochs();
    new.write(&directory).expect("written");
    let mut seen = (0, 0);
    for cut in disk.take_epochs().into_iter().chain([disk.power_cut()]) {
        for state in cut.subsets().expect("few items") {
            let bytes = read(&AnyDirectory::new(state.directory("/log")))
                .expect("readable")
                .expect("one of them");
            match Tuned::parse(&bytes).expect("whole") {
                found if found == old => seen.0 += 1,
                found => {
                    assert_eq!(found, new);
                    seen.1 += 1;
                }
            }
        }
    }
    assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
    // When it has returned, only the new one.
    let after = disk.crash(9);
    assert_eq!(
        Tuned::parse(
            &read(&AnyDirectory::new(after.directory("/log"))).expect("readable").expect("a file")
        ),
        Ok(new)
    );
}
