//! Certificates read from a folder of `amalgam certs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::AUTHORITY;
use crate::role::Role;

/// Reasons for which a folder has no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file that cannot be read.
    #[error("{}: {reason}; `amalgam certs DIR --hosts a,b` makes a folder of certificates", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason for which it cannot be read.
        reason: String,
    },
    /// A key that others can read.
    #[error("{} can be read by others: chmod 600 it, and make new certificates if others may have done so", .0.display())]
    Open(PathBuf),
    /// A certificate of another role.
    #[error("{} is the certificate of {}, and not that of {}", path.display(), found.map_or("no role of amalgam's", Role::one), wanted.one())]
    Role {
        /// Path of the certificate.
        path: PathBuf,
        /// The role in it.
        found: Option<Role>,
        /// The role that it must have.
        wanted: Role,
    },
    /// A key that does not fit, or another inconsistency.
    #[error("the certificates in {} cannot be used: {reason}", folder.display())]
    Unfit {
        /// The folder.
        folder: PathBuf,
        /// Reason for which it cannot be read.
        reason: String,
    },
}

/// The authority that is trusted, and a certificate of a role with its key.
#[derive(Debug)]
pub struct Credentials {
    pub(crate) folder: PathBuf,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// Reads `ca.pem`, `ROLE.pem` and `ROLE.key` of a folder.
    ///
    /// # Errors
    /// A file that is missing, wrong, of another role, or a key that others can read.
    pub fn read(folder: &Path, role: Role) -> Result<Self, CredentialsError> {
        let at = |name: &str| folder.join(name);
        let (certificate, key) = (at(&format!("{role}.pem")), at(&format!("{role}.key")));
        let mut roots = RootCertStore::empty();
        for root in certificates(&at(AUTHORITY))? {
            let reason = |error: tokio_rustls::rustls::Error| CredentialsError::File {
                path: at(AUTHORITY),
                reason: error.to_string(),
            };
            roots.add(root).map_err(reason)?;
        }
        let chain = certificates(&certificate)?;
        let found = chain.first().and_then(Role::of);
        if found != Some(role) {
            return Err(CredentialsError::Role { path: certificate, found, wanted: role });
        }
        if is_open(&key)
            .map_err(|error| CredentialsError::File { path: key.clone(), reason: error.to_string() })?
        {
            return Err(CredentialsError::Open(key));
        }
        let read = PrivateKeyDer::from_pem_file(&key);
        let key = read.map_err(|error| CredentialsError::File { path: key, reason: error.to_string() })?;
        Ok(Self { folder: folder.into(), roots: Arc::new(roots), chain, key })
    }
}

/// True if users other than owner and group can read a file, or the group can write it.
pub(crate) fn is_open(path: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o027 != 0)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let wrong = |reason: String| CredentialsError::File { path: path.into(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| wrong(error.to_string()))?;
    if read.is_empty() { Err(wrong("there is no certificate in it".into())) } else { Ok(read) }
}
