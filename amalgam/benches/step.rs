//! A whole step in which nothing happens, over each transport: the cost of coordinator and transport by
//! themselves.
//!
//! Two explicit participants of N particles each, at rest on lattices that touch along one edge only; the
//! interest mask keeps the rest from crossing the wire. `cargo bench -p amalgam --bench step`.

#![allow(missing_docs, reason = "a benchmark")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use amalgam_coordinator::{
    Address, Cancel, CouplingSettings, DomainSettings, ParticipantPlan, Plan, Simulation, TimeSettings,
};
use amalgam_particles::{DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Description, Integration, Listen, Report, Request, SectionError, ServeOptions, Solver,
    SolverError, SolverProgram, World, serve, serve_in_process,
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const RADIUS: f64 = 0.5;

/// Particles of a cubic lattice that do nothing.
struct Rest(Particles);

impl Solver for Rest {
    fn particles(&self) -> &Particles {
        &self.0
    }

    fn integrate(&mut self, _request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        answer.velocity.copy_from_slice(&self.0.velocity);
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.0, integrated);
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }
}

struct RestProgram;

#[derive(serde::Deserialize)]
struct Section {
    particles: u64,
    corner: DVec3,
}

impl SolverProgram for RestProgram {
    fn describe(&self) -> Description {
        Description { name: "rest", version: "1", integration: Integration::Explicit }
    }

    fn create(&self, section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let section: Section = amalgam_solver_kit::parse_section(section)?;
        let edge = (section.particles as f64).cbrt().ceil() as u64;
        let mut particles = Particles::default();
        for i in 0..section.particles {
            let cell = [i % edge, i / edge % edge, i / (edge * edge)].map(|c| c as f64 * 2.1 * RADIUS);
            let position = section.corner + DVec3::from_array(cell);
            particles.push(ParticleId(i), position, DVec3::ZERO, 1.0, RADIUS, false);
        }
        Ok(Box::new(Rest(particles)))
    }
}

#[derive(Clone, Copy)]
enum Transport {
    InProcess,
    Unix,
    Tcp,
}

impl Transport {
    /// Starts a service with one thread for physics, and waits until it listens.
    fn serve(self, folder: &Path, index: usize) -> Address {
        let (listen, address) = match self {
            Self::InProcess => {
                return Address::InProcess(
                    serve_in_process(Arc::new(RestProgram), 1, 1, None).expect("threads"),
                );
            }
            Self::Unix => {
                let path: PathBuf = folder.join(format!("{index}.sock"));
                (Listen::Unix(path.clone()), Address::Unix(path))
            }
            Self::Tcp => {
                let free = TcpListener::bind("127.0.0.1:0").expect("a port");
                let address = free.local_addr().expect("an address");
                (Listen::Tcp(address.to_string()), Address::Tcp(address.to_string()))
            }
        };
        let options = ServeOptions {
            listen,
            threads: Some(1),
            ranks: None,
            files: None,
            exit_with_stdin: false,
            orphan_timeout: Duration::from_secs(3600),
            security: Default::default(),
            registration: Default::default(),
            log_format: Default::default(),
        };
        // The service lasts as long as this process.
        std::thread::spawn(move || serve(Arc::new(RestProgram), options).expect("serves"));
        let listens = || match &address {
            Address::Unix(path) => std::os::unix::net::UnixStream::connect(path).is_ok(),
            Address::Tcp(address) => std::net::TcpStream::connect(address).is_ok(),
            Address::InProcess(_) | Address::Registered(..) => true,
        };
        while !listens() {
            std::thread::sleep(Duration::from_millis(5));
        }
        address
    }
}

fn connect(transport: Transport, folder: &Path, particles: u64) -> Simulation {
    let edge = (particles as f64).cbrt().ceil() * 2.1 * RADIUS;
    let plan = Plan {
        scene: "rest".into(),
        seed: 1,
        domain: DomainSettings {
            min: DVec3::splat(-1e3),
            max: DVec3::splat(1e3),
            gravity: DVec3::ZERO,
            obstacles: Vec::new(),
        },
        time: TimeSettings { duration: 1e9, frame_interval: 1e9, dt_max: 1e-3, cfl: 0.5 },
        coupling: CouplingSettings::default(),
        probes: Vec::new(),
    };
    // Shifted along two axes: the lattices overlap by a little along one edge.
    let corners = [DVec3::ZERO, DVec3::new(edge - 0.8 * RADIUS, edge - 0.8 * RADIUS, 0.0)];
    let participants = corners.iter().enumerate().map(|(index, corner)| ParticipantPlan {
        name: format!("rest-{index}"),
        solver: "rest".into(),
        section: format!(
            "particles = {particles}\ncorner = [{:?}, {:?}, {:?}]\n",
            corner.x, corner.y, corner.z
        ),
        address: transport.serve(folder, index),
        access: Default::default(),
        elastic: true,
        wait: std::time::Duration::ZERO,
    });
    let participants = participants.collect();
    Simulation::connect(plan, participants, &Cancel::new()).unwrap_or_else(|error| panic!("{error}"))
}

fn no_op_step(c: &mut Criterion) {
    let mut group = c.benchmark_group("no-op step");
    group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for particles in [1_000, 100_000] {
        for (name, transport) in
            [("in-process", Transport::InProcess), ("unix", Transport::Unix), ("tcp", Transport::Tcp)]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let mut simulation = connect(transport, folder.path(), particles);
            let record = simulation.step().unwrap_or_else(|error| panic!("{error}"));
            assert!(record.marked > 0, "the participants do not touch");
            group.throughput(Throughput::Elements(2 * particles));
            let (mut steps, mut wall) = (0u64, 0.0);
            group.bench_function(BenchmarkId::new(name, 2 * particles), |bencher| {
                bencher.iter(|| {
                    let record = simulation.step().unwrap_or_else(|error| panic!("{error}"));
                    steps += 1;
                    wall += record.wall_s;
                });
            });
            // Where the time goes, all steps of this benchmark together.
            if steps > 0 {
                let step = wall / steps as f64;
                let phases = simulation.summary().phases_s;
                let share = |phase: f64| 100.0 * phase / wall;
                println!(
                    "{name}, {} particles: {:.3} ms a step, {:.1} ns a particle; begin {:.0} %, detect {:.0} %, \
                     integrate {:.0} %, commit {:.0} %",
                    2 * particles,
                    1e3 * step,
                    1e9 * step / (2 * particles) as f64,
                    share(phases.begin),
                    share(phases.detect),
                    share(phases.integrate),
                    share(phases.commit)
                );
            }
            simulation.finish().unwrap_or_else(|error| panic!("{error}"));
        }
    }
    group.finish();
}

criterion_group!(benches, no_op_step);
criterion_main!(benches);
