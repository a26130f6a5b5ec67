//! The solver's data by role: settings, time, particles on the grid, kinds of cells, and impulses from
//! outside. [`FlipMethod`](super::FlipMethod) says which of them outlive a step.

use amalgam_particles::CellSet;
use amalgam_particles::lanes::Width;
use amalgam_particles::{DVec3, ParticleId};
use amalgam_solver_kit::SolverError;

use super::FlipParameters;
use super::cell::Cell;
use super::density_correction::{around, measure_and_mark_spray};
use super::forces::add_fields;
use super::grid::{CutCells, Faces, Grid};
use super::group_members::MemberContributions;
use super::particle_to_grid::ParticleToGrid;
use super::pressure::Split;
use super::pressure::separating_walls::{WallFace, leaves, unpressed, unpressed_cells};
use super::slab::{Slab, depth};
use super::viscosity::Viscosity;

/// Settings. They never change.
pub(super) struct Settings {
    pub(super) parameters: FlipParameters,
    pub(super) grid: Grid,
    /// Open parts of faces and cells; none without obstacles.
    pub(super) cut: Option<CutCells>,
    /// Vector instructions, on which results do not depend.
    pub(super) width: Width,
}

/// Time of the last sub-step [s].
#[derive(Default)]
pub(super) struct Timing {
    /// True in the first sub-step of a step.
    pub(super) is_first: bool,
    /// At the start of the sub-step.
    pub(super) begin: f64,
    /// Length of the sub-step.
    pub(super) substep: f64,
    /// Time in which the fastest particle crosses about a cell: the relaxation time of the density.
    pub(super) relaxation_time: f64,
}

/// A transfer from particles to the grid.
#[derive(Default)]
pub(super) struct Transfer {
    pub(super) grid: ParticleToGrid,
    /// Number of the transfer.
    pub(super) number: u64,
}

/// Masses and momenta of particles on the grid.
#[derive(Default)]
pub(super) struct ParticlesOnGrid {
    /// The transfer at the start of the step, for the first sub-step of every stage.
    pub(super) start: Transfer,
    /// The transfer at the last of the later sub-steps; unused while steps have one sub-step.
    later: Transfer,
    /// Number of transfers so far.
    count: u64,
    /// Contributions of the members of groups in the last sub-step.
    pub(super) members: MemberContributions,
}

impl ParticlesOnGrid {
    /// Transfers particles to the grid as if all were free; contributions of groups are added later. Finds
    /// spray.
    pub(super) fn transfer(
        &mut self,
        (settings, slab): (&Settings, &Slab),
        first: bool,
        id: &[ParticleId],
        state: (&[DVec3], &[DVec3]),
    ) {
        let Settings { parameters, grid, cut, width } = settings;
        self.count += 1;
        let transfer = if first { &mut self.start } else { &mut self.later };
        transfer.number = self.count;
        transfer.grid.transfer(slab, (grid, *width), id, state);
        slab.halo(depth::FORCES).exchange(&slab.ranks, transfer.grid.sums_mut());
        measure_and_mark_spray(slab, (grid, cut.as_ref(), *width), parameters.full(), &mut transfer.grid);
    }

    /// The transfer of the first sub-step or of a later one.
    pub(super) fn of(&self, first: bool) -> &Transfer {
        self.parts(first).0
    }

    /// The transfer of the first sub-step or of a later one, and what members add.
    pub(super) fn parts(&self, first: bool) -> (&Transfer, &MemberContributions) {
        (if first { &self.start } else { &self.later }, &self.members)
    }

    /// Does as [`Self::parts`], where members change.
    pub(super) fn parts_mut(&mut self, first: bool) -> (&Transfer, &mut MemberContributions) {
        (if first { &self.start } else { &self.later }, &mut self.members)
    }
}

/// The kind of each cell in a sub-step.
#[derive(Default)]
pub(super) struct CellKinds {
    /// Cells of others included.
    pub(super) now: Vec<Cell>,
    /// The kind of each cell in the last sub-step.
    before: Vec<Cell>,
    /// Version of `now`.
    pub(super) version: u64,
    /// Faces where the walls may let go.
    pub(super) unpressed: Vec<WallFace>,
    /// Cells beside obstacles that may let go.
    unpressed_cells: Vec<usize>,
}

