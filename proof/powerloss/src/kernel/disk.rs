//! A disk in memory: what it holds, what reached it, how it fails.
//!
//! *Owns*: carrying out reads, writes and flushes, and recording them. *May not touch*: how the
//! kernel reaches it (`server.rs`), what the bytes mean.
//!
//! One request is carried out at a time, in the order in which the kernel sent them: the order of
//! submission is the order of completion, and nothing is in flight at a flush. So a flush covers
//! each write that came before it. What this cannot show is a kernel that sends a flush without
//! waiting for the answer to a write that the flush is to cover: such a write counts as covered
//! here.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fault::{Access, Effect, Faults};
use super::image::{Image, SECTOR_BYTES};
use super::recording::{Entry, Recording};
use super::states::Cut;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Error,
    NoSpace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    /// Each request waits.
    Cut,
    /// Each request fails with `EIO`.
    Off,
}

struct State {
    image: Image,
    /// As of the last flush, and what came since.
    flushed: Image,
    unflushed: Vec<Entry>,
    recording: Option<Recording>,
    power: Power,
    faults: Faults,
}

/// A disk; clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    name: Arc<str>,
    state: Arc<Mutex<State>>,
    power_changed: Arc<Condvar>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Disk({}, {:?})", self.name, self.lock().image)
    }
}

impl Disk {
    /// A disk of that name (a file name) which holds `image`.
    pub fn new(name: &str, image: Image) -> Self {
        let state = State {
            flushed: image.clone(),
            image,
            unflushed: Vec::new(),
            recording: None,
            power: Power::On,
            faults: Faults::default(),
        };
        Self {
            name: name.into(),
            state: Arc::new(Mutex::new(state)),
            power_changed: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves nothing half done in here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn len_bytes(&self) -> u64 {
        self.lock().image.len_bytes()
    }

    /// What it holds now, flushed or not.
    pub fn image(&self) -> Image {
        self.lock().image.clone()
    }

    pub fn record(&self) {
        self.lock().recording = Some(Recording::default());
    }

    /// Cuts the power of a disk in use. No request is carried out from this moment on: each *waits*
    /// until [`Disk::power_off`], so that nobody hears of a failure that a machine without power
    /// would never hear of. Returns what may be found afterwards.
    pub fn cut_power(&self) -> Cut {
        let mut state = self.lock();
        state.power = Power::Cut;
        Cut::of(state.flushed.clone(), 0, &state.unflushed)
    }

    /// Ends all waiting of [`Disk::cut_power`]: requests fail with `EIO` from now on, so that the
    /// kernel lets the disk go. Kill first who must not hear of it.
    pub fn power_off(&self) {
        self.lock().power = Power::Off;
        self.power_changed.notify_all();
    }

    /// The disk is sound again, and holds `image`.
    pub fn power_on(&self, image: Image) {
        let mut state = self.lock();
        state.image = image;
        state.faults = Faults::default();
        state.all_flushed();
        state.power = Power::On;
        self.power_changed.notify_all();
    }

    /// The state, when the disk has power.
    fn powered(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let state = self.lock();
        let state = self.power_changed.wait_while(state, |state| state.power == Power::Cut);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        if state.power == Power::Off { Err(Failure::Error) } else { Ok(state) }
    }

    /// Adds a mark to the recording: what the writer knows now. Without a recording nothing
    /// happens.
    pub fn mark(&self, text: &str) {
        if let Some(recording) = &mut self.lock().recording {
            recording.mark(text);
        }
    }

    pub fn take_recording(&self) -> Recording {
        self.lock().recording.take().unwrap_or_default()
    }

    pub fn recorded(&self) -> Recording {
        self.lock().recording.clone().unwrap_or_default()
    }

    pub fn change_faults<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut self.lock().faults)
    }

