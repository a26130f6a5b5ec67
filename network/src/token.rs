//! A word that callers must know, for services on a host that others use too.

use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status};

use crate::credentials::is_open;

/// Fewest characters of a token.
const LENGTH_MIN: usize = 16;

/// Most characters of a token.
const LENGTH_MAX: usize = 1024;

/// A word that callers must know.
#[derive(Clone)]
pub struct Token {
    word: String,
    /// The value of the header that holds it: `authorization: Bearer TOKEN`.
    header: HeaderValue,
}

/// Reasons for which a file holds no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the token's file {}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Others can read the file.
    #[error("the token's file {} can be read by others: chmod 600 it, and write another token into it", .0.display())]
    Open(PathBuf),
    /// The file does not hold a token.
    #[error(
        "the token's file {} must hold one line of {LENGTH_MIN} to {LENGTH_MAX} letters, digits or signs without blanks, for example from `openssl rand -hex 32`",
        .0.display()
    )]
    Wrong(PathBuf),
}

impl Token {
    /// Reads a token from a file that only its owner can read.
    ///
    /// # Errors
    /// A file that others can read, or that holds no token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |error| TokenError::File { path: path.into(), error };
        if is_open(path).map_err(failed)? {
            return Err(TokenError::Open(path.into()));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Self::new(text.trim()).ok_or_else(|| TokenError::Wrong(path.into()))
    }

    /// A token that nobody can guess.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        let filled = default_provider().secure_random.fill(&mut bytes);
        filled.map_err(|_| std::io::Error::other("the system gives no random numbers"))?;
        let word: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::new(&word).ok_or_else(|| std::io::Error::other("hexadecimal digits are letters and digits"))
    }

    fn new(word: &str) -> Option<Self> {
        let fits =
            (LENGTH_MIN..=LENGTH_MAX).contains(&word.len()) && word.chars().all(|c| c.is_ascii_graphic());
        let header = fits.then(|| format!("Bearer {word}").parse().ok())??;
        Some(Self { word: word.into(), header })
    }

    /// The word, for a file.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Adds the token to a call.
    pub(crate) fn show(&self, call: &mut HeaderMap) {
        call.insert(AUTHORIZATION, self.header.clone());
    }

    /// Refuses a call without the token. The comparison takes the same time whatever was shown.
    pub(crate) fn check(&self, request: &Request<()>) -> Result<(), Status> {
        let shown = request.metadata().get(AUTHORIZATION.as_str()).map(MetadataValue::as_bytes);
        match shown {
            None => Err(Status::unauthenticated("this service asks for a token: give --token-file FILE")),
            Some(shown) if blake3::hash(shown) == blake3::hash(self.header.as_bytes()) => Ok(()),
            Some(_) => Err(Status::unauthenticated("the token is another one than this service's")),
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}
