//! Tests of the layout and of its kernels.

use amalgam_particles::lanes::Width;
use amalgam_particles::random::uniform_f64;

use super::super::law::Model;
use super::super::variants::{AnyStrain, Corrected, SmallStrain, StrainRange};
use super::kernels::{BondTerm, BothEnds};
use super::*;

fn table(correction: bool) -> LatticeTable {
    let points: Vec<DVec3> = (0..7 * 6 * 5)
        .map(|i| DVec3::new(f64::from(i % 7), f64::from(i / 7 % 6), f64::from(i / 42)))
        .collect();
    let lattice = Lattice::find(&points, 1.0).expect("a lattice");
    let mut law = Law {
        spacing: 1.0,
        horizon: 3.015,
        volume: 1.0,
        micromodulus: 1.0,
        critical_stretch: f64::INFINITY,
        threshold_rise: 0.0,
        strength_scatter: 0.0,
        volume_correction: true,
        surface_correction: correction,
        damping_time: 0.0,
        model: Model::Solid,
    };
    law.calibrate(Model::Solid.moment(law.horizon, 1.0), None);
    let mut table = LatticeTable::new(&lattice, &law);
    if correction {
        table.set_corrections(&(0..points.len()).map(|i| 1.0 + 0.01 * i as f32).collect::<Vec<_>>());
    }
    let shaken = |i: usize, x: &DVec3| {
        *x + DVec3::from_array([0, 1, 2].map(|axis| 0.2 * uniform_f64(&[i as u64, axis])))
    };
    let position: Vec<DVec3> = points.iter().enumerate().map(|(i, x)| shaken(i, x)).collect();
    table.load_positions(&position);
    table.round_positions(&position, position[position.len() / 2]);
    table.forces(None);
    table.multiply(Vector::Exact(&position), 1e6, None);
    table
}

/// Adds a block's terms in the copy of the loop with corrections and for the strains S.
fn add<T: BondTerm<K>, S: StrainRange, const K: usize>(
    width: &Width,
    sums: &mut [Vec<f32>],
    geometry: StencilGeometry<'_>,
    term: T,
) {
    let mut columns = sums.iter_mut();
    let sums = std::array::from_fn(|_| columns.next().expect("a column").as_mut_slice());
    width.run(BothEnds::<T, Corrected, S, K>::new(term, geometry, 0, sums));
}

/// Forces, diagonal and product of every block, one after the other, as bits.
fn bits(table: &LatticeTable, width: &Width) -> Vec<u32> {
    let total = table.sites.particle.len();
    let mut sums: [Vec<Vec<f32>>; 5] = [5, 6, 3, 3, 3].map(|columns| vec![vec![0.0; total]; columns]);
    let mut all: Vec<u32> = Vec::new();
    for block in 0..table.sites.block_site.len() {
        let mut live = table.live[table.sites.words(block)].to_vec();
        let geometry = table.geometry(block);
        let operand = table.operand.all();
        let (thresholds, is_far, broken) = (None, false, &mut Vec::new());
        let variant = PhantomData::<LeastRecorded>;
        let term = ForceTerm { variant, geometry, live: &mut live, thresholds, is_far, broken };
        add::<_, SmallStrain, 5>(width, &mut sums[0], geometry, term);
        let (live, mut coefficient) = (&live, vec![[0; LANES]; live.len()]);
        let term = DiagonalTerm { geometry, live, coefficient: &mut coefficient };
        add::<_, AnyStrain, 6>(width, &mut sums[1], geometry, term);
        let coefficient = coefficient.as_slice();
        all.extend(coefficient.iter().flatten());
        let exact = || ProductTerm { bonds: ExactBonds { geometry, operand }, live };
        add::<_, AnyStrain, 3>(width, &mut sums[2], geometry, exact());
        add::<_, SmallStrain, 3>(width, &mut sums[2], geometry, exact());
        // Exponents and mantissas as they come, but no NaN.
        let operand = operand.map(|u| u.iter().map(|u| u & 0x4fff_ffff).collect::<Vec<_>>());
        let (operand, position) = (operand.each_ref().map(Vec::as_slice), table.position.all());
        let rounded =
            || ProductTerm { bonds: RoundedBonds { geometry, coefficient, position, operand }, live };
        add::<_, AnyStrain, 3>(width, &mut sums[3], geometry, rounded());
        add::<_, SmallStrain, 3>(width, &mut sums[4], geometry, rounded());
    }
    all.extend(sums.iter().flatten().flatten().map(|value| value.to_bits()));
    all
}

#[test]
fn every_width_gives_the_same_bits() {
    let table = table(true);
    let widths = Width::supported();
    let plain = bits(&table, &widths[0]);
    assert!(plain.iter().any(|&bits| bits != 0));
    for width in &widths[1..] {
        assert!(bits(&table, width) == plain, "{width:?}");
    }
}

#[test]
fn a_bond_pulls_both_ends_alike() {
    let table = table(false);
    for i in 0..table.sites.place.len() {
        table.visit(i, &mut |bond| {
            let mut back = 0;
            table.visit(bond.neighbour as usize, &mut |other| {
                if other.neighbour as usize == i {
                    back += 1;
                    assert_eq!((other.rest, other.stiffness), (bond.rest, bond.stiffness));
                }
            });
            assert_eq!(back, 1);
        });
        for j in 0..table.sites.place.len() {
            let mut joined = false;
            table.visit(i, &mut |bond| joined |= bond.neighbour as usize == j);
            assert_eq!(table.joined(i, j), joined, "{i} {j}");
        }
    }
    // The remainder of the sum of all forces is the rounding of each particle's own sum.
    let total = (0..table.sites.place.len()).fold([0.0; 3], |total: [f64; 3], i| {
        let force = table.force(i).0;
        std::array::from_fn(|axis| total[axis] + f64::from(force[axis]))
    });
    let scale: f64 = (0..table.sites.place.len()).map(|i| f64::from(table.force(i).0[0].abs())).sum();
    assert!(total.iter().all(|sum| sum.abs() < 1e-6 * scale), "{total:?} of {scale}");
}
