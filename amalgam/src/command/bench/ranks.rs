//! SPH on one rank with several threads, and on as many ranks with a thread each. Both do the same work, in
//! turns.

use std::{
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use amalgam_solver_kit::{Alone, Ranks, Sent, Solver};
use rayon::ThreadPoolBuilder;

use super::{fluids, measurement::Measurement};
use crate::{
    command::plan::{basis::SPH, model::boundary},
    console::say,
    error::CommandError,
};

/// Steps of each, in turns, before the measured ones: space is cut anew after the first, the second and the
/// fourth.
const WARM_UP: usize = 5;

/// State of a rank after a step.
struct Done {
    /// Own particles, and those of others that are seen.
    particles: usize,
    ghosts: usize,
    busy: Duration,
    packing: Duration,
    sent: Sent,
}

/// A fluid on a thread of its own, which steps when it is told to.
struct Stepper {
    go: mpsc::Sender<()>,
    done: mpsc::Receiver<Done>,
    thread: JoinHandle<()>,
}

impl Stepper {
    fn start(edge: u32, ranks: Ranks, threads: usize) -> Self {
        let ((go, told), (tell, done)) = (mpsc::channel(), mpsc::channel());
        let thread = thread::spawn(move || {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(move || {
                let mut fluid = fluids::cube(edge, &ranks).expect("a good section");
                if !ranks.is_alone() {
                    fluid.share(&ranks).expect("SPH can be cut");
                }
                let mut alone = Alone::default();
                while told.recv().is_ok() {
                    let dt = fluid.stable_dt();
                    alone.step_free(&mut fluid, dt).expect("a stable step");
                    fluid.migrate();
                    let (ghosts, packing) = fluid.shared();
                    let (particles, busy) = (fluid.particles().len(), fluid.busy());
                    let done = Done { particles, ghosts, busy, packing, sent: ranks.sent() };
                    if tell.send(done).is_err() {
                        return;
                    }
                }
            });
        });
        Self { go, done, thread }
    }
}

/// Takes a step on all ranks. Its wall time [s].
fn step(ranks: &[Stepper]) -> (f64, Vec<Done>) {
    let start = Instant::now();
    ranks.iter().for_each(|rank| rank.go.send(()).expect("a rank"));
    let done = ranks.iter().map(|rank| rank.done.recv().expect("a step")).collect();
    (start.elapsed().as_secs_f64(), done)
}

/// Figures of both, and the cost of ranks.
///
/// # Errors
/// Output that cannot be written.
pub fn measure(quick: bool, threads: usize) -> Result<Vec<Measurement>, CommandError> {
    let cases: &[(&str, u32, usize)] =
        if quick { &[("SPH 100k", 46, 40)] } else { &[("SPH 1M", 100, 20), ("SPH 6.5M", 187, 9)] };
    let mut figures = Vec::new();
    for &(name, edge, steps) in cases {
        let count = (edge as usize).pow(3);
        let one = [Stepper::start(edge, Ranks::alone(), threads)];
        let cut: Vec<Stepper> =
            Ranks::threads(threads).into_iter().map(|ranks| Stepper::start(edge, ranks, 1)).collect();
        let (mut seconds, mut before, mut after) = ([Vec::new(), Vec::new()], Vec::new(), Vec::new());
        for k in 0..WARM_UP + steps {
            let (first, second) = (step(&one), step(&cut));
            if k < WARM_UP {
                before = second.1;
                continue;
            }
            seconds[0].push(first.0);
            seconds[1].push(second.0);
            after = second.1;
        }
        for stepper in one.into_iter().chain(cut) {
            drop(stepper.go);
            stepper.thread.join().map_err(|_| CommandError::Failed("a rank panicked".into()))?;
        }
        let ratios = seconds[0].iter().zip(&seconds[1]).map(|(one, cut)| cut / one);
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let [one, cut] = seconds;
        for (what, seconds) in [("1 rank", one), ("a rank per thread", cut)] {
            figures
                .push(Measurement { threads, ..Measurement::new(format!("{name}, {what}"), count, seconds) });
        }
        let ghosts: usize = after.iter().map(|rank| rank.ghosts).sum();
        let spent = |of: fn(&Done) -> Duration| {
            let spent = after.iter().zip(&before).map(move |(now, then)| of(now) - of(then));
            spent.map(|time| time.as_secs_f64()).collect::<Vec<_>>()
        };
        let (busy, packing) = (spent(|done| done.busy), spent(|done| done.packing));
        let mean = busy.iter().sum::<f64>() / busy.len() as f64;
        let largest = busy.iter().copied().fold(0.0, f64::max);
        let all: usize = after.iter().map(|rank| rank.particles).sum();
        say(format_args!(
            "{name}: {threads} ranks take {:.3} times as long (median of {steps} steps in turns); ghosts {:.1} % of own particles, \
             packing {:.1} ns per particle, busiest rank {:.2} times the mean",
            ratios[ratios.len() / 2],
            100.0 * ghosts as f64 / all as f64,
            packing.iter().sum::<f64>() * 1e9 / (all * steps) as f64,
            largest / mean
        ))?;
        let each = (threads * steps) as f64;
        let sent = |of: fn(&Sent) -> u64| {
            let sent = after.iter().zip(&before).map(|(now, then)| of(&now.sent) - of(&then.sent));
            sent.sum::<u64>() as f64 / each
        };
        let model = boundary(count as f64, threads, SPH.depth);
        say(format_args!(
            "  per rank and step: {:.0} ghosts, {:.1} messages of {:.0} kB in all, {:.1} sums and maxima; by the model of `amalgam \
             plan`: {:.0} ghosts, {:.1} messages of {:.0} kB, {:.1} sums and maxima",
            ghosts as f64 / threads as f64,
            sent(|sent| sent.messages),
            1e-3 * sent(|sent| sent.bytes),
            sent(|sent| sent.collectives),
            model.ghosts,
            model.neighbours * SPH.messages,
            1e-3 * model.ghosts * SPH.bytes,
            SPH.collectives
        ))?;
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ghosts and messages of real ranks, oversubscribed if need be, against the model of `amalgam plan`.
    #[test]
    fn ranks_see_and_send_what_the_model_says() {
        const EDGE: u32 = 36;
        for size in [1, 2, 4, 8] {
            let cut: Vec<Stepper> =
                Ranks::threads(size).into_iter().map(|ranks| Stepper::start(EDGE, ranks, 1)).collect();
            (1..WARM_UP).for_each(|_| drop(step(&cut)));
            let (_, before) = step(&cut);
            let (_, after) = step(&cut);
            for stepper in cut {
                drop(stepper.go);
                stepper.thread.join().expect("a rank");
            }
            let mean = |of: &dyn Fn(usize) -> u64| (0..size).map(of).sum::<u64>() as f64 / size as f64;
            let ghosts = mean(&|rank| after[rank].ghosts as u64);
            let messages = mean(&|rank| after[rank].sent.messages - before[rank].sent.messages);
            let model = boundary(f64::from(EDGE).powi(3), size, SPH.depth);
            assert!((ghosts - model.ghosts).abs() <= 0.2 * model.ghosts, "{size} ranks: {ghosts} {model:?}");
            // Particles may change ranks in the step. Planes of real cuts lie between whole cells, so that
            // corners may not meet.
            let expected = model.neighbours * SPH.messages;
            assert!(
                (0.8 * expected..=1.5 * expected).contains(&messages),
                "{size} ranks: {messages} {model:?}"
            );
        }
    }
}
