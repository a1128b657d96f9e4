//! Chooses the way of writing for a log, by rule and without I/O, and says why.
//!
//! *Owns*: the rule, and the precedence: the options first, then the rule. *May not touch*: files;
//! `inkstone-io` knows what file system and device can do.
//!
//! The rule follows what the lab measured (docs/lab.md): where a file system overwrites in place, a
//! write past the page cache that carries its own durability is fastest; where it writes every
//! block to a new place, preparing and reusing blocks gains little.

mod direct;

use inkstone_io::{
    Access, Barriers, Capabilities, CopyOnWrite, DioAlignment, Durability, Preparation, Reuse,
    Strategy,
};

use crate::choice::{Asks, Choice, Trial, in_words};
use crate::error::{Error, Result};
use crate::options::Options;
use direct::no_direct;

/// Fills in what the options leave open, by file system and device. `found` is `None` if nothing is
/// known about them.
///
/// # Errors
/// [`Error::Invalid`] when the options contradict each other, or ask for something that does not
/// work here.
pub(crate) fn choose(options: &Options, found: Option<&Capabilities>) -> Result<Choice> {
    let (base, mut reason) = found.map_or_else(unknown, by_rule);
    let access = options.access.unwrap_or(base.access);
    // If the durability is not set, it follows from the access, also from one that was asked for.
    let open = if access == base.access { base.durability } else { durability_for(access, found) };
    let strategy = Strategy {
        preparation: options.preparation.unwrap_or(base.preparation),
        reuse: match options.free_segments_max {
            Some(0) => Reuse::New,
            Some(_) => Reuse::Reuse,
            None => base.reuse,
        },
        access,
        durability: options.durability.unwrap_or(open),
    };
    if strategy != base {
        let words = asked(options, &base, &strategy);
        reason = format!("asked for {words}; by rule it would be {} ({reason})", in_words(&base));
    }
    strategy.check().map_err(Error::Invalid)?;
    // If the kernel does not report it, a caller that asks for direct access may try.
    let told = found.filter(|found| found.direct != DioAlignment::NotTold);
    if access == Access::Direct
        && let Some(why) = told.and_then(no_direct)
    {
        return Err(Error::Invalid(format!(
            "access direct: {why}; leave the access open, or use buffered"
        )));
    }
    let warnings = found.map_or_else(Vec::new, warnings);
    let trial = found.filter(|_| options.durability.is_none() && access == base.access);
    let trial = trial.and_then(|found| trial_by_rule(found, &base));
    Ok(Choice { strategy, reason, asks: asks(found), trial, warnings })
}

/// The way of writing that the rule chooses here, and why.
pub fn rule(found: &Capabilities) -> Choice {
    let (strategy, reason) = by_rule(found);
    let trial = trial_by_rule(found, &strategy);
    Choice { strategy, reason, asks: asks(Some(found)), trial, warnings: warnings(found) }
}

/// The parts of the strategy that were asked for, in words.
fn asked(options: &Options, base: &Strategy, strategy: &Strategy) -> String {
    let asked = |is_asked: bool, word: String| is_asked.then_some(word);
    let words: Vec<_> = [
        asked(options.preparation.is_some(), strategy.preparation.to_string()),
        asked(
            options.free_segments_max.is_some() && strategy.reuse != base.reuse,
            strategy.reuse.to_string(),
        ),
        asked(options.access.is_some(), strategy.access.to_string()),
        asked(options.durability.is_some(), strategy.durability.to_string()),
    ]
    .into_iter()
    .flatten()
    .collect();
    words.join(", ")
}

fn durability_for(access: Access, found: Option<&Capabilities>) -> Durability {
    let has_dsync = found.is_none_or(|found| found.dsync_writes);
    if access == Access::Direct && has_dsync { Durability::RwfDsync } else { Durability::Fdatasync }
}

fn strategy(
    preparation: Preparation,
    reuse: Reuse,
    access: Access,
    found: Option<&Capabilities>,
) -> Strategy {
    let durability = durability_for(access, found);
    Strategy { preparation, reuse, access, durability }
}

fn unknown() -> (Strategy, String) {
    let safe = strategy(Preparation::Zeros, Reuse::Reuse, Access::Buffered, None);
    (safe, "nothing is known about this file system, and this way works on every one".into())
}

