//! `--ranks`: what a served solver is cut among.

use std::str::FromStr;

use amalgam_ranks::Ranks;

/// Ranks among which a served solver is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankChoice {
    /// So many groups of threads of one process.
    Threads(usize),
    /// The processes that `mpirun` or Slurm started.
    Mpi,
}

impl Default for RankChoice {
    fn default() -> Self {
        Self::Threads(1)
    }
}

impl FromStr for RankChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "mpi" {
            return Ok(Self::Mpi);
        }
        let ranks = text.parse().ok().filter(|ranks| (1..=1024).contains(ranks));
        ranks.map(Self::Threads).ok_or_else(|| {
            "expected 1 to 1024, for groups of threads, or mpi, for the processes that mpirun started".into()
        })
    }
}

impl RankChoice {
    /// The ranks of this process, that of its own thread first. Call it once.
    ///
    /// # Errors
    /// A program without MPI; MPI that cannot be used; processes that `mpirun` started and nobody has told of
    /// it.
    pub(crate) fn ranks(self) -> anyhow::Result<Vec<Ranks>> {
        match self {
            Self::Mpi => Ok(vec![mpi()?]),
            Self::Threads(_) if started_by_mpirun() => anyhow::bail!(
                "mpirun started several processes, each of which would be a solver of its own: write --ranks mpi"
            ),
            Self::Threads(ranks) => Ok(Ranks::threads(ranks)),
        }
    }
}

/// True if this is one of several processes of an MPI job.
fn started_by_mpirun() -> bool {
    let size = |name: &str| std::env::var(name).ok().and_then(|size| size.parse::<u32>().ok());
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].iter().filter_map(|name| size(name)).any(|size| size > 1)
}

#[cfg(feature = "mpi")]
fn mpi() -> anyhow::Result<Ranks> {
    Ok(Ranks::mpi()?)
}

#[cfg(not(feature = "mpi"))]
fn mpi() -> anyhow::Result<Ranks> {
    anyhow::bail!(
        "this program was built without MPI: build it with `cargo build --release --features mpi`, which needs an MPI \
         library and libclang"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_a_number_or_mpi() {
        assert_eq!("4".parse(), Ok(RankChoice::Threads(4)));
        assert_eq!("mpi".parse(), Ok(RankChoice::Mpi));
        for wrong in ["0", "1025", "-1", "many", ""] {
            assert!(wrong.parse::<RankChoice>().is_err(), "{wrong}");
        }
    }
}
