//! From events to requests: each command that a device received, with its completion and its
//! submitter.
//!
//! *Owns*: pairing queue, issue and completion. *May not touch*: what a request means
//! (`attribution`).
//!
//! `block_bio_queue` shows who submitted what, `block_rq_issue` what the device was sent. A request
//! can hold several bios (merged), and a bio with PREFLUSH or FUA can become several requests
//! (flush, data, flush).

use std::ops::Range;

use inkstone_host::{Comm, DeviceNumber, RequestFlags, RequestOp, TraceEvent, TraceKind};

use super::layer::Layer;

/// A sector is 512 bytes on every device.
const SECTOR_BYTES: u64 = 512;
/// Bios remembered, to find the bio of a request.
const BIOS_KEPT: usize = 4096;

/// One command that a device received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceRequest {
    /// Index of its layer.
    pub layer: usize,
    /// Which of the layer's disks.
    pub disk: usize,
    /// When a thread asked for it, or for the last part of it.
    pub queued_ns: u64,
    /// When the device got it.
    pub issue_ns: u64,
    /// When it completed.
    pub complete_ns: Option<u64>,
    /// A flush that was in progress together with others: their completions look alike, and
    /// `complete_ns` may be another's.
    pub overlapped: bool,
    /// First sector on its disk.
    pub sector: u64,
    /// Its first byte, as the areas of a [`Layer`] count.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its flags; `meta` also if the bio had it.
    pub flags: RequestFlags,
    /// The flags with which it was asked for: the block layer makes flushes of their own out of
    /// PREFLUSH and FUA.
    pub asked: RequestFlags,
    /// The thread that submitted it: the bio's if that was found, otherwise the one that issued the
    /// request.
    pub tid: u32,
    /// That thread's name.
    pub comm: Comm,
}

impl DeviceRequest {
    /// The bytes that it covers, as the areas of a [`Layer`] count.
    pub(crate) fn range(&self) -> Range<u64> {
        self.at..self.at + self.bytes
    }

    /// Whether it is a cache flush.
    pub(crate) fn is_flush(&self) -> bool {
        self.flags.op == RequestOp::Flush || self.flags.op == RequestOp::Write && self.bytes == 0
    }

    /// Whether it is a write into this layer's journal or log.
    pub(crate) fn is_journal(&self, layer: &Layer) -> bool {
        self.is_write() && layer.is_log(&self.range(), self.comm.as_str())
    }

    /// Whether it is a write of data.
    pub(crate) fn is_write(&self) -> bool {
        self.flags.op == RequestOp::Write && self.bytes > 0
    }
}

#[derive(Debug, Clone, Copy)]
struct Bio {
    time_ns: u64,
    place: (usize, usize),
    sector: u64,
    sectors: u64,
    flags: RequestFlags,
    tid: u32,
    comm: Comm,
}

/// Pairs the events of all layers, in the order of their time.
#[derive(Debug)]
pub(crate) struct Pairs<'a> {
    layers: &'a [Layer],
    /// The requests so far, by the time of their issue.
    pub(crate) requests: Vec<DeviceRequest>,
    /// For each layer, whether anything was asked of it.
    pub(crate) is_asked: Vec<bool>,
    /// Those that were issued and not completed.
    open: Vec<usize>,
    bios: Vec<Bio>,
}

impl<'a> Pairs<'a> {
    pub(crate) fn of(layers: &'a [Layer]) -> Self {
        let is_asked = vec![false; layers.len()];
        Self { layers, requests: Vec::new(), is_asked, open: Vec::new(), bios: Vec::new() }
    }

    /// The layer of these sectors, and the disk in it. Partitions of one disk share its number: the
    /// place on the disk decides.
    pub(crate) fn place_of(&self, device: DeviceNumber, sector: u64) -> Option<(usize, usize)> {
        let mut nearest: Option<(u64, (usize, usize))> = None;
        for (index, layer) in self.layers.iter().enumerate() {
            for (number, disk) in layer.disks.iter().enumerate() {
                let begins = sector == 0 || disk.start_bytes <= sector.saturating_mul(SECTOR_BYTES);
                if begins
                    && disk.numbers.contains(&device)
                    && nearest.is_none_or(|(start, _)| disk.start_bytes > start)
                {
                    nearest = Some((disk.start_bytes, (index, number)));
                }
            }
        }
        nearest.map(|(_, place)| place)
    }