fn by_rule(found: &Capabilities) -> (Strategy, String) {
    let name = &found.mount.file_system;
    if found.copy_on_write == CopyOnWrite::Always {
        let reason = format!(
            "{name} writes every block to a new place, so preparing and reusing blocks gains little"
        );
        return (strategy(Preparation::Fallocate, Reuse::New, Access::Buffered, None), reason);
    }
    if let Some(why) = no_direct(found) {
        return (strategy(Preparation::Zeros, Reuse::Reuse, Access::Buffered, None), why);
    }
    let fua = match found.device.as_ref().map(|device| (device.fua, device.volatile_cache)) {
        Some((_, Some(false))) => "the device has no volatile cache, so no flush is needed",
        Some((Some(true), Some(true))) => {
            "the device has a volatile cache and FUA, so a log tries with its first commits \
             whether one write that is durable by itself is faster than a write and an fdatasync"
        }
        Some((Some(true), _)) => "the device has FUA, so a commit is one write",
        _ => "a commit is one write and one flush",
    };
    let fua = if found.dsync_writes {
        fua
    } else {
        "pwritev2(RWF_DSYNC) is refused here (an old kernel, a sandbox), so a commit is a write \
         and an fdatasync"
    };
    let reason = format!("{name} overwrites in place and has O_DIRECT; {fua}");
    (strategy(Preparation::Zeros, Reuse::Reuse, Access::Direct, Some(found)), reason)
}

/// Whether a log tries if a write and an fdatasync are faster than what the rule says: one
/// published figure for a device with a volatile cache and FUA has them 2.4 times as fast.
fn trial_by_rule(found: &Capabilities, base: &Strategy) -> Option<Trial> {
    let device = found.device.as_ref()?;
    let is_open = device.fua == Some(true) && device.volatile_cache == Some(true);
    (is_open && base.durability == Durability::RwfDsync).then_some(Trial::Runs)
}

/// The log asks unless it is known to be unnecessary.
fn asks(found: Option<&Capabilities>) -> Asks {
    let Some(found) = found else { return Asks::EachGroup };
    match found.mount.file_system.as_str() {
        _ if found.in_memory => Asks::Never,
        "ext4" if found.journal == Some(false) => Asks::Never,
        // All three have one driver. It shares no blocks, and its fdatasync waits only for changes
        // of the size or the blocks. With data=journal the data itself goes through the journal.
        // There is no O_DIRECT then, which is a surer sign than mountinfo.
        "ext2" | "ext3" | "ext4" if matches!(found.direct, DioAlignment::Bytes { .. }) => {
            Asks::ReservedBlocks
        }
        // Overlays too: they have the journal of the file system below.
        _ => Asks::EachGroup,
    }
}

