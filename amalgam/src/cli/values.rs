//! Values of options that several commands share.

use std::{fmt, str::FromStr};

use clap::ValueEnum;

/// Transport of messages between coordinator and solvers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// A process per solver, Unix sockets.
    #[default]
    Unix,
    /// A process per solver, TCP on the loopback interface.
    Tcp,
    /// Threads of one process, no sockets.
    InProcess,
}

/// Network between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// 2 microseconds and 25 GB/s per node.
    Infiniband,
    /// 30 microseconds and 10 Gbit/s per node.
    Ethernet,
}

/// The first and the last frame that are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    first: u32,
    last: u32,
}

impl Frames {
    /// All frames, from the first to the last.
    pub(crate) const ALL: Self = Self { first: 0, last: u32::MAX };

    /// The first frame.
    pub(crate) fn first(self) -> u32 {
        self.first
    }

    /// True for a frame from the first to the last.
    pub(crate) fn has(self, frame: f64) -> bool {
        frame >= f64::from(self.first) && frame <= f64::from(self.last)
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}..{last}") }
    }
}

impl FromStr for Frames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u32>().ok();
        let ends = match text.split_once("..") {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(text).map(|frame| (frame, frame)),
        };
        match ends {
            Some((first, last)) if first <= last => Ok(Self { first, last }),
            _ => Err("write a frame as 20, or the first and the last as 10..20".to_string()),
        }
    }
}