    /// Takes the next event.
    pub(crate) fn see(&mut self, event: &TraceEvent) {
        let (time_ns, tid) = (event.time_ns, event.tid);
        match event.what {
            TraceKind::BioQueue { device, sector, sectors, flags, comm } => {
                let Some(place) = self.place_of(device, sector) else { return };
                self.is_asked[place.0] = true;
                if self.bios.len() >= BIOS_KEPT {
                    self.bios.drain(..BIOS_KEPT / 2);
                }
                self.bios.push(Bio { time_ns, place, sector, sectors, flags, tid, comm });
            }
            TraceKind::RequestIssue { device, sector, sectors, flags, comm } => {
                let Some(place) = self.place_of(device, sector) else { return };
                self.issued(Bio { time_ns, place, sector, sectors, flags, tid, comm });
            }
            TraceKind::RequestComplete { device, sector, flags } => {
                let Some(place) = self.place_of(device, sector) else { return };
                self.completed(time_ns, place, sector, flags.op);
            }
            // The ends of those in progress were not seen.
            TraceKind::Pause { .. } => {
                self.open.clear();
                self.bios.clear();
            }
            _ => {}
        }
    }

    fn issued(&mut self, issued: Bio) {
        let Bio { time_ns, place: (layer, disk), sector, sectors, flags, .. } = issued;
        let bytes = sectors * SECTOR_BYTES;
        let on = &self.layers[layer].disks[disk];
        // A driver without room returns a request, and it is issued again: still one request. A
        // queue has at most one flush in progress; several queues have several, which look alike.
        let is_flush = flags.op == RequestOp::Flush;
        let again = |&&index: &&usize| {
            let open = &self.requests[index];
            let same = (open.layer, open.disk, open.sector, open.bytes, open.flags.op)
                == (layer, disk, sector, bytes, flags.op);
            same && (!is_flush || on.one_flush)
        };
        if let Some(&index) = self.open.iter().find(again) {
            self.requests[index].issue_ns = time_ns;
            return;
        }
        let mut overlapped = false;
        for &index in self.open.iter().filter(|_| is_flush) {
            let open = &mut self.requests[index];
            if (open.layer, open.disk) == (layer, disk) && open.flags.op == RequestOp::Flush {
                (open.overlapped, overlapped) = (true, true);
            }
        }
        let asked = self.bios.iter().rev().find(|bio| is_behind(bio, &issued)).copied();
        let asker = asked.unwrap_or(issued);
        let flags = RequestFlags { meta: flags.meta || asker.flags.meta, ..flags };
        self.open.push(self.requests.len());
        self.requests.push(DeviceRequest {
            layer,
            disk,
            queued_ns: asker.time_ns,
            issue_ns: time_ns,
            complete_ns: None,
            overlapped,
            sector,
            at: on.base + sector * SECTOR_BYTES,
            bytes,
            flags,
            asked: asker.flags,
            tid: asker.tid,
            comm: asker.comm,
        });
    }

    fn completed(&mut self, time_ns: u64, place: (usize, usize), sector: u64, op: RequestOp) {
        let is_it = |&index: &usize| {
            let request = &self.requests[index];
            // The kernel gives a flush no meaningful sector.
            (request.layer, request.disk) == place
                && request.flags.op == op
                && (op == RequestOp::Flush || request.sector == sector)
        };
        if let Some(at) = self.open.iter().position(is_it) {
            let index = self.open.remove(at);
            self.requests[index].complete_ns = Some(time_ns);
        }
    }
}

