//! After warm-up nothing grows with steps: neither coordinator, nor services, nor what is between them.

mod support;

use amalgam_coordinator::Quantity;
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::Scene;

#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

const WARM_UP: u64 = 2400;
const STEPS: u64 = 6400;

/// Steps over which the least heap is taken: buffers in flight come and go, and what is kept is below them.
const WINDOW: u64 = 1600;

/// Growth from the first window to the last that is too much [bytes]: one 64-bit number kept in each step
/// makes 38,400. Without it the heap swings by some 12,000: buffers of 4096 bytes are kept or not, as threads
/// happen to run, and the numbers of contacts and of near pairs vary.
const GROWTH: usize = 20_000;

#[test]
fn the_heap_does_not_grow_with_steps() {
    let sheet = "method = 'mass-spring'\nself_collision = true\n[[bodies]]\ntype = 'sheet'\ncorner = [-0.1, -0.1, 0]\n\
                 edge_u = [0.2, 0, 0]\nedge_v = [0, 0.2, 0]\nspacing = 0.02\narea_density = 2.0\n\
                 structural_stiffness = 1000.0\ndamping_ratio = 1.0\npinned = 'edges'\n\
                 foundation = { stiffness = 5.0, damping = 0.5 }\n";
    let water = "method = 'sph'\nspacing = 0.02\nsound_speed = 10.0\nviscosity = 1.0\n[[shapes]]\ntype = 'box'\n\
                 min = [-0.06, -0.06, 0.024]\nmax = [0.06, 0.06, 0.064]\n";
    let scene = Scene::new(10.0, 1e-3)
        .with("sheet", SolidProgram, sheet)
        .with("water", FluidProgram, water)
        .probe("crossings", Quantity::Crossings { sheet: "sheet".into(), of: "water".into() })
        .probe("sag", Quantity::Displacement { participant: "sheet".into(), point: DVec3::ZERO })
        .probe("energy", Quantity::Energy {})
        .probe("overlap", Quantity::Overlap {})
        .coupling(|coupling| {
            coupling.alpha = Some(0.0);
            coupling.stages_max = Some(amalgam_coordinator::StagesMax::Converged);
        });
    let mut simulation = scene.connect().unwrap_or_else(|error| panic!("{error}"));
    let (mut windows, mut least, mut groups) = (Vec::new(), usize::MAX, 0);
    for step in 1..=WARM_UP + STEPS {
        let record = simulation.step().unwrap_or_else(|error| panic!("{error}"));
        if step > WARM_UP {
            groups += record.groups;
            least = least.min(HEAP.current_usage());
            if step.is_multiple_of(WINDOW) {
                windows.push(least);
                least = usize::MAX;
            }
        }
    }
    assert!(groups > STEPS, "the water does not rest on the sheet: {groups} groups in {STEPS} steps");
    let (before, after) = (windows[0], windows[windows.len() - 1]);
    assert!(after < before + GROWTH, "the heap grows: {windows:?} bytes");
}