impl CellKinds {
    /// Finds the faces at which walls and obstacles may let go, after a transfer. Collective.
    pub(super) fn find_unpressed(
        &mut self,
        (settings, slab): (&Settings, &Slab),
        transferred: &ParticleToGrid,
        pressure: &Split<f64>,
    ) {
        let grid = &settings.grid;
        let layers = slab.layers_of(slab.ranks.rank(), depth::FORCES);
        self.unpressed = unpressed(grid, layers, &transferred.cell, pressure);
        if let Some(cut) = &settings.cut {
            self.unpressed_cells = unpressed_cells(slab, cut, &transferred.cell, pressure);
        }
    }

    /// Finds the cells that are no air. `fall` is the velocity that gravity gives in the sub-step [m/s].
    /// Collective.
    pub(super) fn classify(
        &mut self,
        (grid, cut, slab): (&Grid, Option<&CutCells>, &Slab),
        transferred: &ParticleToGrid,
        fall: DVec3,
        occupied: Option<&CellSet>,
    ) {
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.clone_from(&transferred.cell);
        let (fall, seen) = (fall.to_array(), slab.layers_of(slab.ranks.rank(), depth::CELLS));
        for face in &self.unpressed {
            face.release(transferred, fall, &mut self.now);
        }
        for (cut, &at) in cut.into_iter().flat_map(|cut| self.unpressed_cells.iter().map(move |at| (cut, at)))
        {
            if leaves((grid, cut), transferred, fall, at) {
                self.now[at] = Cell::Spray;
            }
        }
        for cell in occupied.into_iter().flat_map(CellSet::iter) {
            let inside = cell.to_array().map(|c| usize::try_from(c).unwrap_or(usize::MAX));
            if grid.is_cell(inside) && seen.contains(&inside[2]) {
                let at = grid.index(inside);
                if self.now[at] == Cell::Air {
                    self.now[at] = Cell::Foreign;
                    // Spray beside others fills its cell together with them.
                    for (_, _, next) in around(grid, at) {
                        if self.now[next] == Cell::Spray {
                            self.now[next] = Cell::Fluid;
                        }
                    }
                }
            }
        }
        let mut differ = self.now.len() != self.before.len();
        if !differ {
            let own = slab.entries(0);
            // Without an early exit the comparison runs in vectors.
            let pairs = self.now[own.clone()].iter().zip(&self.before[own]);
            differ = pairs.fold(false, |differ, (a, b)| differ | (a != b));
        }
        self.version += u64::from(slab.ranks.any(differ));
    }
}

/// Impulses by viscosity, drags and fields of force in a sub-step. They do not depend on groups, so that all
/// stages of a step share them.
pub(super) struct OutsideImpulses {
    /// None without viscosity.
    viscosity: Option<Viscosity>,
    /// The impulse at each face [kg m/s]; none without viscosity, drags and fields.
    pub(super) at_faces: Option<Faces<f64>>,
    /// The number of the transfer and the length of the sub-step [s] for which they were computed.
    computed_for: Option<(u64, f64)>,
}

impl OutsideImpulses {
    pub(super) fn new(grid: &Grid, parameters: &FlipParameters) -> Self {
        let is_viscous = parameters.viscosity > 0.0;
        Self {
            viscosity: is_viscous.then(Viscosity::default),
            at_faces: (is_viscous || !parameters.fields.is_empty())
                .then(|| [0, 1, 2].map(|_| vec![0.0; grid.len()])),
            computed_for: None,
        }
    }

    /// Computes the impulses of a sub-step, unless they are known already. Collective.
    ///
    /// # Errors
    /// The viscosity's iteration does not converge.
    pub(super) fn update(
        &mut self,
        (settings, slab): (&Settings, &Slab),
        Transfer { grid: transferred, number }: &Transfer,
        timing: &Timing,
    ) -> Result<(), SolverError> {
        let Settings { parameters, grid, .. } = settings;
        let dt = timing.substep;
        let wanted = Some((*number, dt));
        let is_new = std::mem::replace(&mut self.computed_for, wanted) != wanted;
        let Some(impulses) = self.at_faces.as_mut().filter(|_| is_new) else { return Ok(()) };
        let seen = slab.entries(depth::FORCES);
        impulses.iter_mut().for_each(|column| column[seen.clone()].fill(0.0));
        if let Some(viscosity) = &mut self.viscosity {
            let found = viscosity.find((grid, parameters, slab), transferred, dt, impulses);
            found.map_err(|residual| {
                SolverError(format!(
                    "viscosity reached a residual of {residual:.1e} in {} iterations, not the tolerance {:.1e}: write \
                     a larger iterations_max or tolerance, or take shorter steps",
                    parameters.iterations_max, parameters.tolerance
                ))
            })?;
        }
        add_fields((grid, parameters), transferred, (timing.begin, dt), seen, impulses);
        Ok(())
    }
}
