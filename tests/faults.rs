//! Solvers that die, stop, never start, never answer or go mad: the run ends in time, says who, when and
//! where, keeps what it has, and leaves nothing behind.

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use amalgam_coordinator::CoordinatorError;
use amalgam_particles::{DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Description, Integration, Listen, Report, Request, SectionError, ServeOptions, Solver,
    SolverError, SolverProgram, World, serve,
};
use support::Scene;
use support::process::{Folder, children, is_alive, repository, signal, stderr, wait_until};

const STEP_DEADLINE: Duration = Duration::from_secs(2);

/// Added to the deadline for ending processes and writing, on a machine that has other things to do.
const MARGIN: Duration = Duration::from_secs(4);

/// All that a solver may be stopped in.
const PHASES: [&str; 5] = ["Survey", "Begin", "Integrate", "Commit", "Frame"];

/// A run that would take hours, with two frames written.
fn start(folder: &Folder) -> (Child, Vec<u32>) {
    let arguments =
        ["--set=time.duration=1000", "--set=time.frame_interval=0.002", "--set=coupling.step_deadline=2"];
    let scene = repository("scenes/small/drop.toml");
    let mut command = folder.command(&scene, &arguments);
    let child = command.arg("--quiet").stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    let frame = folder.out().join("frames/water_000002.vtu");
    assert!(wait_until(Duration::from_secs(60), || frame.exists()), "the run writes its frames");
    let solvers = children(child.id());
    assert_eq!(solvers.len(), 2, "a process per participant");
    (child, solvers)
}

/// Participant that a solver's process serves: sockets are numbered as participants are in the scene.
fn participant_of(solver: u32) -> &'static str {
    let line = std::fs::read(format!("/proc/{solver}/cmdline")).expect("it runs");
    let line = String::from_utf8(line).expect("UTF-8");
    if line.contains("solid") { "cloth" } else { "water" }
}

