//! Roles: the part that the holder of a certificate plays.

use tokio_rustls::rustls::pki_types::CertificateDer;

/// Role of the holder of a certificate. It stands in the certificate as a URI, `urn:amalgam:role:NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Calls solvers, and takes registrations and orders.
    Coordinator,
    /// Computes a participant.
    Solver,
    /// Gives orders to a coordinator that is a service.
    Operator,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Coordinator, Self::Solver, Self::Operator];

    /// The name, as in the names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Solver => "solver",
            Self::Operator => "operator",
        }
    }

    /// The name with its article.
    pub(crate) fn one(self) -> &'static str {
        match self {
            Self::Coordinator => "a coordinator",
            Self::Solver => "a solver",
            Self::Operator => "an operator",
        }
    }

    /// The URI that stands in a certificate as a subject alternative name.
    pub fn uri(self) -> String {
        format!("urn:amalgam:role:{}", self.name())
    }

    /// The role in a certificate, if there is one.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        let uris: Vec<&str> = certificate.valid_uri_names().collect();
        Self::ALL.into_iter().find(|role| uris.contains(&role.uri().as_str()))
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
