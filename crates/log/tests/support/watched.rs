//! A directory that tells an onlooker of each call about names before it is made.
//!
//! *Owns*: which calls are told. *May not touch*: what the onlooker does.

use inkstone_io::Result;
use inkstone_sim::SimDirectory;
pub(crate) use inkstone_sim::hooked::Call;
use inkstone_sim::hooked::Hook;

struct Onlooker(Box<dyn Fn(&Call<'_>) + Send + Sync>);

impl Hook for Onlooker {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if call.is_about_names() {
            (self.0)(call);
        }
        Ok(())
    }
}

pub(crate) fn watched(
    inner: SimDirectory,
    onlooker: impl Fn(&Call<'_>) + Send + Sync + 'static,
) -> SimDirectory {
    inner.hooked(std::sync::Arc::new(Onlooker(Box::new(onlooker))))
}
