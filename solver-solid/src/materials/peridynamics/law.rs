//! The prototype microelastic brittle material [SillingAskari2005]: constants of a bond from those of a
//! material.

use std::f64::consts::PI;

use serde::Deserialize;

/// The number of dimensions of a body, which decides the constants and Poisson's ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Model {
    /// Three dimensions; Poisson's ratio 1/4.
    #[default]
    Solid,
    /// A layer of particles, free to contract across; Poisson's ratio 1/3.
    PlaneStress,
    /// A layer of particles that stands for a body without end across; Poisson's ratio 1/4.
    PlaneStrain,
    /// A row of particles; Poisson's ratio is of no account.
    Bar,
}

/// Source of the constants of bonds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Calibration {
    /// Constants from the sums over the bonds of a cubic lattice, so that a body has the modulus and the
    /// fracture energy that it is given: integrals are some 10 % off at a horizon of three spacings.
    #[default]
    Lattice,
    /// Constants from the integrals over a ball, a disc or a segment, as they are published.
    Continuum,
}

/// The constants of a body's bonds, in lengths of the body: c w(L) V V / L is the stiffness of a bond [N/m].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    /// Distance of neighbours in the lattice [m].
    pub(crate) spacing: f64,
    /// Longest bond [m].
    pub(crate) horizon: f64,
    /// Volume of a particle [m^3].
    pub(crate) volume: f64,
    /// Micromodulus c [N/m^6].
    pub(crate) micromodulus: f64,
    /// Stretch at which a bond breaks; infinite if never.
    pub(crate) critical_stretch: f64,
    /// Rise of a bond's threshold with the compression of its ends' other bonds (alpha).
    pub(crate) threshold_rise: f64,
    /// Scatter s of strength: thresholds of particles are spread evenly over 1 - s to 1 + s times the
    /// critical stretch.
    pub(crate) strength_scatter: f64,
    /// True if particles near the horizon count with the part of their volume that lies inside.
    pub(crate) volume_correction: bool,
    /// True if bonds of particles that lack neighbours are strengthened.
    pub(crate) surface_correction: bool,
    /// Relaxation time tau of the bonds' damping [s]: C = tau K.
    pub(crate) damping_time: f64,
    pub(crate) model: Model,
}

impl Model {
    /// Micromodulus [N/m^6] for Young's modulus E [Pa], horizon d and thickness t (of a bar: its section) [m,
    /// m^2].
    ///
    /// In three dimensions c = 18 K / (pi d^4) with K = E / (3 (1 - 2/4)) [SillingAskari2005]; in a plane c =
    /// 9 E / (pi t d^3) for plane stress and 48 E / (5 pi t d^3) for plane strain [HaBobaru2010]; 2 E / (A
    /// d^2) in a bar.
    pub(crate) fn micromodulus(self, young_modulus: f64, horizon: f64, thickness: f64) -> f64 {
        match self {
            Self::Solid => 12.0 * young_modulus / (PI * horizon.powi(4)),
            Self::PlaneStress => 9.0 * young_modulus / (PI * thickness * horizon.powi(3)),
            Self::PlaneStrain => 48.0 * young_modulus / (5.0 * PI * thickness * horizon.powi(3)),
            Self::Bar => 2.0 * young_modulus / (thickness * horizon.powi(2)),
        }
    }

    /// Critical stretch for a fracture energy G [J/m^2], from the energy of all bonds that cross a unit of
    /// area [SillingAskari2005], [HaBobaru2010]; in a bar c s^2 d^3 A / 6 = G.
    pub(crate) fn critical_stretch(self, fracture_energy: f64, young_modulus: f64, horizon: f64) -> f64 {
        let ratio = fracture_energy / (young_modulus * horizon);
        match self {
            // 5 G / (9 K d), K = 2 E / 3.
            Self::Solid => (5.0 / 6.0 * ratio).sqrt(),
            Self::PlaneStress => (4.0 * PI / 9.0 * ratio).sqrt(),
            Self::PlaneStrain => (5.0 * PI / 12.0 * ratio).sqrt(),
            Self::Bar => (3.0 * ratio).sqrt(),
        }
    }

    /// The integral of |xi| over the horizon [m^4], with thickness t [m] or section [m^2]: what the sum of L
    /// w(L) V over a particle's bonds would be in the continuum.
    pub(crate) fn moment(self, horizon: f64, thickness: f64) -> f64 {
        match self {
            Self::Solid => PI * horizon.powi(4),
            Self::PlaneStress | Self::PlaneStrain => 2.0 * PI / 3.0 * horizon.powi(3) * thickness,
            Self::Bar => horizon.powi(2) * thickness,
        }
    }

