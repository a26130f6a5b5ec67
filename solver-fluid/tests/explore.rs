//! x
mod common;
use amalgam_particles::{DVec3,GroupMap};
use amalgam_solver_kit::Solver;
use common::*;
const DAM: &str = "spacing = 0.05\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.5, 0.5, 0.8]";
fn w() -> amalgam_solver_kit::World { world(DVec3::new(1.5, 0.5, 1.0), 9.81) }
#[test] #[ignore]
fn cfl() {
    for law in ["tait", "mueller"] { for visc in ["", "viscosity = 0.001\n"] { for cfl in [0.2, 0.4, 0.5, 0.6, 0.8, 1.0] {
        let mut solver = create(&format!("cfl = {cfl}\nequation_of_state=\"{law}\"\n{visc}{DAM}"), &w());
        let pot = |s: &dyn Solver| s.particles().position.iter().map(|x| s.particles().mass[0] * 9.81 * x.z).sum::<f64>();
        let e0 = pot(&*solver);
        let (mut top, mut fast, mut comp, mut e) = (0.0f64, 0.0f64, 0.0f64, 0.0);
        let mut n = 0;
        run(&mut *solver, 0.8, |s, _, r| { n += 1; e = (pot(s)+kinetic_energy(s)+r.energies[0].1)/e0; top = top.max(e); fast = s.particles().velocity.iter().map(|v| v.length()).fold(fast, f64::max);
           if n % 20 == 0 { comp = field(s,"density").iter().fold(comp as f32, |a,&b| a.max(b)) as f64; } });
        println!("RES {law} {visc:?} cfl {cfl}: top energy {top:.4}, end {e:.4}, fastest {fast:.2}, densest {comp:.0}, steps {n}");
    }}}
}
#[test] #[ignore]
fn groups() {
    for (per, inertia_ratio) in [(1usize, 1.1), (1,2.0), (8, 2.0), (8, 11.0)] { for sub in [1, 2, 3, 4, 6, 10] {
        let mut solver = create(&format!("max_substeps = {sub}\n{DAM}"), &w());
        let m = solver.particles().mass[0];
        // groups of neighbouring particles along x in the lowest layer
        let members: Vec<u32> = (0..solver.particles().len() as u32).filter(|i| (i / 10) % 2 == 0 && i % 10 < 8 ).collect();
        let mut offsets: Vec<u32> = (0..members.len() as u32).step_by(per).collect(); offsets.push(members.len() as u32);
        let mut map = GroupMap::default(); map.set(solver.particles().len(), &offsets, &members);
        let g = map.len();
        let mut groups = Groups { map, inertia: vec![inertia_ratio * m * per as f64; g], velocity: vec![DVec3::ZERO; g] };
        let mut t = 0.0; let mut dt = solver.stable_dt(); let mut fast = 0.0f64; let mut ok = true; let mut ke=0.0;
        while t < 0.3 {
            let r = step(&mut *solver, &groups, dt); t += dt; dt = r.stable_dt;
            for k in 0..g { groups.velocity[k] = solver.particles().velocity[groups.map.members(k)[0] as usize]; }
            fast = solver.particles().velocity.iter().map(|v| v.length()).fold(fast, f64::max);
            ke = kinetic_energy(&*solver);
            if !(fast < 100.0) { ok = false; break; }
        }
        println!("RES per {per} M/m {inertia_ratio} substeps {sub}: ok {ok} t {t:.3} fastest {fast:.2} ke {ke:.2}");
    }}
}