fn finish(child: Child, since: Instant) -> Output {
    let output = child.wait_with_output().expect("it ends");
    let took = since.elapsed();
    assert!(took < STEP_DEADLINE + MARGIN, "took {took:?}");
    output
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// The error names participant, phase and step.
fn assert_names(text: &str, participant: &str) {
    assert_says(text, &[&format!("participant {participant} ")]);
    let step =
        text.split(" of step ").nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    assert!(
        step.is_some_and(|digits| digits.parse::<u64>().is_ok_and(|step| step > 0)),
        "no step in {text:?}"
    );
    assert!(PHASES.iter().any(|phase| text.contains(&format!(" {phase} of step"))), "no phase in {text:?}");
}

/// Nothing runs any more, no socket is left, and the results so far can be read.
fn assert_orderly(folder: &Folder, error: &str, solvers: &[u32]) {
    assert!(solvers.iter().all(|&solver| !is_alive(solver)), "a solver is left");
    assert_eq!(folder.processes(), Vec::<u32>::new(), "processes are left");
    assert_eq!(folder.temporary(), Vec::<std::path::PathBuf>::new(), "sockets are left");
    let summary = folder.summary();
    let told = summary["error"].as_str().expect("the summary has the error");
    assert!(error.contains(told), "standard error says {error:?}, the summary {told:?}");
    assert_eq!(summary["interrupted"], false);
    let steps = summary["steps"].as_u64().expect("a number");
    assert!(steps > 0);
    let (mut frames, mut vertices) = (0, 0);
    for participant in ["cloth", "water"] {
        let collection =
            std::fs::read_to_string(folder.out().join(format!("{participant}.pvd"))).expect("reads");
        assert!(collection.trim_end().ends_with("</VTKFile>"), "{collection}");
        for part in collection.split("file=\"").skip(1) {
            let file = part.split('"').next().expect("a name");
            vertices += points(&folder.out().join(file));
            frames += 1;
        }
    }
    assert!(frames >= 6, "{frames} frames are listed");
    assert!(vertices >= 3 * (441 + 257), "{vertices} particles in {frames} frames");
    for probe in ["crossings", "momentum"] {
        let table = std::fs::read_to_string(folder.out().join(format!("probes/{probe}.csv"))).expect("reads");
        let columns = table.lines().next().expect("a header").split(',').count();
        let mut rows = 0;
        for row in table.lines().skip(1) {
            let values: Vec<f64> = row.split(',').map(|value| value.parse().expect("a number")).collect();
            assert_eq!(values.len(), columns);
            rows += 1;
        }
        assert_eq!(rows, steps, "a row a step in {probe}.csv");
    }
}

/// Points of a frame that was written whole.
fn points(file: &Path) -> usize {
    let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.starts_with("<?xml") && text.trim_end().ends_with("</VTKFile>"), "{}", file.display());
    let count = text.split("NumberOfPoints=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("{} does not say how many points it has", file.display()))
}

#[test]
fn a_killed_solver_ends_the_run() {
    for which in [0, 1] {
        let folder = Folder::new();
        let (run, solvers) = start(&folder);
        let participant = participant_of(solvers[which]);
        let since = Instant::now();
        signal(solvers[which], "KILL");
        let output = finish(run, since);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert_names(&error, participant);
        assert_says(
            &error,
            &[
                "was lost in ",
                "it is dead: nothing listens there any more",
                &format!("the process of {participant} has ended: signal: 9 (SIGKILL)"),
            ],
        );
        assert_orderly(&folder, &error, &solvers);
    }
}

#[test]
fn a_stopped_solver_ends_the_run_at_the_deadline() {
    let folder = Folder::new();
    let (run, solvers) = start(&folder);
    let participant = participant_of(solvers[0]);
    let since = Instant::now();
    signal(solvers[0], "STOP");
    let output = finish(run, since);
    assert!(since.elapsed() > STEP_DEADLINE.mul_f64(0.9), "gave up early");
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_names(&error, participant);
    assert_says(&error, &["did not answer within 2 s, nor does its service", "coupling.step_deadline"]);
    assert_orderly(&folder, &error, &solvers);
}

/// Not even a run that is killed leaves its solvers behind. (Its folder of sockets stays: nobody is left to
/// remove it.)
#[test]
fn solvers_end_with_a_killed_run() {
    let folder = Folder::new();
    let (mut run, solvers) = start(&folder);
    run.kill().expect("kills");
    run.wait().expect("it ends");
    let ended = || solvers.iter().all(|&solver| !is_alive(solver));
    assert!(wait_until(MARGIN, ended), "solvers outlive the run");
    assert_eq!(folder.processes(), Vec::<u32>::new());
    let sockets = folder.temporary().iter().flat_map(|path| std::fs::read_dir(path).expect("reads")).count();
    assert_eq!(sockets, 0, "sockets are left");
}

/// The small scene with its water elsewhere.
fn elsewhere(folder: &Folder, address: &str) -> std::path::PathBuf {
    let text = std::fs::read_to_string(repository("scenes/small/drop.toml")).expect("reads");
    let local = "solver = \"fluid\"\n";
    assert!(text.contains(local));
    folder.scene(&text.replace(local, &format!("{local}address = \"{address}\"\n")))
}

/// A run that cannot begin: what it says on standard error.
fn refused_start(address: &str) -> String {
    let folder = Folder::new();
    let scene = elsewhere(&folder, address);
    let since = Instant::now();
    let mut command = folder.command(&scene, &["--quiet", "--set=coupling.step_deadline=2"]);
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let output = finish(run, since);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(folder.processes(), Vec::<u32>::new(), "processes are left");
    assert_eq!(folder.temporary(), Vec::<std::path::PathBuf>::new(), "sockets are left");
    let summary = folder.summary();
    assert!(error.contains(summary["error"].as_str().expect("the summary has the error")), "{summary:#}");
    assert_eq!(summary["steps"], 0);
    error
}

#[test]
fn a_solver_that_was_never_started_ends_the_run() {
    let address = {
        let free = TcpListener::bind("127.0.0.1:0").expect("listens");
        free.local_addr().expect("an address").to_string()
    };
    let error = refused_start(&address);
    let expected = format!("participant water cannot be reached at {address}: no connection: ");
    assert_says(&error, &[&expected, "Connection refused"]);
    let error = refused_start("unix:no-such.sock");
    assert_says(&error, &["participant water cannot be reached at unix:no-such.sock: no connection: "]);
}

#[test]
fn a_solver_that_never_answers_ends_the_run() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = silent.local_addr().expect("an address").to_string();
    // Connections are accepted, kept and never read.
    std::thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    let error = refused_start(&address);
    let expected =
        format!("participant water cannot be reached at {address}: no answer to Describe within 2 s");
    assert_says(&error, &[&expected]);
}

/// Ways in which a solver goes mad in step 3.
#[derive(Clone, Copy, PartialEq)]
enum Madness {
    Velocity,
    Momentum,
    Position,
    Refuses,
    Panics,
    Sleeps,
    /// The process never ends.
    Stays,
}

struct Mad {
    particles: Particles,
    madness: Madness,
}

const MAD_STEP: u64 = 3;

impl Solver for Mad {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        answer.velocity.copy_from_slice(&self.particles.velocity);
        // The first particle is pulled towards the other participant's ball, so that they stay in contact.
        answer.velocity[0] += DVec3::NEG_X * request.dt;
        answer.momentum.fill(DVec3::NEG_X * request.dt);
        if request.step == MAD_STEP {
            match self.madness {
                Madness::Velocity => answer.velocity[1].y = f64::NAN,
                Madness::Momentum => answer.momentum.fill(DVec3::INFINITY),
                Madness::Position => answer.velocity[1].y = 1e-300,
                Madness::Refuses => return Err(SolverError("particle 107 has no neighbours".into())),
                Madness::Panics => panic!("on purpose, for a test"),
                Madness::Sleeps => std::thread::sleep(Duration::from_secs(4)),
                Madness::Stays => {}
            }
        }
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        if integrated[1].y != 0.0 {
            self.particles.position[1].y = f64::NEG_INFINITY;
        }
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }
}

