//! The versions of the format that this code knows, and how their bytes differ.
//!
//! *Owns*: which versions there are, and the place of every byte that differs between them. *May
//! not touch*: what the bytes mean; that is the same in all versions so far.
//!
//! The header of a segment names the version of everything after it
//! ([`crate::SegmentHeader::version`]). The version is part of the [`crate::Identity`] with which
//! every group and frame is read and written, so no other code has to ask for it.
//!
//! There is one version so far: a `Version` uses no memory, and nothing is checked at run time.
//! `proof/mistakes/format/version.rs.patch` puts a version 2 into the copy of the tree that
//! `.ci/mistaken` makes, and the tests there show that segments of several versions are one log.

/// A version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// The first.
    One,
}

impl Version {
    /// All versions that this code reads. It writes them too, since a segment is continued in the
    /// version in which it was begun.
    pub const ALL: &'static [Self] = &[Self::One];

    /// The version of new segments.
    pub const NEWEST: Self = Self::One;

    /// The version with this number; `None` if this code does not know it.
    pub const fn of(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::One,
            _ => return None,
        })
    }

    /// Its number, as in a segment's header.
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
        }
    }

    /// The size of a group's header in bytes.
    #[inline]
    pub const fn group_header_bytes(self) -> usize {
        match self {
            Self::One => crate::limits::GROUP_HEADER_BYTES,
        }
    }

    /// The size of a frame's header in bytes.
    #[inline]
    pub const fn frame_header_bytes(self) -> usize {
        match self {
            Self::One => crate::limits::FRAME_HEADER_BYTES,
        }
    }

    /// The size of a frame with a payload of `payload_bytes`: header, payload, zeros up to a
    /// multiple of 8. For a payload that is too large for a frame
    /// ([`crate::limits::RECORD_BYTES_MAX`]) the result is larger than any frame.
    #[inline]
    pub const fn frame_bytes(self, payload_bytes: usize) -> usize {
        const ALIGN: usize = crate::limits::ALIGN;
        payload_bytes.saturating_add(self.frame_header_bytes() + ALIGN - 1) / ALIGN * ALIGN
    }

    /// The first bytes of a group.
    #[inline]
    pub(crate) const fn group_marker(self) -> [u8; 4] {
        match self {
            Self::One => crate::limits::GROUP_MARKER,
        }
    }

    /// Whether `bytes` begin as a group does: a cheap filter for scans.
    #[inline]
    pub(crate) fn begins_group(self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.group_marker())
    }

    /// The first bytes of the sums of groups and frames. They differ between versions, so that
    /// bytes of one version never pass for bytes of another.
    pub(crate) const fn tags(self) -> [&'static [u8; 8]; 2] {
        match self {
            Self::One => [b"IK1GROUP", b"IK1FRAME"],
        }
    }

    /// Where the LSN of the first record and the epoch are in a group's header.
    #[inline]
    pub(crate) const fn first_lsn_and_epoch_at(self) -> (usize, usize) {
        match self {
            Self::One => (16, 24),
        }
    }

    /// Where the first two words of a frame's header are: the word with length, kind and place, and
    /// the LSN.
    #[inline]
    pub(crate) const fn shape_and_lsn_at(self) -> (usize, usize) {
        match self {
            Self::One => (0, 8),
        }
    }
}

/// The longest header of a group or a frame in any version.
pub(crate) const HEADER_BYTES_MOST: usize = {
    let mut most = 0;
    let mut at = 0;
    while at < Version::ALL.len() {
        let version = Version::ALL[at];
        let (group, frame) = (version.group_header_bytes(), version.frame_header_bytes());
        most = if group > most { group } else { most };
        most = if frame > most { frame } else { most };
        at += 1;
    }
    most
};

// One version costs nothing: nobody asks which it is.
const _: () = assert!(crate::limits::FORMAT_VERSION == Version::NEWEST.number());
const _: () =
    assert!(size_of::<Version>() == 0 && HEADER_BYTES_MOST == crate::limits::GROUP_HEADER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_back_to_its_version_and_others_are_not_known() {
        for version in Version::ALL {
            assert_eq!(Version::of(version.number()), Some(*version));
        }
        assert_eq!(Version::of(Version::NEWEST.number()), Some(Version::One));
        for number in [0, Version::ALL.len() as u32 + 1, u32::MAX] {
            assert_eq!(Version::of(number), None);
        }
    }

    #[test]
    fn sizes_are_known_ahead() {
        let frame_bytes = |payload| Version::One.frame_bytes(payload);
        assert_eq!([0, 1, 8, 9].map(frame_bytes), [24, 32, 32, 40]);
        // A payload that is too large for a frame has a size too: limits are checked with it.
        let most = crate::limits::RECORD_BYTES_MAX;
        assert_eq!((frame_bytes(most), frame_bytes(most + 1)), (most + 24, most + 32));
        assert!(frame_bytes(usize::MAX) > usize::MAX - 8);
    }
}
