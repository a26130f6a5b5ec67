//! Limits of what columns may hold, the checks, and the faults that they find.

use amalgam_particles::{DMat3, DVec3, MOMENTUM_LIMIT, POSITION_LIMIT, ParticleId, SPEED_LIMIT, lanes, text};

/// Bytes of column data that one call may hold, in either direction.
pub const CALL_BYTES_MAX: u64 = 16 << 30;

/// Particles, members or pairs that one call may hold.
pub const COUNT_MAX: u64 = 1 << 32;

/// Faults of a message from the other side.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WireError {
    #[error("the stream ended without a header")]
    NoHeader,
    #[error("a second header in one stream")]
    SecondHeader,
    #[error("field {0} is missing")]
    Missing(&'static str),
    #[error("column {column} holds {got} bytes, but {count} x {stride} were announced")]
    Length { column: &'static str, got: u64, count: u64, stride: usize },
    #[error("column {0} is none that the header of this call calls for")]
    UnknownColumn(String),
    #[error("column {column} holds more than the {announced} bytes that were announced")]
    Beyond { column: String, announced: u64 },
    #[error("the columns that were announced need more than {CALL_BYTES_MAX} bytes")]
    TooLarge,
    #[error("{what} is {count}, but at most {most} are possible")]
    TooMany { what: &'static str, count: u64, most: u64 },
    #[error("{what} is {count}, more than {COUNT_MAX}")]
    Count { what: &'static str, count: u64 },
    #[error("{column}[{index}]{of} is {value}, but must be {rule}")]
    Value { column: &'static str, index: usize, of: String, value: String, rule: &'static str },
    #[error("{column}: id {id} stands twice")]
    Duplicate { column: &'static str, id: ParticleId },
    #[error("{column}: id {id} is unknown to {who}")]
    UnknownId { column: &'static str, id: ParticleId, who: &'static str },
    #[error("column {column}: {reason}")]
    Malformed { column: &'static str, reason: String },
    #[error("{0}")]
    Rule(String),
}

/// Range of the numbers that a column of vectors may hold, and the words for it.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Each component has a smaller magnitude.
    pub below: f64,
    /// Words that follow "must be" in an error.
    pub rule: &'static str,
}

/// Positions [m].
pub const POSITIONS: Limit = Limit { below: POSITION_LIMIT, rule: "finite and within 1e12 m of the origin" };

/// Velocities [m/s].
pub const VELOCITIES: Limit = Limit { below: SPEED_LIMIT, rule: "finite and below 1e12 m/s" };

/// Momenta and impulses [kg m/s].
pub const MOMENTA: Limit = Limit { below: MOMENTUM_LIMIT, rule: "finite and below 1e62 kg m/s" };

impl Limit {
    pub(super) fn check(self, column: &'static str, values: Vec<DVec3>) -> Result<Vec<DVec3>, WireError> {
        let numbers = bytemuck::cast_slice(&values);
        if !lanes::run(AllBelow { numbers, limit: self.below }) {
            check(column, &values, None, self.rule, |v| v.abs().cmplt(DVec3::splat(self.below)).all())?;
        }
        Ok(values)
    }
}

/// True if all magnitudes are below the limit; a NaN is not.
struct AllBelow<'a> {
    numbers: &'a [f64],
    limit: f64,
}

impl lanes::Task for AllBelow<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<L: lanes::Lanes>(self) -> bool {
        // Without a branch for each number, so that one instruction compares many.
        let (blocks, rest) = self.numbers.as_chunks::<{ 4 * lanes::LANES }>();
        let mut is_below = true;
        for block in blocks {
            for number in block {
                is_below &= number.abs() < self.limit;
            }
        }
        for number in rest {
            is_below &= number.abs() < self.limit;
        }
        is_below
    }
}

/// A value as messages show it.
pub trait Shown {
    /// The value for people.
    fn shown(&self) -> String;
}

impl Shown for DVec3 {
    fn shown(&self) -> String {
        text::vector(*self)
    }
}

impl Shown for DMat3 {
    fn shown(&self) -> String {
        let rows = [0, 1, 2].map(|row| text::vector(self.row(row)));
        rows.join(" ")
    }
}

impl Shown for [u32; 2] {
    fn shown(&self) -> String {
        format!("({}, {})", self[0], self[1])
    }
}

macro_rules! shown {
    ($($number:ty => $text:expr),* $(,)?) => {$(
        impl Shown for $number {
            fn shown(&self) -> String {
                $text(*self)
            }
        }
    )*};
}

shown!(
    f64 => text::number,
    f32 => |value| text::number(f64::from(value)),
    u8 => |value: u8| value.to_string(),
    u32 => |value: u32| value.to_string(),
    u64 => |value: u64| value.to_string(),
);

/// Checks every value of a column against a rule; `ids` name the particles in the error.
///
/// # Errors
/// [`WireError::Value`] with the first that breaks it.
pub fn check<T: Shown>(
    column: &'static str,
    values: &[T],
    ids: Option<&[ParticleId]>,
    rule: &'static str,
    holds: impl Fn(&T) -> bool,
) -> Result<(), WireError> {
    match values.iter().position(|value| !holds(value)) {
        None => Ok(()),
        Some(index) => {
            let of =
                ids.and_then(|ids| ids.get(index)).map(|id| format!(" (particle {id})")).unwrap_or_default();
            Err(WireError::Value { column, index, of, value: values[index].shown(), rule })
        }
    }
}

/// Checks that no id stands twice.
///
/// # Errors
/// [`WireError::Duplicate`].
pub fn check_unique(column: &'static str, ids: &[ParticleId]) -> Result<(), WireError> {
    if ids.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(());
    }
    let largest = ids.iter().map(|id| id.0).max().unwrap_or(0);
    if largest < 64 * ids.len() as u64 {
        // A bit for each number up to the largest.
        let mut seen = vec![0u64; largest as usize / 64 + 1];
        for &id in ids {
            let (word, bit) = (&mut seen[id.0 as usize / 64], 1 << (id.0 % 64));
            if *word & bit != 0 {
                return Err(WireError::Duplicate { column, id });
            }
            *word |= bit;
        }
        return Ok(());
    }
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(WireError::Duplicate { column, id: pair[0] }),
        None => Ok(()),
    }
}

/// Checks a count from a header before anything is allocated for it.
///
/// # Errors
/// [`WireError::Count`].
pub fn check_count(what: &'static str, count: u64) -> Result<u64, WireError> {
    if count < COUNT_MAX { Ok(count) } else { Err(WireError::Count { what, count }) }
}