    /// Applies a fault, outside of the lock while it waits.
    fn meet(&self, access: Access, sectors: std::ops::Range<u64>) -> Result<(), Failure> {
        let met = self.lock().faults.meet(access, sectors);
        match met {
            None => Ok(()),
            Some(Effect::Error) => Err(Failure::Error),
            Some(Effect::Slow(time)) => {
                std::thread::sleep(time.min(Duration::from_secs(60)));
                Ok(())
            }
        }
    }

    /// Reads; fewer bytes only at its end.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Failure> {
        self.meet(Access::Read, sectors_of(offset, len as u64))?;
        let state = self.powered()?;
        let len = state.image.len_bytes().saturating_sub(offset).min(len as u64) as usize;
        let mut bytes = vec![0; len];
        state.image.read(offset, &mut bytes);
        Ok(bytes)
    }

    /// Writes. Not on the medium before the next flush.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.meet(Access::Write, sectors_of(offset, bytes.len() as u64))?;
        let mut state = self.powered()?;
        if offset.saturating_add(bytes.len() as u64) > state.image.len_bytes() {
            return Err(Failure::NoSpace);
        }
        state.check_room(offset, bytes.len())?;
        state.image.write(offset, bytes);
        // Rounded to whole sectors: a loop device sends nothing else, but a test may.
        let whole = sectors_of(offset, bytes.len() as u64);
        let mut sectors = vec![0; ((whole.end - whole.start) as usize) * SECTOR_BYTES];
        state.image.read(whole.start * SECTOR_BYTES as u64, &mut sectors);
        state.changed(Entry::Write { sector: whole.start, bytes: sectors.into() });
        Ok(())
    }

    pub fn clear(&self, offset: u64, len_bytes: u64) -> Result<(), Failure> {
        let sectors = sectors_of(offset, len_bytes);
        self.meet(Access::Write, sectors.clone())?;
        let mut state = self.powered()?;
        state.image.clear(offset, len_bytes);
        let (sector, sectors) = (sectors.start, sectors.end - sectors.start);
        state.changed(Entry::Discard { sector, sectors });
        Ok(())
    }

    /// Makes all earlier writes durable.
    pub fn flush(&self) -> Result<(), Failure> {
        let met = self.meet(Access::Flush, 0..0);
        let mut state = self.powered()?;
        match met {
            Ok(()) => {
                state.all_flushed();
                state.record(Entry::Flush);
            }
            Err(_) if state.faults.drops_cache => {
                state.image = state.flushed.clone();
                state.unflushed.clear();
            }
            Err(_) => {}
        }
        met
    }
}

impl State {
    fn all_flushed(&mut self) {
        self.flushed = self.image.clone();
        self.unflushed.clear();
    }

    fn changed(&mut self, entry: Entry) {
        self.unflushed.push(entry.clone());
        self.record(entry);
    }

    fn record(&mut self, entry: Entry) {
        if let Some(recording) = &mut self.recording {
            recording.entries.push(entry);
        }
    }

    fn check_room(&mut self, offset: u64, len: usize) -> Result<(), Failure> {
        let Some(most) = self.faults.blocks_max else { return Ok(()) };
        let more = self.image.more_blocks(offset, len);
        if more == 0 || self.image.blocks() + more <= most {
            return Ok(());
        }
        self.faults.fired += 1;
        Err(Failure::NoSpace)
    }
}

fn sectors_of(offset: u64, len_bytes: u64) -> std::ops::Range<u64> {
    let sector = SECTOR_BYTES as u64;
    offset / sector..offset.saturating_add(len_bytes).div_ceil(sector)
}

#[cfg(test)]
mod tests {
    use super::super::fault::Rule;
    use super::*;

