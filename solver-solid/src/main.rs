//! The solid solver's own program: `amalgam-solver-solid --listen 127.0.0.1:7401`.

fn main() -> std::process::ExitCode {
    amalgam_solver_kit::main(amalgam_solver_solid::SolidProgram)
}
