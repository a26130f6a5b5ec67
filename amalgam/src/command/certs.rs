//! `amalgam certs`: certificates for the machines of a run.

use amalgam_network::certificates::{AUTHORITY_KEY, Made, make};

use crate::{cli::CertsArgs, console::say, error::CommandError};

/// Makes certificates, and says what to do with them.
///
/// # Errors
/// A host that is none, or files that cannot be read or written.
pub fn certs(args: &CertsArgs) -> Result<(), CommandError> {
    let made = make(&args.folder, &args.hosts, args.days);
    let made = made.map_err(|error| CommandError::Failed(error.to_string()))?;
    let (folder, days) = (args.folder.display(), args.days);
    let authority = match made {
        Made::Authority => "a new authority",
        Made::Roles => "the authority that was there",
    };
    say(format_args!(
        "{folder}: certificates of {authority} for {}, good for {days} days",
        args.hosts.join(", ")
    ))?;
    say(format_args!(
        "  copy ca.pem, solver.pem and solver.key to machines with solvers, and give --tls DIR to both ends"
    ))?;
    say(format_args!(
        "  {AUTHORITY_KEY} makes certificates and is needed by no run: keep it where nobody else can read it"
    ))
}