impl Drop for Mad {
    fn drop(&mut self) {
        if self.madness == Madness::Stays {
            std::thread::sleep(Duration::from_secs(10));
        }
    }
}

struct MadProgram(Madness);

impl SolverProgram for MadProgram {
    fn describe(&self) -> Description {
        Description { name: "mad", version: "1", integration: Integration::Explicit }
    }

    fn create(&self, _section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        // The first one rests against a ball of the other participant.
        particles.push(ParticleId(100), DVec3::X * 0.19, DVec3::NEG_X, 1.0, 0.1, false);
        particles.push(ParticleId(107), DVec3::Y, DVec3::ZERO, 1.0, 0.1, false);
        Ok(Box::new(Mad { particles, madness: self.0 }))
    }
}

fn error_of(madness: Madness) -> CoordinatorError {
    let balls = "positions = [[0, 0, 0]]\nmass = 1.0\nradius = 0.1\n";
    let scene = Scene::new(1.0, 1e-3)
        .with("good", support::balls::BallsProgram, balls)
        .with("mad", MadProgram(madness), "")
        .coupling(|coupling| {
            // Long enough for a panic to print its trace on a busy machine.
            coupling.step_deadline = 2.0;
            coupling.alpha = Some(0.0);
        });
    let mut simulation = scene.connect().unwrap_or_else(|error| panic!("{error}"));
    loop {
        assert!(!simulation.is_finished(), "nothing happened");
        if let Err(error) = simulation.step() {
            return error;
        }
    }
}

#[test]
fn an_unstable_solver_is_stopped_at_its_particle() {
    let text = |madness| error_of(madness).to_string();
    insta::assert_snapshot!(text(Madness::Velocity), @"participant mad cannot go on, in Integrate of step 3: particle 107 got velocity (0, NaN, 0): the solver is unstable");
    insta::assert_snapshot!(text(Madness::Momentum), @"participant mad cannot go on, in Integrate of step 3: the group of particle 100 got momentum (inf, inf, inf): the solver is unstable");
    insta::assert_snapshot!(text(Madness::Position), @"participant mad cannot go on, in Commit of step 3: particle 107 has no finite position any more, or no speed below 1e12 m/s");
    insta::assert_snapshot!(text(Madness::Refuses), @"participant mad cannot go on, in Integrate of step 3: particle 107 has no neighbours");
}

#[test]
fn a_solver_that_panics_or_hangs_is_named() {
    insta::assert_snapshot!(error_of(Madness::Panics).to_string(), @"participant mad cannot go on, in Integrate of step 3: an error in its program, which its log may explain (Internal): the solver panicked; see the solver's log");
    insta::assert_snapshot!(error_of(Madness::Sleeps).to_string(), @"participant mad at this process was lost in Integrate of step 3: it is slow: it did not answer within 2 s, though its service answers; give its solver more threads, or raise coupling.step_deadline if steps may take as long");
}

/// The results are whole: exit code and summary say that the run succeeded, and who did not end in order.
#[test]
fn a_participant_that_hangs_at_the_end_spoils_no_results() {
    let folder = Folder::new();
    let address = format!("unix:{}", folder.path().join("mad.sock").display());
    let listen: Listen = address.parse().expect("an address");
    let options = ServeOptions {
        listen,
        threads: Some(1),
        ranks: None,
        security: Default::default(),
        registration: Default::default(),
        log_format: Default::default(),
        files: None,
        exit_with_stdin: false,
        orphan_timeout: MARGIN,
    };
    std::thread::spawn(move || serve(Arc::new(MadProgram(Madness::Stays)), options));
    assert!(wait_until(MARGIN, || folder.path().join("mad.sock").exists()), "it listens");
    let scene = folder.scene(&format!(
        "[scene]\nname = 'end'\n[domain]\nmin = [-9, -9, -9]\nmax = [9, 9, 9]\n[time]\nduration = 0.01\n\
         [coupling]\nstep_deadline = 1\n[[participants]]\nname = 'guest'\nsolver = 'mad'\naddress = '{address}'\n"
    ));
    let output = folder.run(&scene, &[]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let summary = folder.summary();
    assert_eq!(summary["error"], serde_json::Value::Null);
    let error = summary["shutdown_error"].as_str().expect("the summary says who");
    assert_says(error, &["participant guest at ", "was lost in Shutdown", "within 1 s"]);
    assert_says(&said, &["warning: all results are written, but ", error]);
}
