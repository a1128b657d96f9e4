//! `inkstone lab fallocate`: E4 on every file system present.
//!
//! *Owns*: the list of places. *May not touch*: the calls (`crate::atlas`).

use std::path::{Path, PathBuf};

use inkstone_io::is_root;
use inkstone_io::{Directory, NamedChoice};

use crate::atlas::{atlas, atlas_steps};
use crate::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use crate::result::{FallocateAtlas, LabResult, Warning};
use crate::site::{MEMORY, OpenSite};
use crate::stage::CellError;

use super::{Context, LabError, Started, directory_or_here};

/// The most bytes that are zeroed in memory: the published 10 GiB are more than many machines have.
const MEMORY_BYTES_MAX: u64 = 128 << 20;

/// Where and how much.
#[derive(Debug, Clone)]
pub struct AtlasOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// Further file systems to create and examine; needs root.
    pub kinds: Vec<ImageKind>,
    /// Bytes of the zeroing comparison.
    pub zeroing_bytes: u64,
}

/// The atlas of the directory, of tmpfs, and of each kind in the options.
///
/// # Errors
/// When the directory is not usable. A kind that cannot be created is a warning.
pub fn fallocate(options: &AtlasOptions, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let directory = directory_or_here(options.directory.as_deref());
    let kinds = if is_root() { options.kinds.as_slice() } else { &[] };
    let mut started = Started::new(context);
    let image_bytes = image_bytes(options);
    let room = options.zeroing_bytes + if kinds.is_empty() { 0 } else { image_bytes };
    let open = OpenSite::open(&directory, &directory.display().to_string(), room)?;
    started.swept(&open.swept);
    context.progress.start(atlas_steps() * (2 + kinds.len() as u64), "fallocate", 10.0);
    let session = open.site.session(context.stop);
    let own = atlas(&open.site, &session, options.zeroing_bytes, context.progress);
    let mut ended = own.map(|own| started.result.fallocate.push(own));
    if ended.is_ok() {
        ended = others(&open, kinds, image_bytes, options, context, &mut started);
    }
    if kinds.is_empty() && !options.kinds.is_empty() {
        started.result.warnings.push(Warning {
            name: "no-root".into(),
            text: "no other file systems were created: that needs root".into(),
            cure: "run it with sudo to compare ext4, xfs and btrfs".into(),
        });
    }
    context.progress.finish();
    open.close()?;
    match ended {
        Ok(()) | Err(CellError::Interrupted) => Ok(started.finish(context)),
        Err(error) => Err(error.into()),
    }
}

fn image_bytes(options: &AtlasOptions) -> u64 {
    (options.zeroing_bytes + (192 << 20)).max(IMAGE_BYTES_MIN)
}

fn others(
    open: &OpenSite,
    kinds: &[ImageKind],
    image_bytes: u64,
    options: &AtlasOptions,
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), CellError> {
    let mut keep = |name: &str, answer: Result<FallocateAtlas, CellError>| match answer {
        Ok(atlas) => {
            started.result.fallocate.push(atlas);
            Ok(())
        }
        Err(CellError::Interrupted) => Err(CellError::Interrupted),
        Err(error) => {
            started.result.warnings.push(Warning {
                name: "no-atlas".into(),
                text: format!("{name} is not in the atlas: {error}"),
                cure: "see the reason".into(),
            });
            Ok(())
        }
    };
    // tmpfs is part of the comparison where it is available.
    if open.site.capabilities.mount.file_system != "tmpfs" {
        let zeroing_bytes = options.zeroing_bytes.min(MEMORY_BYTES_MAX);
        let options = AtlasOptions { zeroing_bytes, ..options.clone() };
        keep("tmpfs", in_place(Path::new(MEMORY), "tmpfs", &options, context))?;
    }
    for &kind in kinds {
        let mode = LoopMode::Direct;
        let made = Image::make(open.site.directory.path(), kind, mode, image_bytes);
        let name = format!("{kind}, {} loop", mode.name());
        let answer = made.and_then(|image| {
            let atlas = in_place(image.path(), &name, options, context);
            image.remove()?;
            atlas
        });
        keep(&name, answer)?;
    }
    Ok(())
}

fn in_place(
    directory: &Path,
    name: &str,
    options: &AtlasOptions,
    context: &mut Context<'_>,
) -> Result<FallocateAtlas, CellError> {
    let invalid = |error: crate::site::SiteError| CellError::Invalid(error.to_string());
    let open = OpenSite::open(directory, name, options.zeroing_bytes).map_err(invalid)?;
    let session = open.site.session(context.stop);
    let answer = atlas(&open.site, &session, options.zeroing_bytes, context.progress);
    open.close().map_err(invalid)?;
    answer
}
