//! What a figure of an experiment counts.
//!
//! *Owns*: the units, and how each is named in results. *May not touch*: figures.

use serde::{Deserialize, Serialize};

macro_rules! units {
    ($($unit:ident = $name:literal;)*) => {
        /// The unit of a figure.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each is named by its text")]
        pub enum Unit {
            #[default]
            $(#[serde(rename = $name)] $unit,)*
        }

        impl Unit {
            /// As results and tables name it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$unit => $name,)* }
            }
        }
    };
}

units! {
    OperationsPerS = "operations/s";
    BytesPerS = "bytes/s";
    LinesPerS = "lines/s";
    CommitsPerS = "commits/s";
    CallsPerS = "calls/s";
    FilesPerS = "files/s";
    CommitsPerMb = "commits/MB written";
    WritesRefused = "writes refused";
    RecordsAstray = "records astray";
    TailNs = "ns, p99.9 of a write";
    Ns = "ns";
    NsPerOp = "ns per operation";
    NsPerMib = "ns per MiB";
    NsPerLine = "ns per line";
    PerOp = "per operation";
    PerMib = "per MiB";
    PerSecond = "per second";
    PerFlush = "per flush";
    PerFile = "per file";
    Bytes = "bytes";
    BytesPerMib = "bytes per MiB";
    Lines = "lines";
    Percent = "%";
}

impl Unit {
    /// Whether it is a time in nanoseconds: less is better.
    pub fn is_time(self) -> bool {
        matches!(self, Self::TailNs | Self::Ns | Self::NsPerOp | Self::NsPerMib | Self::NsPerLine)
    }

    /// Whether it counts bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::BytesPerS | Self::Bytes | Self::BytesPerMib)
    }

    /// Whether it is a count for each of something.
    pub fn is_per(self) -> bool {
        matches!(
            self,
            Self::PerOp | Self::PerMib | Self::PerSecond | Self::PerFlush | Self::PerFile
        )
    }
}
