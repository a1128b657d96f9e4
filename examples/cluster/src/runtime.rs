//! The runtime that openraft runs on: tokio's, with random numbers from one place.
//!
//! *Owns*: where random numbers come from, and where calls that block run. *May not touch*:
//! anything else of tokio's runtime.
//!
//! Everything random in a node is openraft's (how long it waits before an election), and everything
//! that blocks (a purge, a snapshot that is written) goes through [`Runtime`]. So a simulation
//! needs one call, [`simulate`], to have both under its control.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::time::Duration;

use openraft::OptionalSend;
use openraft_rt::AsyncRuntime;
use openraft_rt_tokio::TokioRuntime;
use rand::rngs::{StdRng, ThreadRng};
use rand::{Rng, SeedableRng, TryRng};

thread_local! {
    static SIMULATED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// From now on everything that this thread runs takes its random numbers from `seed`, and what
/// blocks runs on this thread, at once.
///
/// For simulations that run all nodes in one thread. There is no way back.
pub fn simulate(seed: u64) {
    SIMULATED.set(Some(StdRng::seed_from_u64(seed)));
}

fn is_simulated() -> bool {
    SIMULATED.with_borrow(Option::is_some)
}

/// Runs `call`, which blocks, where that holds no task up; in a simulation here.
///
/// # Errors
/// When the call panicked.
pub async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if is_simulated() {
        return Ok(call());
    }
    tokio::task::spawn_blocking(call).await.map_err(io::Error::other)
}

/// Random numbers: the system's, or those of [`simulate`].
#[derive(Debug)]
pub struct Randomness(Option<ThreadRng>);

impl Randomness {
    fn with<T>(
        &mut self,
        system: impl FnOnce(&mut ThreadRng) -> T,
        seeded: impl FnOnce(&mut StdRng) -> T,
    ) -> T {
        if let Some(rng) = &mut self.0 {
            return system(rng);
        }
        SIMULATED.with_borrow_mut(|rng| seeded(rng.as_mut().expect("a simulation does not end")))
    }
}

impl TryRng for Randomness {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.with(Rng::next_u32, Rng::next_u32))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.with(Rng::next_u64, Rng::next_u64))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        match &mut self.0 {
            Some(rng) => rng.fill_bytes(bytes),
            None => self.with(|_| (), |rng| rng.fill_bytes(bytes)),
        }
        Ok(())
    }
}

/// Tokio's runtime, but for random numbers and calls that block.
#[derive(Debug)]
pub struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Randomness;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        Randomness(if is_simulated() { None } else { Some(rand::rng()) })
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(call: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        blocking(call)
    }
}
