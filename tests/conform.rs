//! Every solver here keeps the rules that `amalgam conform` tries. `conform/tests/broken.rs` has those that
//! break them.

mod support;

use std::sync::Arc;

use amalgam_conform::{Finding, Section, Verdict, examine};
use amalgam_coordinator::Address;
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{SolverProgram, serve_in_process};
use amalgam_solver_solid::SolidProgram;
use support::balls::BallsProgram;

const BALLS: &str = "positions = [[0, 0, 1], [0, 0, 1.15], [0.4, 0.1, 1], [-1, 0.5, 2]]\n\
                     velocities = [[0, 0, 0], [0, 0, -1], [1, 0.5, 0.25], [0.1, 0, 0]]\n\
                     mass = 2.0\nradius = 0.1\nself_collision = true\n";

fn section(text: &str) -> Section {
    Section {
        participant: "tried".into(),
        text: text.into(),
        domain: (DVec3::ZERO, DVec3::new(0.4, 0.2, 0.8)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
    }
}

fn tried(program: impl SolverProgram, text: &str, ranks: usize) -> Vec<Finding> {
    let address = Address::InProcess(serve_in_process(Arc::new(program), 2, ranks, None).expect("threads"));
    let access = Default::default();
    examine(address.connect(&access), &section(text), |_| true, |_| ()).expect("the service is there")
}

fn of<T>(findings: &[Finding], pick: impl Fn(&Finding) -> Option<T>) -> Vec<T> {
    findings.iter().filter_map(pick).collect()
}

/// Tries all rules on a program; none may be broken, and these skipped, no others.
#[track_caller]
fn keeps(program: impl SolverProgram, text: &str, skipped: &[&str]) {
    keeps_on(1, program, text, skipped);
}

/// The same of a program that is cut among ranks.
#[track_caller]
fn keeps_on(ranks: usize, program: impl SolverProgram, text: &str, skipped: &[&str]) {
    let findings = tried(program, text, ranks);
    let failed = of(&findings, |finding| match &finding.verdict {
        Verdict::Failed(reason) => Some(format!("{}: {reason}\n{:#?}", finding.rule, finding.calls.last())),
        _ => None,
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let left =
        of(&findings, |finding| matches!(finding.verdict, Verdict::Skipped(_)).then_some(finding.rule));
    assert_eq!(left, skipped, "rules that were skipped");
}

const NO_BODIES: [&str; 3] = ["bodies-described", "angular-momentum", "spin-taken"];

/// Rules skipped for a section, in addition to those about bodies.
fn without_bodies(before: &[&'static str], after: &[&'static str]) -> Vec<&'static str> {
    [before, &NO_BODIES[..], after].concat()
}

#[test]
fn balls_keep_every_rule() {
    keeps(
        BallsProgram,
        BALLS,
        &without_bodies(
            &["slopes"],
            &["occupancy", "save", "save-restore", "restore-back", "snapshot-faults"],
        ),
    );
}

#[test]
fn springs_keep_every_rule() {
    let text = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [0.05, 0.05, 0.4]\nedge_u = [0.1, 0, 0]\n\
                edge_v = [0, 0.08, 0]\nspacing = 0.02\narea_density = 0.4\nstructural_stiffness = 300.0\npinned = 'edges'\n";
    let open = ["brief", "explicit", "slope-kind", "momentum-of-groups"];
    keeps(SolidProgram, text, &without_bodies(&open, &["occupancy"]));
}

#[test]
fn free_springs_keep_momentum() {
    let text = "method = 'mass-spring'\n[[bodies]]\ntype = 'volume'\nspacing = 0.02\ndensity = 1000.0\nstiffness = 1e4\n\
                velocity = [0.3, 0, 0]\nshape = { type = 'box', min = [0.1, 0.05, 0.4], max = [0.2, 0.13, 0.46] }\n";
    keeps(SolidProgram, text, &without_bodies(&["brief", "explicit", "slope-kind"], &["occupancy"]));
}

#[test]
fn peridynamics_keeps_every_rule() {
    let text = "method = 'peridynamics'\n[[bodies]]\ntype = 'volume'\nspacing = 0.02\ndensity = 1000.0\nyoung_modulus = 1e5\n\
                shape = { type = 'box', min = [0.1, 0.05, 0.4], max = [0.2, 0.13, 0.46] }\n";
    keeps(SolidProgram, text, &without_bodies(&["brief", "explicit", "slope-kind"], &["occupancy"]));
}

#[test]
fn grains_with_spin_keep_every_rule() {
    let text = "method = 'grains'\nspin = true\n[[bodies]]\ntype = 'grains'\nspacing = 0.04\nradius = 0.019\ndensity = 1500.0\n\
                velocity = [0.1, 0.0, 0.2]\nshape = { type = 'box', min = [0.1, 0.0, 0.4], max = [0.3, 0.1, 0.5] }\n";
    let groups = [
        "group-of-one",
        "group-order",
        "slopes",
        "momentum-of-groups",
        "members-move",
        "free-move",
        "occupancy",
    ];
    keeps(SolidProgram, text, &groups);
}

#[test]
fn rigid_bodies_keep_every_rule() {
    let text = "method = 'rigid'\n[[bodies]]\ntype = 'rigid'\nspacing = 0.03\ndensity = 600.0\nangular_velocity = [1.0, 2.0, 1.0]\n\
                shape = { type = 'box', min = [0.1, 0.0, 0.4], max = [0.22, 0.09, 0.46] }\n";
    let groups = [
        "brief",
        "group-of-one",
        "group-order",
        "slopes",
        "momentum-of-groups",
        "members-move",
        "free-move",
        "occupancy",
    ];
    keeps(SolidProgram, text, &groups);
}

#[test]
fn sph_keeps_every_rule() {
    let text = "method = 'sph'\nspacing = 0.02\n[[shapes]]\ntype = 'sphere'\ncenter = [0.2, 0.1, 0.4]\nradius = 0.06\n\
                velocity = [0.0, 0.0, -1.0]\n";
    keeps(FluidProgram, text, &without_bodies(&["slopes"], &["occupancy"]));
    keeps_on(3, FluidProgram, text, &without_bodies(&["slopes"], &["occupancy"]));
}

#[test]
fn flip_keeps_every_rule() {
    let text = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [0.2, 0.2, 0.2]\n";
    keeps(FluidProgram, text, &without_bodies(&["explicit", "slopes", "momentum-of-groups"], &[]));
}
