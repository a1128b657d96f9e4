//! A database of s2-lite's own tests, on this log: one directory for each store and path.

use std::sync::{Arc, LazyLock, Mutex};

use inkstone_slatedb::Wals;
use slatedb::object_store::{ObjectStore, path::Path};
use slatedb::{Db, DbBuilder};

type Stores = Vec<Arc<dyn ObjectStore>>;

/// As `Db::builder`, with the log. Stores are kept, so that none gets another's number.
pub fn builder<P: Into<Path> + Clone>(path: P, store: Arc<dyn ObjectStore>) -> DbBuilder<P> {
    static STORES: LazyLock<(std::path::PathBuf, Mutex<Stores>)> = LazyLock::new(|| {
        let root = std::env::temp_dir().join(format!("s2-lite-own-tests-{}", std::process::id()));
        (root, Mutex::default())
    });
    let mut stores = STORES.1.lock().expect("the stores");
    let number = stores.iter().position(|known| Arc::ptr_eq(known, &store)).unwrap_or_else(|| {
        stores.push(Arc::clone(&store));
        stores.len() - 1
    });
    let wal = Wals::at(STORES.0.join(number.to_string())).of(path.clone());
    Db::builder(path, store).with_wal_writer(Box::new(wal))
}