/// Whether `bio` caused this request.
fn is_behind(bio: &Bio, issued: &Bio) -> bool {
    if bio.place != issued.place {
        return false;
    }
    if issued.flags.op == RequestOp::Flush {
        return bio.flags.preflush || bio.flags.fua || bio.flags.op == RequestOp::Flush;
    }
    let overlap =
        bio.sector < issued.sector + issued.sectors && issued.sector < bio.sector + bio.sectors;
    bio.flags.op == issued.flags.op && overlap
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::layer::{Disk, Piece};
    use super::*;

    pub(crate) const DISK: DeviceNumber = DeviceNumber { major: 7, minor: 0 };

    pub(crate) fn disk(number: DeviceNumber) -> Disk {
        let numbers = vec![number];
        Disk { numbers, volatile_cache: true, one_flush: true, ..Disk::default() }
    }

    pub(crate) fn layer() -> Layer {
        Layer {
            device: "loop0".into(),
            file_system: "ext4".into(),
            disks: vec![disk(DISK)],
            pieces: vec![Piece { at: 409_600..819_200, file: 0, logical: 0 }],
            log: std::iter::once(1_000_000 * 512..1_000_100 * 512).collect(),
            has_journal: true,
            has_barriers: true,
            ..Layer::default()
        }
    }

    pub(crate) fn pair(events: &[TraceEvent], layers: &[Layer]) -> Vec<DeviceRequest> {
        let mut pairs = Pairs::of(layers);
        events.iter().for_each(|event| pairs.see(event));
        pairs.requests
    }

    pub(crate) fn bio(time_ns: u64, tid: u32, sector: u64, sectors: u64, rwbs: &str) -> TraceEvent {
        let flags = RequestFlags::parse(rwbs.as_bytes());
        let comm = Comm::new(b"writer");
        TraceEvent {
            time_ns,
            tid,
            what: TraceKind::BioQueue { device: DISK, sector, sectors, flags, comm },
        }
    }

    pub(crate) fn issue(time_ns: u64, sector: u64, sectors: u64, rwbs: &str) -> TraceEvent {
        let flags = RequestFlags::parse(rwbs.as_bytes());
        let comm = Comm::new(b"kworker");
        let what = TraceKind::RequestIssue { device: DISK, sector, sectors, flags, comm };
        TraceEvent { time_ns, tid: 99, what }
    }

    pub(crate) fn complete(time_ns: u64, sector: u64, _: u64, rwbs: &str) -> TraceEvent {
        let flags = RequestFlags::parse(rwbs.as_bytes());
        let what = TraceKind::RequestComplete { device: DISK, sector, flags };
        TraceEvent { time_ns, tid: 0, what }
    }

    /// What the device got in this time.
    pub(crate) fn sent(
        at: u64,
        until: u64,
        sector: u64,
        sectors: u64,
        rwbs: &str,
    ) -> [TraceEvent; 2] {
        [issue(at, sector, sectors, rwbs), complete(until, sector, sectors, rwbs)]
    }

    /// A write of 4 KiB by this thread; it takes 10.
    pub(crate) fn written(at: u64, tid: u32, sector: u64, rwbs: &str) -> [TraceEvent; 3] {
        let [issue, complete] = sent(at + 1, at + 10, sector, 8, rwbs);
        [bio(at, tid, sector, 8, rwbs), issue, complete]
    }

    /// A flush that this thread asked for; it takes 9.
    pub(crate) fn flushed(at: u64, tid: u32) -> [TraceEvent; 3] {
        let [issue, complete] = sent(at + 1, at + 9, 0, 0, "FF");
        [bio(at, tid, 0, 0, "FWS"), issue, complete]
    }

    #[test]
    fn a_preflushed_fua_bio_becomes_three_requests_of_its_asker() {
        let events = [
            vec![bio(10, 5, 1_000_000, 8, "FWFSM")],
            sent(11, 20, 0, 0, "FF").to_vec(),
            sent(21, 30, 1_000_000, 8, "WS").to_vec(),
            sent(31, 40, 0, 0, "FF").to_vec(),
        ];
        let requests = pair(&events.concat(), &[layer()]);
        let flushes = requests.iter().filter(|request| request.is_flush()).count();
        assert_eq!((requests.len(), flushes), (3, 2));
        assert!(requests.iter().all(|request| request.tid == 5 && request.complete_ns.is_some()));
        assert!(requests[1].flags.meta, "the bio's flag stays with the write");
    }

    #[test]
    fn what_is_issued_again_is_one_request_but_flushes_of_several_queues_are_many() {
        let times = |sector, sectors, rwbs, one_flush| -> Vec<_> {
            let again = [
                vec![issue(1, sector, sectors, rwbs)],
                sent(5, 9, sector, sectors, rwbs).to_vec(),
                sent(11, 15, sector, sectors, rwbs).to_vec(),
            ];
            let mut layer = layer();
            layer.disks[0].one_flush = one_flush;
            let requests = pair(&again.concat(), &[layer]).into_iter();
            requests.map(|one| (one.issue_ns, one.complete_ns, one.overlapped)).collect()
        };
        let once = [(5, Some(9), false), (11, Some(15), false)];
        assert_eq!(
            (times(800, 8, "WS", true), times(0, 0, "FF", true)),
            (once.into(), once.into())
        );
        // Two that overlap, and one of the answers is missing.
        let many = [(1, Some(9), true), (5, Some(15), true), (11, None, true)];
        assert_eq!(times(0, 0, "FF", false), many);
    }

    #[test]
    fn other_devices_and_unknown_completions_are_passed_over() {
        let mut foreign = issue(1, 8, 8, "WS");
        if let TraceKind::RequestIssue { device, .. } = &mut foreign.what {
            device.minor = 3;
        }
        let events = [foreign, complete(2, 8, 8, "WS"), issue(3, 16, 8, "WS")];
        let requests = pair(&events, &[layer()]);
        assert_eq!(requests.len(), 1);
        assert_eq!((requests[0].complete_ns, requests[0].tid), (None, 99));
    }
}
