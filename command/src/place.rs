//! Warns of a directory in which a power loss takes everything.
//!
//! *Owns*: the sentences about a directory. *May not touch*: how they are found.

use std::path::Path;

/// The warnings of this directory that are about a power loss: in memory (tmpfs), say, it takes
/// everything. `inkstone info` shows the same, and what is not known.
pub(crate) fn warnings(directory: &Path) -> Vec<String> {
    let choice = inkstone::inspect::choice(directory);
    let warnings = choice.map_or_else(|_| Vec::new(), |choice| choice.warnings);
    let told = warnings.iter().filter(|warning| warning.contains("power loss"));
    told.map(|warning| format!("warning: {}: {warning}", directory.display())).collect()
}
