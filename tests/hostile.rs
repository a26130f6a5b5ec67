//! Services among hostile callers answer the run that they serve, and their memory stays within the named
//! limits. `hostile/solver.rs` and `hostile/coordinator.rs` have the attacks on each of the two.

#[path = "hostile/coordinator.rs"]
mod coordinator;
#[path = "support/raw.rs"]
mod raw;
#[path = "hostile/solver.rs"]
mod solver;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use amalgam_proto::{CHUNK_BYTES, TransportLimits, message_limit};
use coordinator::{on_coordinator, siege_of_coordinator};
use raw::Raw;
use solver::{on_solver, siege_of_solver};
use support::process::wait_until;
use tonic::transport::{Channel, Endpoint};

/// Hostile callers at once.
const PEERS: usize = 36;

/// Duration of an attack, by all kinds at once or by one kind.
const SIEGE: Duration = Duration::from_secs(4);
const SIEGE_OF_ONE_KIND: Duration = Duration::from_secs(2);

/// Longest time until an honest caller is answered, beside whatever else the machine computes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Longest time of one try.
const TRY: Duration = Duration::from_secs(1);

/// Memory that connections may take, all together [bytes]: the windows of each, and on each of its calls a
/// message and the room that is asked for before one is read.
const CONNECTIONS_BYTES: u64 = TransportLimits::CONNECTIONS_MAX as u64
    * (TransportLimits::CONNECTION_WINDOW_BYTES as u64
        + TransportLimits::STREAMS_MAX as u64 * (message_limit() as u64 + 3 * CHUNK_BYTES as u64));

/// Resident memory of a process: now, and its peak [bytes].
fn memory(process: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let read = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    (read("VmRSS:"), read("VmHWM:"))
}

async fn dial(address: &str) -> Option<Channel> {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect().await.ok()
}

/// True if the service itself has answered, and not merely hung up on one connection too many.
fn is_refusal(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_none() && status.code() != tonic::Code::Unavailable
}

/// Action of hostile callers.
trait Attack: Copy + std::fmt::Debug + Send + 'static {
    /// True if the service must refuse each try in words, or hang up.
    fn is_refused(self) -> bool;
    /// Makes a try of at most `longest`. Returns true if the service refused it.
    fn strike(self, address: &str, longest: Duration) -> bool;
}

/// Makes a try by calls, given up after `longest`.
fn attempt(work: impl Future<Output = bool>, longest: Duration) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(longest, work).await }).unwrap_or(false)
}

/// Attacks by [`PEERS`] callers, each with the next of `kinds`, as long as `work` takes: how often each kind
/// was refused.
fn besiege<A: Attack>(address: &str, kinds: &[A], work: impl FnOnce()) -> Vec<(A, u64)> {
    let stop = Arc::new(AtomicBool::new(false));
    let refused: Arc<Vec<AtomicU64>> = Arc::new(kinds.iter().map(|_| AtomicU64::new(0)).collect());
    let attacker = |(at, &attack): (usize, &A)| {
        let (stop, refused, address) = (Arc::clone(&stop), Arc::clone(&refused), address.to_string());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if attack.strike(&address, TRY) {
                    refused[at].fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    let attackers: Vec<_> =
        kinds.iter().enumerate().cycle().take(PEERS.max(kinds.len())).map(attacker).collect();
    work();
    stop.store(true, Ordering::Relaxed);
    attackers.into_iter().for_each(|attacker| attacker.join().expect("no attacker fails"));
    kinds.iter().zip(refused.iter()).map(|(&kind, count)| (kind, count.load(Ordering::Relaxed))).collect()
}

/// Each kind that must be refused was. A try in the crowd may get no answer in time; then one alone must.
fn check<A: Attack>(address: &str, counts: &[(A, u64)]) {
    for &(attack, count) in counts {
        if count == 0 && attack.is_refused() {
            let refused = wait_until(ANSWER_DEADLINE, || attack.strike(address, ANSWER_DEADLINE));
            assert!(refused, "{attack:?} was never refused");
        }
    }
}

/// Kinds of raw callers that the service need not have ended within a try.
fn may_go_on(raw: Raw) -> bool {
    matches!(
        raw,
        Raw::Silence
            | Raw::TlsHello
            | Raw::HalfPreface
            | Raw::Settings
            | Raw::Pings
            | Raw::RapidReset
            | Raw::Continuations
            | Raw::WindowOverflow
            | Raw::HeadersTooLong
            | Raw::Compressed
            | Raw::UnknownCall
            | Raw::Trickle
            | Raw::AnswerNotTaken
            | Raw::Streams
            | Raw::ManyConnections
    )
}

/// Each kind alone, and its cost in memory.
#[test]
#[ignore = "five minutes: cargo test --release --workspace --test hostile -- --ignored --nocapture"]
fn each_kind_of_attack_alone() {
    let mebibytes = |[before, after, peak]: [u64; 3]| {
        format!("{:>4} MiB before, {:>4} after, {:>4} at most", before >> 20, after >> 20, peak >> 20)
    };
    for kind in on_solver() {
        let (counts, steps, memory) = siege_of_solver(&[kind], SIEGE_OF_ONE_KIND);
        println!("solver: {}, {steps:>6} steps, {:>6} refused: {kind:?}", mebibytes(memory), counts[0].1);
    }
    for kind in on_coordinator() {
        let (counts, asked, memory) = siege_of_coordinator(&[kind], SIEGE_OF_ONE_KIND);
        println!(
            "coordinator: {}, {asked:>4} answers, {:>6} refused: {kind:?}",
            mebibytes(memory),
            counts[0].1
        );
    }
}
