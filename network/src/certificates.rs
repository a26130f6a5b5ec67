//! Makes an authority and a certificate for each role: what `amalgam certs` does.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::role::Role;

/// Certificate of the authority.
pub const AUTHORITY: &str = "ca.pem";

/// Key of the authority; it is needed to make certificates, and by no service.
pub const AUTHORITY_KEY: &str = "ca.key";

/// Days for which an authority is good.
const AUTHORITY_DAYS: i64 = 3650;

/// Time by which clocks of machines may differ.
const CLOCKS_DIFFER: Duration = Duration::hours(1);

/// Reasons for which no certificates were made.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// A file or folder cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A name that no certificate can hold.
    #[error("{0:?} is no host: write a name or an IP address, without a port")]
    Host(String),
    /// There is an authority without its key.
    #[error(
        "{0} is there without {AUTHORITY_KEY}: give the folder that has the authority's key, or a new one"
    )]
    NoKey(String),
    /// The library that makes certificates.
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// Certificates that a call made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// All files are new.
    Authority,
    /// The certificates of the roles are new.
    Roles,
}

/// Makes `folder` with an authority, unless it has one, and a certificate and a key for each role, good for
/// `days` and for services on `hosts` and on the loopback interface. Keys can be read by their owner alone.
///
/// # Errors
/// A host that is none, or a file that cannot be read or written.
pub fn make(folder: &Path, hosts: &[String], days: u32) -> Result<Made, CertificatesError> {
    let names = hosts.iter().map(|host| name(host)).collect::<Result<Vec<_>, _>>()?;
    let at = |name: &str| folder.join(name);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| file(folder, error))?;
    let (key, made) = match (at(AUTHORITY).exists(), fs::read_to_string(at(AUTHORITY_KEY))) {
        (_, Ok(text)) => (KeyPair::from_pem(&text)?, Made::Roles),
        (true, Err(_)) => return Err(CertificatesError::NoKey(at(AUTHORITY).display().to_string())),
        (false, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            (KeyPair::generate()?, Made::Authority)
        }
        (false, Err(error)) => return Err(file(&at(AUTHORITY_KEY), error)),
    };
    let authority = authority(&key)?;
    if made == Made::Authority {
        write(&at(AUTHORITY_KEY), 0o600, &key.serialize_pem())?;
        write(&at(AUTHORITY), 0o644, &authority.self_signed(&key)?.pem())?;
    }
    let issuer = Issuer::new(authority, key);
    for role in Role::ALL {
        let key = KeyPair::generate()?;
        let certificate = of_role(role, &names, days)?.signed_by(&key, &issuer)?;
        write(&at(&format!("{role}.key")), 0o600, &key.serialize_pem())?;
        write(&at(&format!("{role}.pem")), 0o644, &certificate.pem())?;
    }
    Ok(made)
}

fn name(host: &str) -> Result<SanType, CertificatesError> {
    let wrong = || CertificatesError::Host(host.into());
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok(SanType::IpAddress(address));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-*".contains(c);
    if host.is_empty() || !host.chars().all(allowed) {
        return Err(wrong());
    }
    Ok(SanType::DnsName(host.try_into().map_err(|_| wrong())?))
}

/// The authority of a key: its name follows from the key, so that it can be made again from the key alone.
fn authority(key: &KeyPair) -> Result<CertificateParams, CertificatesError> {
    let mut parameters = CertificateParams::new([])?;
    let digest = blake3::hash(key.der_bytes()).to_hex();
    parameters.distinguished_name.push(DnType::CommonName, format!("amalgam authority {}", &digest[..16]));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (parameters.not_before, parameters.not_after) = validity(AUTHORITY_DAYS);
    Ok(parameters)
}

fn of_role(role: Role, hosts: &[SanType], days: u32) -> Result<CertificateParams, CertificatesError> {
    let mut parameters = CertificateParams::new([])?;
    parameters.distinguished_name.push(DnType::CommonName, format!("amalgam {role}"));
    parameters.subject_alt_names = vec![SanType::URI(role.uri().try_into()?)];
    parameters.subject_alt_names.extend_from_slice(hosts);
    for host in ["localhost", "127.0.0.1", "::1"] {
        parameters.subject_alt_names.push(name(host)?);
    }
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    parameters.use_authority_key_identifier_extension = true;
    (parameters.not_before, parameters.not_after) = validity(days.into());
    Ok(parameters)
}

fn validity(days: i64) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    (now - CLOCKS_DIFFER, now + Duration::days(days))
}

fn file(path: &Path, error: std::io::Error) -> CertificatesError {
    CertificatesError::File { path: path.display().to_string(), error }
}

/// Writes a file beside its place and moves it there: a reader finds the whole old file or the whole new one.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), CertificatesError> {
    let beside = path.with_extension("new");
    let written = (|| {
        // A file that an earlier run left may have other permissions.
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    written.map_err(|error| file(path, error))
}