    #[test]
    fn what_reached_it_is_recorded_in_order() {
        let disk = Disk::new("a", Image::new(1 << 20));
        disk.write(0, &[1; 512]).expect("it takes it");
        disk.record();
        disk.write(512, &[2; 1024]).expect("it takes it");
        disk.mark("here");
        disk.flush().expect("it flushes");
        disk.clear(0, 512).expect("it takes it");
        let entries = disk.take_recording().entries;
        let expected = [
            Entry::Write { sector: 1, bytes: vec![2; 1024].into() },
            Entry::Mark("here".into()),
            Entry::Flush,
            Entry::Discard { sector: 0, sectors: 1 },
        ];
        assert_eq!(entries, expected);
        assert_eq!(
            disk.read(0, 4096).expect("it reads")[..1536],
            [[0; 512], [2; 512], [2; 512]].concat()
        );
        assert_eq!(disk.read((1 << 20) - 10, 100).expect("it reads").len(), 10);
        assert_eq!(disk.write((1 << 20) - 10, &[0; 11]), Err(Failure::NoSpace));
    }

    #[test]
    fn power_is_cut_between_two_requests_and_who_waits_hears_nothing_before_it_is_off() {
        let disk = Disk::new("a", Image::new(1 << 20));
        disk.write(0, &[1; 512]).expect("it takes it");
        disk.flush().expect("it flushes");
        disk.write(0, &[2; 512]).expect("it takes it");
        disk.write(512, &[2; 512]).expect("it takes it");
        let cut = disk.cut_power();
        let (tell, told) = std::sync::mpsc::channel();
        let waiting = disk.clone();
        let thread = std::thread::spawn(move || tell.send(waiting.flush()));
        let early = told.recv_timeout(Duration::from_millis(50));
        assert!(early.is_err(), "a flush after the cut was answered: {early:?}");
        disk.power_off();
        assert_eq!(told.recv().expect("an answer"), Err(Failure::Error));
        thread.join().expect("no panic").expect("sent");
        assert_eq!(
            (disk.write(0, &[3; 512]), disk.read(0, 1)),
            (Err(Failure::Error), Err(Failure::Error))
        );
        let first = |image: &Image| {
            let mut bytes = [0; 1024];
            image.read(0, &mut bytes);
            (bytes[0], bytes[512])
        };
        let found = |kept: [bool; 2]| first(&cut.state(&kept));
        let all = [[false, false], [true, false], [false, true], [true, true]].map(found);
        assert_eq!(all, [(1, 0), (2, 0), (1, 2), (2, 2)]);
        disk.power_on(cut.state(&[false, true]));
        assert_eq!(disk.read(0, 1), Ok(vec![1]));
        disk.write(0, &[7; 512]).expect("it takes it");
        disk.change_faults(|faults| faults.rules.push(Rule::every(Access::Flush, Effect::Error)));
        assert_eq!(disk.flush(), Err(Failure::Error));
        let again = disk.cut_power();
        assert_eq!(
            (again.units.len(), first(&again.durable)),
            (1, (1, 2)),
            "what was found is on the medium, and a failed flush makes nothing durable"
        );
    }

    #[test]
    fn what_fails_by_plan_leaves_nothing() {
        let disk = Disk::new("a", Image::new(1 << 20));
        disk.record();
        disk.change_faults(|faults| {
            faults.rules.push(Rule::every(Access::Write, Effect::Error).once_after(1))
        });
        assert_eq!(disk.write(0, &[1; 512]), Ok(()));
        assert_eq!(disk.write(0, &[2; 512]), Err(Failure::Error));
        assert_eq!(disk.read(0, 1), Ok(vec![1]));
        disk.change_faults(|faults| faults.blocks_max = Some(1));
        assert_eq!(disk.write(4096, &[3; 512]), Err(Failure::NoSpace));
        assert_eq!(disk.write(512, &[3; 512]), Ok(()), "an overwrite needs no room");
        disk.change_faults(|faults| faults.is_read_only = true);
        assert_eq!(
            (disk.flush(), disk.write(512, &[4; 512])),
            (Err(Failure::Error), Err(Failure::Error))
        );
        assert_eq!(disk.take_recording().entries.len(), 2);
        assert_eq!(disk.change_faults(|faults| faults.fired), 4);
    }
}