fn warnings(found: &Capabilities) -> Vec<String> {
    let mut warnings = Vec::new();
    if found.mount.barriers == Barriers::Off {
        let place = found.mount.target.as_ref().unwrap_or(&found.directory).display();
        let why = if found.mount.file_system == "overlay" {
            "is a volatile overlay"
        } else {
            "is mounted without barriers"
        };
        warnings.push(format!("{place} {why}: a power loss can lose acknowledged records"));
    }
    if found.mount.options.is_none() {
        let directory = found.directory.display();
        warnings.push(format!(
            "the mount options of {directory} are unknown (/proc/self/mountinfo does not show \
             them), so it is unknown whether a sync reaches the medium"
        ));
    }
    if let Some(why) = found.buffered_loop_below() {
        warnings.push(format!("{why}; attach it with `losetup --direct-io=on`"));
    }
    if let Some(memory) = found.memory_below() {
        warnings.push(format!(
            "this file system is in memory ({memory}): nothing here survives a power loss"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_io::{DeviceFacts, DeviceNumber, MountFacts};

    fn on(file_system: &str, direct: DioAlignment, copy_on_write: CopyOnWrite) -> Capabilities {
        Capabilities {
            directory: "/log".into(),
            mount: MountFacts {
                file_system: file_system.into(),
                target: Some("/".into()),
                source: Some("/dev/x".into()),
                options: Some("rw".into()),
                read_only: false,
                barriers: Barriers::On,
            },
            device: None::<DeviceFacts>,
            direct,
            copy_on_write,
            dsync_writes: true,
            in_memory: file_system == "tmpfs",
            journal: None,
        }
    }

    const SECTORS: DioAlignment = DioAlignment::Bytes { memory: 4, offset: 512 };

    #[test]
    fn the_rule_goes_by_what_blocks_do() {
        let chosen =
            |found: Capabilities| choose(&Options::default(), Some(&found)).expect("a choice");
        let ext4 = chosen(on("ext4", SECTORS, CopyOnWrite::Never));
        assert_eq!(ext4.strategy, strategy(Preparation::Zeros, Reuse::Reuse, Access::Direct, None));
        assert_eq!(ext4.strategy.durability, Durability::RwfDsync);
        let xfs = chosen(on("xfs", SECTORS, CopyOnWrite::SharedExtents));
        let without =
            Capabilities { journal: Some(false), ..on("ext4", SECTORS, CopyOnWrite::Never) };
        let asks = [xfs.asks, ext4.asks, chosen(without).asks];
        assert_eq!(asks, [Asks::EachGroup, Asks::ReservedBlocks, Asks::Never]);
        let btrfs = chosen(on("btrfs", SECTORS, CopyOnWrite::Always));
        assert_eq!(
            btrfs.strategy,
            strategy(Preparation::Fallocate, Reuse::New, Access::Buffered, None)
        );
        assert_eq!(btrfs.asks, Asks::EachGroup);
        let huge = DioAlignment::Bytes { memory: 4, offset: 65536 };
        for direct in [DioAlignment::Refused, DioAlignment::NotTold, huge] {
            let other = chosen(on("other", direct, CopyOnWrite::Never));
            assert_eq!(other.strategy.access, Access::Buffered, "{other}");
            assert_eq!(other.strategy.durability, Durability::Fdatasync);
            assert_eq!(other.asks, Asks::EachGroup);
            assert!(other.reason.contains("O_DIRECT"), "{other}");
        }
        let memory = chosen(on("tmpfs", DioAlignment::Refused, CopyOnWrite::Never));
        assert!(memory.warnings[0].contains("memory (tmpfs)"), "{:?}", memory.warnings);
        assert_eq!(memory.asks, Asks::Never);
        let none = choose(&Options::default(), None).expect("a choice");
        assert!(none.reason.contains("nothing is known"), "{none}");
        assert_eq!(none.asks, Asks::EachGroup);
    }

    #[test]
    fn the_log_tries_where_the_device_has_a_volatile_cache_and_fua_and_nowhere_else() {
        let device = |volatile_cache, fua| DeviceFacts {
            name: "nvme0n1".into(),
            number: DeviceNumber { major: 259, minor: 0 },
            node: "/dev/nvme0n1".into(),
            partition: None,
            partition_start_bytes: 0,
            volatile_cache,
            fua,
            scheduler: None,
            hardware_queues: None,
            rotational: None,
            model: None,
            logical_block_bytes: None,
            physical_block_bytes: None,
            loop_backing: None,
            loop_direct: None,
        };
        let facts = [None, Some(false), Some(true)];
        for (volatile_cache, fua) in facts.into_iter().flat_map(|one| facts.map(|two| (one, two))) {
            let ext4 = on("ext4", SECTORS, CopyOnWrite::Never);
            let found = Capabilities { device: Some(device(volatile_cache, fua)), ..ext4 };
            let chosen = choose(&Options::default(), Some(&found)).expect("a choice");
            let both = (volatile_cache, fua) == (Some(true), Some(true));
            assert_eq!(chosen.trial, both.then_some(Trial::Runs), "{chosen}");
            assert_eq!(chosen, rule(&found));
            let refused = Capabilities { dsync_writes: false, ..found.clone() };
            assert_eq!(rule(&refused).trial, None, "RWF_DSYNC is refused");
            let asked = Options::new().durability(Durability::RwfDsync);
            assert_eq!(choose(&asked, Some(&found)).expect("a choice").trial, None, "asked for");
            let btrfs = Capabilities { copy_on_write: CopyOnWrite::Always, ..found };
            let direct = choose(&Options::new().access(Access::Direct), Some(&btrfs));
            assert_eq!(direct.expect("a choice").trial, None, "the rule would be another one");
        }
    }

    #[test]
    fn a_file_system_is_not_asked_only_where_it_is_known() {
        for (name, direct, journal, asked) in [
            ("ext4", SECTORS, Some(true), Asks::ReservedBlocks),
            ("ext3", SECTORS, None, Asks::ReservedBlocks),
            ("ext2", SECTORS, None, Asks::ReservedBlocks),
            // data=journal, or a kernel that does not report the alignment.
            ("ext4", DioAlignment::Refused, Some(true), Asks::EachGroup),
            ("ext3", DioAlignment::NotTold, None, Asks::EachGroup),
            ("ext4", DioAlignment::Refused, Some(false), Asks::Never),
            ("overlay", SECTORS, None, Asks::EachGroup),
            ("f2fs", SECTORS, None, Asks::EachGroup),
        ] {
            let found = Capabilities { journal, ..on(name, direct, CopyOnWrite::Never) };
            assert_eq!(asks(Some(&found)), asked, "{name}, {direct:?}, {journal:?}");
        }
    }

    #[test]
    fn what_is_asked_for_is_done_or_refused_and_said() {
        let ext4 = on("ext4", SECTORS, CopyOnWrite::Never);
        let buffered =
            choose(&Options::new().access(Access::Buffered), Some(&ext4)).expect("buffered works");
        assert_eq!(
            buffered.strategy.durability,
            Durability::Fdatasync,
            "left open, it goes with the access"
        );
        assert!(
            buffered
                .reason
                .starts_with("asked for buffered; by rule it would be zeros, reuse, direct")
        );
        let tmpfs = on("tmpfs", DioAlignment::Refused, CopyOnWrite::Never);
        let refused =
            choose(&Options::new().access(Access::Direct), Some(&tmpfs)).expect_err("no O_DIRECT");
        assert!(refused.to_string().contains("has no O_DIRECT"), "{refused}");
        let not_told = on("old", DioAlignment::NotTold, CopyOnWrite::Never);
        choose(&Options::new().access(Access::Direct), Some(&not_told))
            .expect("a caller that asks for it may try");
        let none =
            choose(&Options::new().free_segments_max(0), Some(&ext4)).expect("no recycling works");
        assert_eq!(none.strategy.reuse, Reuse::New);
    }
}
