//! Contacts and their geometry: normal, gap, arms, reach.

use amalgam_particles::DVec3;

use super::bodies::{Bodies, Motion};

/// Two particles near each other, as the law sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contact {
    /// Global names of particles i and j. Unlike indices, they stay the same from step to step. Contacts are
    /// sorted by pair.
    pub pair: (u64, u64),
    /// The bodies that i and j belong to.
    pub bodies: [u32; 2],
    /// Unit vector from i to j.
    pub normal: DVec3,
    /// Distance between the surfaces [m], negative where they overlap.
    pub gap: f64,
    /// Sum of the radii [m]; infinite where one surface is a plane.
    pub reach: f64,
    /// Vector from each body's centre of mass to its particle's centre [m].
    pub offset: [DVec3; 2],
    /// Distance from each particle's centre, along the line of centres, to the point of contact [m].
    pub arm: [f64; 2],
    /// Properties of the pair of surfaces.
    pub material: ContactMaterial,
}

/// Properties of a pair of surfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContactMaterial {
    /// Coefficient of friction mu. If it is infinite, the surfaces never slide while they press.
    pub friction: f64,
    /// Coefficient of rolling resistance mu_r: the couple is at most mu_r p_n times the reduced radius. It
    /// must be 0 where neither body has spin.
    pub rolling: f64,
    /// Coefficient of restitution e, 0 to 1.
    pub restitution: f64,
    /// True if the pair moves as one, as merged particles do. The contact may then pull, and gap and friction
    /// do not count.
    pub glued: bool,
}

impl ContactMaterial {
    /// The surfaces of a pair with the gap `gap` [m] that approaches at `approach` [m/s] at the start of the
    /// step. `error` is the error of velocities [m/s].
    ///
    /// A pair that merges is glued if it overlaps and approaches: these are the active pairs of merging, Eq.
    /// 21-22 [Truong2021]. An approach within the error is none, since pairs that were glued in the step
    /// before could else never part. A pair that merges and is not glued has infinite friction.
    pub fn merged(self, gap: f64, approach: f64, error: f64) -> Self {
        Self { glued: self.glued && gap <= 0.0 && approach > error, ..self }
    }
}

/// A particle of a body.
#[derive(Clone, Copy, Debug)]
pub struct Sphere {
    /// Global name.
    pub name: u64,
    /// The body that it belongs to.
    pub body: u32,
    /// Centre [m].
    pub centre: DVec3,
    /// Vector from the body's centre of mass to the sphere's centre [m]; zero for a body of one particle.
    pub offset: DVec3,
    /// Radius [m].
    pub radius: f64,
}

/// The flat surface of a body that fills a half space.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Global name.
    pub name: u64,
    /// The body that it belongs to.
    pub body: u32,
    /// A point of the plane [m].
    pub point: DVec3,
    /// Unit vector out of the body.
    pub normal: DVec3,
    /// Centre of mass of the body [m].
    pub centre: DVec3,
}

impl Contact {
    /// The contact of two spheres.
    ///
    /// The arms end in one point on the line of centres and have the ratio of the radii. With one point of
    /// contact on each surface, an impulse and its opposite would not lie on one line, and angular momentum
    /// would change.
    ///
    /// If the centres coincide, the normal points against the motion of j relative to i, to where j came
    /// from, so that j is free to go back. Without relative motion it is the x axis.
    pub fn between_spheres(i: &Sphere, j: &Sphere, bodies: &Bodies, material: ContactMaterial) -> Self {
        let apart = j.centre - i.centre;
        let distance = apart.length();
        let motion = || bodies.motion(j.body).at(j.offset) - bodies.motion(i.body).at(i.offset);
        let normal = apart.try_normalize().unwrap_or_else(|| (-motion()).normalize_or(DVec3::X));
        let reach = i.radius + j.radius;
        let first = distance * (i.radius / reach);
        Self {
            pair: (i.name, j.name),
            bodies: [i.body, j.body],
            normal,
            gap: distance - reach,
            reach,
            offset: [i.offset, j.offset],
            arm: [first, distance - first],
            material,
        }
    }

    /// The contact of a plane, i, and a sphere, j, at the foot of the perpendicular on the plane.
    pub fn with_plane(plane: &Plane, sphere: &Sphere, material: ContactMaterial) -> Self {
        let height = (sphere.centre - plane.point).dot(plane.normal);
        let foot = sphere.centre - plane.normal * height;
        Self {
            pair: (plane.name, sphere.name),
            bodies: [plane.body, sphere.body],
            normal: plane.normal,
            gap: height - sphere.radius,
            reach: f64::INFINITY,
            offset: [foot - plane.centre, sphere.offset],
            arm: [0.0, height],
            material,
        }
    }

    /// Vectors from each body's centre of mass to the point of contact [m].
    #[inline]
    pub fn arms(&self) -> [DVec3; 2] {
        [self.offset[0] + self.normal * self.arm[0], self.offset[1] - self.normal * self.arm[1]]
    }

    /// Reduced radius r_i r_j / (r_i + r_j) [m], the lever of rolling: an angular velocity times the lever is
    /// a velocity. On a plane it is the radius of the sphere.
    pub fn lever(&self) -> f64 {
        if self.reach.is_infinite() {
            return (self.arm[0] + self.arm[1] - self.gap).max(0.0);
        }
        // The arms have the ratio of the radii, so that `share` is r_i / (r_i + r_j), unless the centres
        // coincide.
        let distance = self.arm[0] + self.arm[1];
        let share = if distance > 0.0 { self.arm[0] / distance } else { 0.5 };
        self.reach * share * (1.0 - share)
    }

    /// The speed n . u + b at which the contact opens [m/s], with b from its gap and the length of the step, `dt`
    /// [s]. It is negative where the contact closes by more than its gap.
    pub fn opening(&self, first: Motion, second: Motion, dt: f64) -> f64 {
        let u = second.at(self.offset[1]) - first.at(self.offset[0]);
        u.dot(self.normal) + self.gap.max(0.0) / dt
    }

    /// True if two spheres pass each other in a step of length `dt` [s], although their contact, a constraint
    /// by its tangent plane, would stop them.
    pub fn is_missed(&self, first: Motion, second: Motion, dt: f64) -> bool {
        if self.reach.is_infinite() || self.gap <= 0.0 || self.material.glued {
            return false;
        }
        let u = second.at(self.offset[1]) - first.at(self.offset[0]);
        if self.gap + u.dot(self.normal) * dt >= 0.0 {
            return false;
        }
        // The centres are d + u t apart, and closest at t = -d . u / |u|^2, cut to 0 <= t <= dt.
        let d = self.normal * (self.gap + self.reach);
        let time = (-d.dot(u) / u.length_squared()).clamp(0.0, dt);
        (d + u * time).length_squared() >= self.reach * self.reach
    }
}

/// Distance by which a sphere is grown [m] in the search for its contacts in a step of length `dt` [s], given
/// its speed without contacts [m/s]. A pair is a candidate if the grown spheres intersect: g < 2 (|v_i| +
/// |v_j|) h.
///
/// The growth has no upper limit. Otherwise a bullet that is fast enough would pass.
#[inline]
pub fn reach(speed: f64, dt: f64) -> f64 {
    2.0 * speed * dt
}

/// True if a body left the reach within which its contacts were sought: contacts made it more than twice as
/// fast.
#[inline]
pub fn outruns(speed_before: f64, speed_after: f64) -> bool {
    speed_after > 2.0 * speed_before
}
