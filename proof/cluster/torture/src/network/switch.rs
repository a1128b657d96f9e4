//! The wire between the hosts: it takes each packet from the device of one and hands it to that of
//! another, or does not.
//!
//! *Owns*: the threads that carry packets. *May not touch*: namespaces and addresses; what is in a
//! packet but its destination.
//!
//! It works on whole IP packets, below TCP. So a lost, late, doubled or overtaken packet is what it
//! is on a real wire, and the kernel's own TCP has to cope with it; a proxy of streams could only
//! delay or cut.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use inkstone_host::Tunnel;

use super::weather::Weather;

/// How often a thread that has nothing to do asks whether it must end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Late packets that are kept; more are lost, as in a router without memory.
const LATE_MAX: usize = 4096;
const PACKET_BYTES_MAX: usize = 1 << 16;

struct Shared {
    tunnels: Vec<Tunnel>,
    /// The last byte of each host's address.
    numbers: Vec<u8>,
    weather: Mutex<Weather>,
    stop: AtomicBool,
}

/// A packet that waits: when it is due, a number that keeps two of one instant apart, to whom.
type Late = (Instant, u64, usize, Vec<u8>);

/// The switch; dropped, it carries nothing any more.
pub struct Switch {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Switch {
    /// Carries packets among these devices; `numbers` are the last bytes of their addresses.
    pub fn start(tunnels: Vec<Tunnel>, numbers: Vec<u8>, seed: u64) -> Self {
        let hosts = tunnels.len();
        let shared = Arc::new(Shared {
            tunnels,
            numbers,
            weather: Mutex::new(Weather::clear(hosts)),
            stop: AtomicBool::new(false),
        });
        let (sender, receiver) = sync_channel(LATE_MAX);
        let mut threads: Vec<_> = (0..hosts)
            .map(|from| {
                let (shared, sender) = (Arc::clone(&shared), sender.clone());
                let rng = fastrand::Rng::with_seed(seed ^ (from as u64) << 32);
                std::thread::spawn(move || shared.carry(from, rng, &sender))
            })
            .collect();
        let late = Arc::clone(&shared);
        threads.push(std::thread::spawn(move || late.deliver_late(&receiver)));
        Self { shared, threads }
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut Weather) -> T) -> T {
        change(&mut self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has no result; a panic in it was printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn carry(&self, from: usize, mut rng: fastrand::Rng, late: &SyncSender<Late>) {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        let mut number = 0;
        while !self.stopped() {
            let bytes = match self.tunnels[from].receive(&mut packet, LOOK_EVERY) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => continue,
                // Its namespace is gone: this happens at the end only.
                Err(_) => return,
            };
            let Some(to) = self.destination(&packet[..bytes]) else { continue };
            let weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
            let arrivals = weather.arrivals(from, to, &mut rng);
            drop(weather);
            for time in arrivals.into_iter().flatten() {
                number += 1;
                if time.is_zero() {
                    self.hand_over(to, &packet[..bytes]);
                } else {
                    let packet = packet[..bytes].to_vec();
                    let _ = late.try_send((Instant::now() + time, number, to, packet));
                }
            }
        }
    }

    fn deliver_late(&self, incoming: &Receiver<Late>) {
        let mut waiting: BinaryHeap<Reverse<Late>> = BinaryHeap::new();
        while !self.stopped() {
            let next = waiting
                .peek()
                .map(|Reverse(late)| late.0.saturating_duration_since(Instant::now()));
            match incoming.recv_timeout(next.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)) {
                Ok(late) if waiting.len() < LATE_MAX => waiting.push(Reverse(late)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            while waiting.peek().is_some_and(|Reverse(late)| late.0 <= now) {
                let Some(Reverse((_, _, to, packet))) = waiting.pop() else { break };
                self.hand_over(to, &packet);
            }
        }
    }

    /// The host that an IPv4 packet is for. The kernel's own other packets (IPv6) go nowhere.
    fn destination(&self, packet: &[u8]) -> Option<usize> {
        let last = packet.get(..20).filter(|head| head[0] >> 4 == 4).map(|head| head[19])?;
        self.numbers.iter().position(|&number| number == last)
    }

    fn hand_over(&self, to: usize, packet: &[u8]) {
        // A device that is down takes nothing: the packet is lost, as on a wire that leads nowhere.
        let _ = self.tunnels[to].send(packet);
    }
}
