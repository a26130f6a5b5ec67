//! The fluid solver's own program: `amalgam-solver-fluid --listen 127.0.0.1:7401`.

fn main() -> std::process::ExitCode {
    amalgam_solver_kit::main(amalgam_solver_fluid::FluidProgram)
}
