//! O_DIRECT that is taken when a file is opened and read, and refused at a write: the log goes on
//! through the page cache, and says so. What is refused at a read is noticed at the opening.
//!
//! *Owns*: that disk. What is refused at other calls: `refused` of `proof/powerloss/tests`.

use inkstone::{Access, Durability, Log, Lsn, Options, Reader, inspect};
use inkstone_sim::{DiskOptions, SimDisk};

fn options() -> Options {
    Options::small().own_thread(false).access(Access::Direct)
}

#[test]
fn o_direct_that_is_refused_at_a_write_costs_no_record() {
    for durability in [Durability::RwfDsync, Durability::ODsync, Durability::Fdatasync] {
        goes_on(&options().durability(durability));
    }
}

fn goes_on(options: &Options) {
    let disk_options = DiskOptions { refuses_direct_writes: true, ..DiskOptions::default() };
    let disk = SimDisk::new(1, disk_options);
    let mut count = 0;
    for _ in 0..3 {
        let log = Log::open_in(&disk.directory("/log"), options.clone()).unwrap();
        let choice = log.choice();
        assert!(choice.warnings.concat().contains("O_DIRECT is refused"), "{choice:?}");
        for _ in 0..100 {
            count += 1;
            assert_eq!(log.append_durable(&[7; 3000]).unwrap(), Lsn::new(count));
        }
        assert!(log.stats().segments > 2);
        let found = log.reader().records(Lsn::FIRST).filter(Result::is_ok).count();
        assert_eq!(found as u64, count);
        // What was acknowledged is durable.
        let found = Log::open_in(&disk.crash(count).directory("/log"), options.clone()).unwrap();
        assert_eq!(found.last(), Lsn::new(count));
        log.close().unwrap();
    }
    let directory = disk.directory("/log");
    let reader = Reader::open_in(&directory, options.clone()).unwrap();
    assert_eq!(reader.records(Lsn::FIRST).filter(Result::is_ok).count() as u64, count);
    assert!(inspect::verify_in(&directory).unwrap().is_intact());
}
