//! Guard of weak compression. It warns once if the fluid is too fast or too dense for a weakly compressible
//! fluid, and ends the run if the fluid is much too dense.
//!
//! The density varies by about one percent under two conditions. The speed of sound is at least ten times the
//! largest speed [Monaghan1994], and `rest_density sound_speed^2` is a hundred times the pressure of the load
//! on the fluid. A solver does not know the loads of others on its fluid, so that speed and density are
//! checked in every step.

use amalgam_solver_kit::SolverError;

use super::pressure::equation_of_state::EquationOfState;

/// Least ratio of the speed of sound to the largest speed.
pub(crate) const SOUND_SPEED_RATIO: f64 = 10.0;
/// Mean density over rest density above which a warning tells it: twice the intended variation.
pub const TOLD: f64 = 1.02;
/// Mean density over rest density above which a run ends.
const REFUSED: f64 = 1.1;
/// The intended relative variation of density.
const MEANT: f64 = 0.01;

/// The warnings given so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guard {
    told_speed: bool,
    told_density: bool,
}

impl Guard {
    /// A guard that gives no warnings, because another rank gives them.
    pub(super) fn silent() -> Self {
        Self { told_speed: true, told_density: true }
    }

    /// Checks the start of a step: the largest speed [m/s], and the mean compression, which counts each
    /// particle's as at least 1.
    ///
    /// # Errors
    /// The mean compression is above [`REFUSED`].
    pub(super) fn look(
        &mut self,
        state: &EquationOfState,
        speed: f64,
        compression: f64,
    ) -> Result<(), SolverError> {
        if compression > REFUSED {
            return Err(SolverError(density_message(state, compression)));
        }
        if compression > TOLD && !self.told_density {
            self.told_density = true;
            tracing::warn!("{}", density_message(state, compression));
        }
        if let Some(warning) = speed_warning(state.sound_speed, speed).filter(|_| !self.told_speed) {
            self.told_speed = true;
            tracing::warn!("{warning}");
        }
        Ok(())
    }
}

/// A warning of a speed [m/s] that is more than a tenth of the speed of sound [m/s].
pub(crate) fn speed_warning(sound_speed: f64, speed: f64) -> Option<String> {
    // One percent of tolerance: the advised sound_speed is rounded, and the fluid may get slightly faster.
    (SOUND_SPEED_RATIO * speed > 1.01 * sound_speed).then(|| {
        format!(
            "sound_speed is {sound_speed:.3} m/s, less than ten times the fluid's largest speed of {speed:.3} m/s, so that \
             its density varies by more than a percent: write sound_speed = {:.1}",
            SOUND_SPEED_RATIO * speed
        )
    })
}

fn density_message(state: &EquationOfState, compression: f64) -> String {
    let pressure = state.pressure(compression);
    format!(
        "the fluid is pressed to {compression:.3} times its rest density of {} kg/m^3 on the mean, by {pressure:.3e} Pa: at \
         a sound speed of {:.3} m/s it is too soft for what rests on it or hits it; write sound_speed = {:.1}, or more \
         where the pressure still rises",
        state.rest_density,
        state.sound_speed,
        sound_speed_under(pressure, state.rest_density)
    )
}

/// The speed of sound c [m/s] at which a pressure p [Pa] changes the rest density rho0 [kg/m^3] by the
/// intended variation: `p = c^2 (rho - rho0)` with `rho - rho0 = 0.01 rho0`.
pub fn sound_speed_under(pressure: f64, rest_density: f64) -> f64 {
    (pressure / (MEANT * rest_density)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sph::pressure::equation_of_state::Law;

    #[test]
    fn speeds_are_told_from_a_tenth_of_sound_on() {
        assert_eq!(speed_warning(20.0, 2.0), None);
        let warning = speed_warning(20.0, 2.5).expect("a warning");
        assert!(warning.ends_with("write sound_speed = 25.0"), "{warning}");
    }

    #[test]
    fn a_pressed_fluid_is_told_once_and_then_refused() {
        let state = EquationOfState { law: Law::Mueller, rest_density: 1.0, sound_speed: 20.0 };
        let mut guard = Guard::default();
        assert!(guard.look(&state, 0.0, 1.01).is_ok() && !guard.told_density);
        assert!(guard.look(&state, 0.0, 1.05).is_ok() && guard.told_density && !guard.told_speed);
        let error = guard.look(&state, 0.0, 1.25).expect_err("a fault").to_string();
        // 400 x 0.25 = 100 Pa; a hundred times as much are 1e4 Pa, for 1 kg/m^3 at 100 m/s.
        assert!(
            error.contains("1.250 times") && error.contains("write sound_speed = 100.0, or more"),
            "{error}"
        );
    }
}
