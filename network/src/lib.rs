//! Connections between machines: who may connect, how both ends prove who they are, and how long a silent one
//! is tolerated.
//!
//! Beyond the loopback interface both ends show certificates of one authority ([`certificates`]) with a role
//! ([`Role`]), and everything is encrypted. On a host that others use too, a caller shows a secret word from
//! a file ([`Token`]).

mod calls;
pub mod certificates;
mod client;
mod credentials;
mod explain;
mod lines;
mod listen;
mod options;
mod pace;
mod pages;
mod role;
mod stream;
mod tls;
mod token;

pub use calls::Calls;
pub use client::{Access, dial, dial_in_process, dial_unix, is_refusal, speaks_tls};
pub use credentials::{Credentials, CredentialsError};
pub use explain::innermost;
pub use lines::{Caller, Lines, OpenCall};
pub use listen::{Gate, Listen, Listening, host_name, listen, through};
pub use options::SecurityOptions;
pub use pace::{PATIENCE, RATE_MIN, paced};
pub use pages::Pages;
pub use role::Role;
pub use stream::{Line, Wire};
pub use token::{Token, TokenError};
