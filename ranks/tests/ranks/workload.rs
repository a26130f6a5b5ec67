//! The example's workload: one hash for any number of ranks, threads or processes.

#[path = "../../examples/exchange/workload.rs"]
mod example;

use crate::common::{SIZES, on_ranks};

/// The workload's hash, on every machine.
const HASH: u64 = 0xcbc6_b863_ccb3_f1cd;

#[test]
fn the_hash_is_the_same_for_every_number_of_threads() {
    for size in SIZES {
        let hashes: Vec<u64> = on_ranks(size, |ranks| example::run(ranks).hash);
        assert_eq!(hashes, vec![HASH; size], "{size} ranks");
    }
}

/// Runs the example under `mpirun`, or what `AMALGAM_MPIRUN` names.
#[cfg(feature = "mpi")]
fn mpirun(size: usize, words: &[&str]) -> std::process::Output {
    let test = std::env::current_exe().expect("this test");
    let example = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a folder of the build")
        .join("examples/exchange");
    let mpirun = std::env::var("AMALGAM_MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let mut command = std::process::Command::new(mpirun);
    // Open MPI alone heeds these: more ranks than cores, and a machine where tests are root.
    let wishes = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle"];
    command.envs(wishes.map(|wish| (wish, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
        .arg("-np")
        .arg(size.to_string())
        .arg(example)
        .args(words)
        .output()
        .expect("mpirun and the example")
}

#[cfg(feature = "mpi")]
#[test]
fn the_hash_is_the_same_for_every_number_of_processes() {
    for size in [1, 2, 3, 4] {
        let output = mpirun(size, &[]);
        let (text, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.starts_with(&format!("hash {HASH:016x}  ranks {size} ")), "{size} ranks: {text}{error}");
    }
}

#[cfg(feature = "mpi")]
#[test]
fn a_process_that_panics_ends_the_others() {
    // The test is that this returns. Words of the panic may be lost with the processes.
    assert!(!mpirun(3, &["--fail"]).status.success());
}
