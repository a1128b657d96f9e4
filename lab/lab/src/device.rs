//! What a device takes for a write, a flush and a FUA write, and what that suggests of it, in words.
//!
//! *Owns*: the text, and where it ends to be a guess. *May not touch*: figures. It reads one table.

use crate::result::{Place, Table};
use crate::table::numbers::time;
use crate::writing::WRITE_BYTES;

/// The ways whose calls are taken for the device's: nothing but the device is between them.
const WITH_FLUSH: &str = "reuse direct fdatasync";
const ALONE: [&str; 2] = ["reuse direct rwf-dsync", "reuse direct o-dsync"];

/// A flush that is this quick leaves no time to program flash: devices protected against power loss
/// answer in 5 to 20 us.
const PROTECTED_NS_MAX: f64 = 50e3;
/// A flush that is this slow empties a cache: consumer drives take 0.5 to 5 ms.
const EMPTIES_NS_MIN: f64 = 500e3;

/// The notes of a table that has these ways.
pub(crate) fn notes(table: &Table) -> Vec<String> {
    let figure = |way: &str, what| table.way(way).and_then(|way| way.figure(what));
    let (write, flush) = (figure(WITH_FLUSH, "write p50"), figure(WITH_FLUSH, "sync p50"));
    let Some((write, flush)) = write.zip(flush) else { return Vec::new() };
    let place = &table.place;
    let alone = ALONE.iter().find_map(|way| figure(way, "write p50"));
    let alone = alone.map(|alone| {
        let name = if place.fua == Some(true) { "a FUA write" } else { "a write with its flush" };
        format!(", {name} {}", time(alone))
    });
    let costs = format!(
        "A write of 4 KiB past the page cache takes {}, a flush {}{} (medians). {}",
        time(write),
        time(flush),
        alone.unwrap_or_default(),
        suggests(place, flush)
    );
    [Some(costs), tears(place)].into_iter().flatten().collect()
}

/// What a flush of so many nanoseconds suggests.
fn suggests(place: &Place, flush: f64) -> &'static str {
    match place.write_cache.as_deref() {
        Some("write through") => "The device says that it has no volatile cache to flush.",
        None => "It is unknown whether the device has a volatile cache.",
        _ if flush < PROTECTED_NS_MAX => {
            "Such a flush has nothing to wait for: the cache is protected against power loss, or \
             something below (a hypervisor, a controller) keeps the flush for itself."
        }
        _ if flush >= EMPTIES_NS_MIN => {
            "Such a flush empties a cache that is not protected against power loss."
        }
        _ => "Such a flush does not tell whether the cache is protected against power loss.",
    }
}

fn tears(place: &Place) -> Option<String> {
    let text = match place.atomic_write_bytes? {
        0 => "4 KiB can tear in a power cut: statx reports no atomic writes here.".into(),
        bytes if u64::from(bytes) < WRITE_BYTES => {
            format!(
                "4 KiB can tear in a power cut: statx reports atomic writes of {bytes} B at most."
            )
        }
        bytes => format!(
            "4 KiB need not tear in a power cut: statx reports atomic writes of up to {} KiB, for \
             those that ask for it (RWF_ATOMIC). No way of the lab does, nor does the log.",
            bytes / 1024
        ),
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Unit, Way, figure};

    fn table(flush_us: f64, fua: bool, atomic_write_bytes: Option<u32>) -> Table {
        let way = |name: &str, figures: &[(&str, f64)]| Way {
            name: name.into(),
            figures: figures.iter().map(|(what, us)| figure(what, Unit::Ns, us * 1e3)).collect(),
            ..Way::default()
        };
        let place = Place {
            write_cache: Some("write back".into()),
            fua: Some(fua),
            atomic_write_bytes,
            ..Place::default()
        };
        let ways = vec![
            way(WITH_FLUSH, &[("write p50", 20.0), ("sync p50", flush_us)]),
            way(ALONE[0], &[("write p50", 4007.0)]),
        ];
        Table { ways, place, ..Table::default() }
    }

    #[test]
    fn a_device_is_described_by_what_its_calls_take() {
        for (flush_us, words) in [
            (12.0, "is protected against power loss, or something below"),
            (93.0, "does not tell"),
            (1600.0, "is not protected against power loss"),
        ] {
            let said = notes(&table(flush_us, true, None)).concat();
            assert!(said.contains(words) && said.contains(", a FUA write 4"), "{said}");
        }
        let said = notes(&table(93.0, false, None)).concat();
        assert!(said.contains(", a write with its flush 4"), "{said}");
        let mut through = table(2.0, false, None);
        through.place.write_cache = Some("write through".into());
        assert!(notes(&through).concat().ends_with("no volatile cache to flush."));
        assert_eq!(notes(&Table::default()), Vec::<String>::new());
    }

    #[test]
    fn whether_4_kib_can_tear_is_said_where_it_is_known() {
        for (bytes, words) in [
            (0, "4 KiB can tear in a power cut: statx reports no"),
            (2048, "4 KiB can tear in a power cut: statx reports atomic writes of 2048 B"),
            (16384, "4 KiB need not tear in a power cut: statx reports atomic writes of up to 16"),
        ] {
            let said = notes(&table(93.0, true, Some(bytes)));
            assert!(said[1].starts_with(words), "{said:?}");
        }
        assert_eq!(notes(&table(93.0, true, None)).len(), 1);
    }
}
