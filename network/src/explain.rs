//! Explanations of errors, those of TLS in sentences that say what to do.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

/// Message of the last cause of an error: what the system said.
pub fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// An error of TLS as one that says what to do. One of the network stays as it is.
pub(crate) fn explained(error: io::Error) -> io::Error {
    let Some(cause) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return error;
    };
    io::Error::new(io::ErrorKind::PermissionDenied, sentence(cause))
}

fn sentence(error: &Error) -> String {
    match error {
        Error::InvalidMessage(_) => {
            "the other end speaks without TLS: start it with --tls DIR, or leave --tls out here too".into()
        }
        Error::InvalidCertificate(fault) => certificate(fault),
        Error::AlertReceived(alert) => refusal(*alert),
        Error::NoCertificatesPresented => "the other end shows no certificate: give it --tls DIR".into(),
        other => format!("TLS: {other}"),
    }
}

/// Explanation of a fault in the certificate of the other end.
fn certificate(fault: &CertificateError) -> String {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: make a new one with amalgam certs, or look at the clocks".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not good yet: look at the clocks of both machines".into()
        }
        CertificateError::NotValidForName => "its certificate is for other hosts".into(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let (expected, presented) = (expected.to_str(), presented.join(", "));
            format!(
                "its certificate is not for host {expected}, but for {presented}: name the host in amalgam certs --hosts"
            )
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is of another authority: use certificates of one `amalgam certs` on both ends"
                .into()
        }
        CertificateError::ApplicationVerificationFailure => {
            "its certificate has a role that may not call this service".into()
        }
        CertificateError::Other(other) => other.to_string(),
        other => format!("its certificate cannot be used: {other}"),
    }
}

/// Explanation of the other end's refusal of our certificate.
fn refusal(alert: AlertDescription) -> String {
    let reason = match alert {
        AlertDescription::AccessDenied => "its role may not call this service",
        AlertDescription::CertificateExpired => "it has expired, or the clocks differ",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it is of another authority; use certificates of one `amalgam certs` on both ends"
        }
        AlertDescription::CertificateRequired => "there is none",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "its host, role or authority is wrong; the other end's log says which"
        }
        other => return format!("the other end ended TLS: {other:?}"),
    };
    format!("the other end refuses our certificate: {reason}")
}
