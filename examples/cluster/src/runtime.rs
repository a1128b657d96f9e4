//! The runtime that openraft runs on: tokio's, with random numbers from one place.
//!
//! *Owns*: where random numbers come from, and where calls that block run. *May not touch*:
//! anything else of tokio's runtime.
//!
//! Everything random in a node is openraft's (how long it waits before an election), and everything
//! that blocks (a purge, a snapshot that is written) goes through [`Runtime`]. So a simulation
//! needs one call, [`simulate`], to have both under its control. A program without a simulation
//! needs none of this: openraft's default is tokio.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::time::Duration;

use openraft::OptionalSend;
use openraft_rt::AsyncRuntime;
use openraft_rt_tokio::TokioRuntime;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

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

/// Runs `call`, which blocks, where that holds no task up; in a simulation here.
///
/// # Errors
/// When the call panicked.
pub async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if SIMULATED.with_borrow(Option::is_some) {
        return Ok(call());
    }
    tokio::task::spawn_blocking(call).await.map_err(io::Error::other)
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
    type ThreadLocalRng = StdRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn thread_rng() -> StdRng {
        let seed = SIMULATED.with_borrow_mut(|rng| rng.as_mut().map(Rng::next_u64));
        StdRng::seed_from_u64(seed.unwrap_or_else(rand::random))
    }

    fn spawn_blocking<F, T>(call: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        blocking(call)
    }

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

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        self.0.block_on(future)
    }
}
