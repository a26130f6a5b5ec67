//! Response of FLIP water to impulses on single particles.
use amalgam_particles::{DVec3, GroupMap};
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{Alone, AloneGroups, SolverProgram, World};
use nalgebra::{DMatrix, SymmetricEigen};

fn main() {
    let world = World {
        participant: "water".into(),
        domain: (DVec3::ZERO, DVec3::new(0.4, 0.4, 1.0)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
    };
    for bottom in [0.0125f64, 0.26] {
    for ratio in [1.0, 0.97] {
    let section = format!("method = 'flip'\nspacing = 0.025\nflip_ratio = {ratio:?}\n[[shapes]]\ntype = 'box'\nmin = [0, 0, {bottom}]\n\
         max = [0.4, 0.4, {}]\n", bottom + 0.4);
    let mut solver = FluidProgram.create(&section, &world).unwrap_or_else(|f| panic!("{f:?}"));
    let solver = solver.as_mut();
    let mut alone = Alone::default();
    for _ in 0..2 { alone.step_free(solver, 2e-3).unwrap(); }
    solver.begin().unwrap();
    let low = solver.particles().position.iter().map(|x| x.z).fold(1.0, f64::min);
    let members: Vec<u32> = (0..solver.particles().len() as u32)
        .filter(|&i| solver.particles().position[i as usize].z < low + 0.02).collect();
    let n = members.len();
    let offsets: Vec<u32> = (0..=n as u32).collect();
    let mut map = GroupMap::default();
    map.set(solver.particles().len(), &offsets, &members);
    let m = solver.particles().mass[0];
    let start: Vec<DVec3> = members.iter().map(|&i| solver.particles().velocity[i as usize]).collect();
    let mut groups = AloneGroups::new(map, vec![m; n], start.clone());
    let mut answer = |jump: bool, j: &[f64]| -> Vec<DVec3> {
        for k in 0..n {
            let impulse = DVec3::Z * j[k];
            groups.velocity[k] = start[k] + if jump { impulse / m } else { DVec3::ZERO };
            groups.impulse[k] = if jump { DVec3::ZERO } else { impulse };
        }
        let mut alone = Alone::default();
        alone.integrate(solver, (&groups, 0.0), 2e-3).unwrap();
        alone.group_velocities(&groups)
    };
    for jump in [false, true] {
        let free = answer(jump, &vec![0.0; n]);
        let size = m * 0.1;
        let response = |j: &[f64], answer: &mut dyn FnMut(bool, &[f64]) -> Vec<DVec3>| -> Vec<f64> {
            answer(jump, j).iter().zip(&free).map(|(v, f)| (v.z - f.z) * m / size).collect()
        };
        let mut b = DMatrix::zeros(n, n);
        for k in 0..n {
            let mut j = vec![0.0; n];
            j[k] = size;
            b.set_column(k, &nalgebra::DVector::from_vec(response(&j, &mut answer)));
        }
        let asym = (&b - b.transpose()).norm() / b.norm();
        let diag = b.diagonal();
        let eigen = SymmetricEigen::new((&b + b.transpose()) * 0.5).eigenvalues;
        let mut e: Vec<f64> = eigen.iter().copied().collect();
        e.sort_by(f64::total_cmp);
        let all = vec![size; n];
        let coherent = response(&all, &mut answer).iter().sum::<f64>() / n as f64;
        let all2 = vec![size * 50.0; n];
        let coherent2 = response(&all2, &mut answer).iter().sum::<f64>() / n as f64 / 50.0;
        println!("bottom {bottom} ratio {ratio} jump {jump}: n {n} asym {asym:.1e} diag {:.4} to {:.4} eig min {:.4e} {:.4e} {:.4e} median {:.4} max {:.4}; coherent {coherent:.4} {coherent2:.4}",
            diag.min(), diag.max(), e[0], e[1], e[n/20], e[n/2], e[n-1]);
    }
    }}
}
