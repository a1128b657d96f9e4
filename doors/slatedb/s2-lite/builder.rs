//! Builds the databases of s2-lite's and of SlateDB's own tests on this log, with one directory for
//! each store and path.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use inkstone_slatedb::{Tuning, Wals};
use slatedb::object_store::{ObjectStore, path::Path};
use slatedb::{Db, DbBuilder};

type Stores = Vec<Arc<dyn ObjectStore>>;

/// As `Db::builder`, with the log. Stores are kept, so that no two get the same number.
pub fn builder<P: Into<Path> + Clone>(path: P, store: Arc<dyn ObjectStore>) -> DbBuilder<P> {
    with_interval(Some(Duration::ZERO), path, store)
}

/// The same; without an interval, rows become durable only by a flush.
pub fn with_interval<P: Into<Path> + Clone>(
    flush_interval: Option<Duration>,
    path: P,
    store: Arc<dyn ObjectStore>,
) -> DbBuilder<P> {
    static STORES: LazyLock<(std::path::PathBuf, Mutex<Stores>)> = LazyLock::new(|| {
        let root = std::env::temp_dir().join(format!("slatedb-own-tests-{}", std::process::id()));
        // A log makes its root, and nothing above that.
        std::fs::create_dir_all(&root).expect("a place for the roots");
        (root, Mutex::default())
    });
    let mut stores = STORES.1.lock().expect("the stores");
    let number = stores.iter().position(|known| Arc::ptr_eq(known, &store)).unwrap_or_else(|| {
        stores.push(Arc::clone(&store));
        stores.len() - 1
    });
    let mut tuning = Tuning::default();
    tuning.log = tuning.log.own_thread(flush_interval.is_some());
    let root = STORES.0.join(number.to_string());
    let wal = Wals::tuned(root, store.clone(), tuning).of(path.clone());
    Db::builder(path, store).with_wal_writer(Box::new(wal))
}
