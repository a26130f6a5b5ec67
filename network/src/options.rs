//! The options of every program that connects or listens.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::client::Access;
use crate::credentials::Credentials;
use crate::listen::Gate;
use crate::pages::Pages;
use crate::role::Role;
use crate::token::Token;

/// Options by which both ends of a connection authenticate each other.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SecurityOptions {
    /// A folder of `amalgam certs`: TCP is encrypted, and both ends show their certificates.
    #[arg(long, value_name = "DIR")]
    pub tls: Option<PathBuf>,
    /// A file with a word that callers of a service must know, for hosts that others use too.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Go beyond this machine without encryption; anyone who reaches the service can use it.
    #[arg(long)]
    pub insecure: bool,
}

impl SecurityOptions {
    /// Gate of a program of role `own` that accepts callers of roles `callers`.
    ///
    /// # Errors
    /// Certificates or a token that cannot be used.
    pub fn gate(&self, own: Role, callers: &'static [Role]) -> anyhow::Result<Gate> {
        let tls = self.tls.as_ref().map(|folder| Credentials::read(folder, own)?.acceptor(callers));
        let tls = tls.transpose().context("--tls")?;
        Ok(Gate { tls, token: self.token()?, insecure: self.insecure })
    }

    /// Access of a program of role `own` to services of role `wanted`.
    ///
    /// # Errors
    /// Certificates or a token that cannot be used.
    pub fn access(&self, own: Role, wanted: Role) -> anyhow::Result<Access> {
        let tls = self.tls.as_ref().map(|folder| Credentials::read(folder, own)?.connector(wanted));
        let tls = tls.transpose().context("--tls")?;
        Ok(Access { tls, token: self.token()?, insecure: self.insecure })
    }

    /// Pages of a program of role `own` for browsers: encrypted with `--tls`, and without it only on this
    /// machine unless `--insecure` is given.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub fn pages(&self, own: Role) -> anyhow::Result<Pages> {
        let tls = self.tls.as_ref().map(|folder| Credentials::read(folder, own)?.page_acceptor());
        let tls = tls.transpose().context("--tls")?;
        Ok(Pages { tls, insecure: self.insecure })
    }

    fn token(&self) -> anyhow::Result<Option<Token>> {
        Ok(self.token_file.as_deref().map(Token::read).transpose()?)
    }
}
