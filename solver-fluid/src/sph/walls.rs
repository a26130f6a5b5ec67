//! The walls of the domain, as planes of symmetry.
//!
//! Beyond a wall stands the mirror image of the fluid, with the same mass, density and pressure. Its position
//! and its normal velocity are reversed. Images of images complete edges and corners. Fluid and images
//! together are an ordinary SPH fluid without walls. So the density at a wall is complete, and a lattice half
//! a spacing from a wall is exactly at rest density. Pressure is balanced, energy is conserved and the wall
//! is frictionless.
//!
//! Two other walls were rejected. The analytic integral over the half space behind a wall counts edges twice,
//! and its continuum does not match the particles beside it. Fixed boundary particles need memory in
//! proportion to the domain's surface, and fluid forms layers along them.
//!
//! At a **no-slip** wall the image has the tangential velocity reversed as well. The velocity field is then
//! odd about the wall and vanishes there, as for the images of [Morris1997]. Drag between a particle and an
//! image acts along the wall too, and nothing else is different. This drag only takes energy: of two
//! particles i and j each sees the other's image at the same distance, so that both lose c |v_i + v_j|^2 with
//! the same c.
//!
//! A mirror does not stop a single particle. On the plane itself the normal force vanishes by symmetry, and
//! one particle with its image is below rest density. So velocity is constrained too. Within a step no free
//! particle may come nearer to a wall than the **clearance**, one eighth of the support radius H. There the
//! repulsion by the particle's own image is strongest: t^3 s has its maximum at s = 1/4, and the image at the
//! distance H/4 is twice as far away as the wall.

use amalgam_particles::DVec3;

/// The walls of the domain. Where a face is open, its plane is infinitely far away.
#[derive(Clone, Copy, Debug)]
pub struct Walls {
    /// Lowest corner [m].
    pub min: DVec3,
    /// Highest corner [m].
    pub max: DVec3,
    /// Least distance between a particle and a wall [m].
    pub clearance: f64,
    /// At which walls the fluid sticks, by axis, the lower one first.
    pub no_slip: [[bool; 2]; 3],
}

impl Walls {
    /// Walls along which the fluid slides, for a kernel of `support_radius` [m].
    pub fn new((min, max): (DVec3, DVec3), support_radius: f64) -> Self {
        Self { min, max, clearance: support_radius / 8.0, no_slip: [[false; 2]; 3] }
    }

    /// The velocity [m/s] nearest to `velocity` that does not carry a particle at `position` [m] nearer to a
    /// wall than the clearance within `dt` [s]. A particle that is nearer already may stay where it is, but
    /// not approach the wall.
    #[inline(always)]
    pub fn hold(&self, position: DVec3, velocity: DVec3, dt: f64) -> DVec3 {
        let end = position + dt * velocity;
        let (low, high) = (self.min + self.clearance, self.max - self.clearance);
        if (end.cmpge(low) & end.cmple(high)).all() {
            return velocity;
        }
        let (lowest, highest) = self.bounds(position, dt);
        velocity.clamp(lowest, highest)
    }

    /// The lowest and the highest velocity [m/s] that [`Self::hold`] allows.
    #[inline]
    pub fn bounds(&self, position: DVec3, dt: f64) -> (DVec3, DVec3) {
        let lowest = ((self.min + self.clearance - position) / dt).min(DVec3::ZERO);
        let highest = ((self.max - self.clearance - position) / dt).max(DVec3::ZERO);
        (lowest, highest)
    }

    /// The position [m] at which forces on a particle are evaluated. It is always inside. A group, whose
    /// velocity others decide too, can carry a member through a wall. The member then changes places with its
    /// image, so that the fluid pushes it back.
    #[inline]
    pub fn fold(&self, position: DVec3) -> DVec3 {
        let low = DVec3::select(position.cmplt(self.min), 2.0 * self.min - position, position);
        DVec3::select(low.cmpgt(self.max), 2.0 * self.max - low, low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALLS: Walls =
        Walls { min: DVec3::ZERO, max: DVec3::ONE, clearance: 0.01, no_slip: [[false; 2]; 3] };

    #[test]
    fn no_velocity_leads_through_a_wall() {
        let dt = 0.1;
        for x in [DVec3::splat(0.02), DVec3::new(0.5, 0.98, 0.01)] {
            for v in [DVec3::splat(-7.0), DVec3::new(3.0, 90.0, -1e9), DVec3::ZERO] {
                let end = x + dt * WALLS.hold(x, v, dt);
                assert!(
                    end.min_element() >= 0.01 - 1e-15 && end.max_element() <= 0.99 + 1e-15,
                    "{x} {v} {end}"
                );
            }
        }
        let inwards = DVec3::new(1.0, -1.0, 1.0);
        assert_eq!(WALLS.hold(DVec3::new(0.005, 0.995, 0.5), inwards, dt), inwards);
    }

    #[test]
    fn a_particle_that_is_too_near_is_not_pushed_back() {
        let held = WALLS.hold(DVec3::new(-0.3, 0.5, 1.2), DVec3::new(-1.0, 0.1, 1.0), 0.1);
        assert_eq!(held, DVec3::new(0.0, 0.1, 0.0));
        assert!(WALLS.fold(DVec3::new(-0.3, 0.5, 1.2)).distance(DVec3::new(0.3, 0.5, 0.8)) < 1e-15);
    }
}
