//! Equations of state: pressure from compression.

use serde::{Deserialize, Serialize};

use super::PressureByDensity;

/// Kind of equation of state: pressure p from density rho, with rest density rho0 and speed of sound c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// p = B ((rho / rho0)^7 - 1) with B = rho0 c^2 / 7 [Becker2007].
    Tait,
    /// p = c^2 (rho - rho0), Eq. 12 of [Mueller2003].
    Mueller,
}

/// An equation of state with its constants. Compression is density over rest density. Where the compression
/// is below 1, at a free surface, the pressure is zero and not negative.
#[derive(Clone, Copy, Debug)]
pub struct EquationOfState {
    /// The law.
    pub law: Law,
    /// Rest density [kg/m^3].
    pub rest_density: f64,
    /// Speed of sound at rest density [m/s].
    pub sound_speed: f64,
}

impl EquationOfState {
    /// Pressure [Pa], not negative.
    #[inline]
    pub fn pressure(&self, compression: f64) -> f64 {
        let modulus = self.rest_density * self.sound_speed * self.sound_speed;
        let x = compression.max(1.0);
        match self.law {
            Law::Tait => modulus / 7.0 * (x * x * x * x * x * x * x - 1.0),
            Law::Mueller => modulus * (x - 1.0),
        }
    }

    /// The compression at which the fluid has a pressure [Pa], which is not negative.
    pub fn compression(&self, pressure: f64) -> f64 {
        let strain = pressure / (self.rest_density * self.sound_speed * self.sound_speed);
        match self.law {
            Law::Tait => (1.0 + 7.0 * strain).powf(1.0 / 7.0),
            Law::Mueller => 1.0 + strain,
        }
    }

    /// Local speed of sound [m/s]: the square root of dp/drho.
    pub fn local_sound_speed(&self, compression: f64) -> f64 {
        let x = compression.max(1.0);
        match self.law {
            Law::Tait => self.sound_speed * x * x * x,
            Law::Mueller => self.sound_speed,
        }
    }

    /// Energy of compression [J/kg]: the integral of p / rho^2 over the density, from the rest density on.
    #[inline]
    pub fn energy(&self, compression: f64) -> f64 {
        let c2 = self.sound_speed * self.sound_speed;
        let x = compression.max(1.0);
        match self.law {
            Law::Tait => c2 / 7.0 * ((x.powi(6) - 1.0) / 6.0 + 1.0 / x - 1.0),
            Law::Mueller => c2 * (x.ln() + 1.0 / x - 1.0),
        }
    }
}

impl PressureByDensity for EquationOfState {
    #[inline(always)]
    fn pressure(&self, x: f64) -> f64 {
        Self::pressure(self, x)
    }

    #[inline(always)]
    fn energy(&self, x: f64) -> f64 {
        Self::energy(self, x)
    }

    #[inline(always)]
    fn energy_unit(&self) -> f64 {
        self.sound_speed * self.sound_speed
    }

    #[inline(always)]
    fn choose<T>(self, pass: impl FnOnce(Self) -> T) -> T {
        match self.law {
            Law::Tait => pass(Self { law: Law::Tait, ..self }),
            Law::Mueller => pass(Self { law: Law::Mueller, ..self }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_and_sound_follow_from_pressure() {
        for law in [Law::Tait, Law::Mueller] {
            let state = EquationOfState { law, rest_density: 900.0, sound_speed: 30.0 };
            for x in [1.001, 1.02, 1.3] {
                let step = 1e-5;
                let slope = |f: &dyn Fn(f64) -> f64| (f(x + step) - f(x - step)) / (2.0 * step);
                let rho = 900.0 * x;
                let energy_slope = slope(&|x| state.energy(x)) / 900.0;
                assert!((energy_slope / (state.pressure(x) / (rho * rho)) - 1.0).abs() < 1e-4);
                let c2 = slope(&|x| state.pressure(x)) / 900.0;
                assert!((state.compression(state.pressure(x)) - x).abs() < 1e-12);
                assert!((c2.sqrt() / state.local_sound_speed(x) - 1.0).abs() < 1e-6);
            }
            assert_eq!((state.pressure(0.7), state.energy(0.7)), (0.0, 0.0));
            assert_eq!(state.local_sound_speed(0.7), 30.0);
        }
    }
}