    /// Dimensions that bonds fill.
    pub(crate) fn dimensions(self) -> usize {
        match self {
            Self::Solid => 3,
            Self::PlaneStress | Self::PlaneStrain => 2,
            Self::Bar => 1,
        }
    }

    /// Volume of a particle [m^3].
    pub(crate) fn volume(self, spacing: f64, thickness: f64) -> f64 {
        match self {
            Self::Solid => spacing.powi(3),
            Self::PlaneStress | Self::PlaneStrain => spacing * spacing * thickness,
            Self::Bar => spacing * thickness,
        }
    }

    /// Factor from the variance of the stretches of bonds in all directions to the square of the deviatoric
    /// strain.
    ///
    /// With stretch n·e n, the means over directions are <s> = tr e / d and <s^2> = (2 e:e + (tr e)^2) / (d
    /// (d + 2)), so that the deviator's e':e' is d (d + 2) / 2 times the variance, in d dimensions.
    pub(crate) fn deviator(self) -> f64 {
        match self {
            Self::Solid => 7.5,
            Self::PlaneStress | Self::PlaneStrain => 4.0,
            Self::Bar => 1.5,
        }
    }
}

impl Law {
    /// The part of a neighbour's volume that lies within the horizon, for a bond of length `rest` [m], after
    /// Parks et al. [Parks2008]: 1 up to half a spacing before it, a half at the horizon.
    pub(crate) fn volume_share(&self, rest: f64) -> f64 {
        let (constant, slope) = self.volume_line();
        (constant - slope * rest).min(1.0)
    }

    /// The line of [`Self::volume_share`]: constant and slope [1/m].
    pub(crate) fn volume_line(&self) -> (f64, f64) {
        if self.volume_correction {
            (self.horizon / self.spacing + 0.5, 1.0 / self.spacing)
        } else {
            (1.0, 0.0)
        }
    }

    /// Takes the constants from a lattice's own sums: c so that a uniform extension has the energy of the
    /// continuum, whose sum of L w V is `moment` [m^4], and the critical stretch so that the bonds that cross
    /// a lattice plane take the fracture energy [J/m^2], if that is given.
    ///
    /// A bond that spans n layers crosses n of the planes between them, and has n like it on each cell of a
    /// plane.
    pub(crate) fn calibrate(&mut self, moment: f64, fracture_energy: Option<f64>) {
        let (mut own, mut across) = (0.0, 0.0);
        self.for_each_step(|[layers, ..], rest| {
            own += rest * self.volume_share(rest);
            across += f64::from(layers.max(0)) * rest * self.volume_share(rest);
        });
        self.micromodulus *= moment / (own * self.volume);
        if let Some(energy) = fracture_energy {
            let face = self.volume / self.spacing;
            let each = 0.5 * self.micromodulus * self.volume * self.volume * across;
            self.critical_stretch = (energy * face / each).sqrt();
        }
    }

    /// The sum of L w V over the bonds of a particle inside a lattice [m^4].
    pub(crate) fn lattice_moment(&self) -> f64 {
        let mut own = 0.0;
        self.for_each_step(|_, rest| own += rest * self.volume_share(rest));
        own * self.volume
    }

    /// Visits the steps of a cubic lattice within the horizon: along each axis, and its length [m].
    pub(super) fn for_each_step(&self, mut visit: impl FnMut([i32; 3], f64)) {
        let reach = (self.reach() / self.spacing).floor() as i32;
        let [_, second, third] = [0, 1, 2].map(|axis| if axis < self.model.dimensions() { reach } else { 0 });
        for k in -third..=third {
            for j in -second..=second {
                for i in -reach..=reach {
                    let rest = f64::from(i * i + j * j + k * k).sqrt() * self.spacing;
                    if rest > 0.0 && rest <= self.reach() {
                        visit([i, j, k], rest);
                    }
                }
            }
        }
    }

    /// Unit of stiffness [N/m]: a bond of rest length L and volume share w has w spacing / L of it.
    pub(crate) fn unit_stiffness(&self) -> f64 {
        self.micromodulus * self.volume * self.volume / self.spacing
    }

    /// Furthest neighbour that is bonded [m]; a hair beyond the horizon, for lattices that lie just on it.
    pub(crate) fn reach(&self) -> f64 {
        self.horizon * (1.0 + 1e-9)
    }
}
