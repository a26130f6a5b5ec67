//! TLS with certificates on both sides, whose roles are checked.

use std::sync::Arc;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error,
    OtherError, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::credentials::{Credentials, CredentialsError};
use crate::role::Role;

/// Name of HTTP/2 in the negotiation of a protocol (ALPN).
const HTTP2: &[u8] = b"h2";

/// Name of HTTP/1.1 in ALPN.
const HTTP1: &[u8] = b"http/1.1";

/// A certificate with a role that is not accepted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("its certificate is that of {}, and {} is wanted", found.map_or("no role of amalgam's", Role::one), wanted.one())]
pub(crate) struct WrongRole {
    found: Option<Role>,
    wanted: Role,
}

impl Credentials {
    /// TLS of a service that takes callers of these roles.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub(crate) fn acceptor(self, callers: &'static [Role]) -> Result<TlsAcceptor, CredentialsError> {
        let folder = self.folder.clone();
        let unfit = |reason: String| CredentialsError::Unfit { folder: folder.clone(), reason };
        let provider = Arc::new(default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(self.roots, Arc::clone(&provider))
            .build()
            .map_err(|error| unfit(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(error.to_string()))?
            .with_client_cert_verifier(Arc::new(Callers { inner, roles: callers }))
            .with_single_cert(self.chain, self.key)
            .map_err(|error| unfit(error.to_string()))?;
        config.alpn_protocols = vec![HTTP2.into()];
        // A resumed session would not show its certificate.
        config.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// TLS of pages for browsers, which show no certificates.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub(crate) fn page_acceptor(self) -> Result<TlsAcceptor, CredentialsError> {
        let folder = self.folder;
        let unfit = |reason: String| CredentialsError::Unfit { folder: folder.clone(), reason };
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(self.chain, self.key)
            .map_err(|error| unfit(error.to_string()))?;
        config.alpn_protocols = vec![HTTP1.into()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// TLS of a caller of a service of role `wanted`.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub(crate) fn connector(self, wanted: Role) -> Result<TlsConnector, CredentialsError> {
        let folder = self.folder.clone();
        let unfit = |reason: String| CredentialsError::Unfit { folder: folder.clone(), reason };
        let provider = Arc::new(default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(self.roots, Arc::clone(&provider))
            .build()
            .map_err(|error| unfit(error.to_string()))?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Services { inner, role: wanted }))
            .with_client_auth_cert(self.chain, self.key)
            .map_err(|error| unfit(error.to_string()))?;
        config.alpn_protocols = vec![HTTP2.into()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// The first bytes of a handshake of TLS, for asking whether a service speaks it.
pub(crate) fn hello() -> Option<Vec<u8>> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .ok()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").ok()?).ok()?;
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).ok()?;
    Some(bytes)
}

/// Checks a caller's certificate as usual, and its role.
#[derive(Debug)]
struct Callers {
    inner: Arc<dyn ClientCertVerifier>,
    roles: &'static [Role],
}

impl ClientCertVerifier for Callers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        if Role::of(end_entity).is_some_and(|role| self.roles.contains(&role)) {
            return Ok(verified);
        }
        // The caller gets the alert "access denied", which none of the other faults of a certificate gives.
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Checks a service's certificate as usual, its host included, and its role.
#[derive(Debug)]
struct Services {
    inner: Arc<WebPkiServerVerifier>,
    role: Role,
}

impl ServerCertVerifier for Services {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        let found = Role::of(end_entity);
        if found == Some(self.role) {
            return Ok(verified);
        }
        let wrong = WrongRole { found, wanted: self.role };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
