//! Kinds of cells, and of faces between two cells.

/// Kinds of cells, as bits, so that the kinds of the two cells beside a face can be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cell {
    Air = 0,
    /// Holds particles of other participants only.
    Foreign = OPEN,
    /// Holds particles of this fluid.
    Fluid = OPEN | FLUID,
    /// Holds particles of this fluid, but too few to fill it: see `flip/density_correction.rs`.
    Spray = SPRAY,
    /// Lies around the domain.
    Wall = WALL,
}

impl Cell {
    /// The kind with these bits.
    pub(super) fn from_bits(bits: u8) -> Self {
        let kinds = [Self::Foreign, Self::Fluid, Self::Spray, Self::Wall];
        kinds.into_iter().find(|&kind| kind as u8 == bits).unwrap_or(Self::Air)
    }
}

/// Bit of cells in which the pressure is unknown.
pub(super) const OPEN: u8 = 1;
const FLUID: u8 = 2;
pub(super) const SPRAY: u8 = 4;
pub(super) const WALL: u8 = 8;

/// The cells on both sides of a face.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    either: u8,
    both: u8,
}

impl Sides {
    #[inline(always)]
    pub(super) fn new(cells: [Cell; 2]) -> Self {
        let [a, b] = cells.map(|cell| cell as u8);
        Self { either: a | b, both: a & b }
    }

    /// True if the pressure acts on the face: a side is open and none is a wall.
    #[inline(always)]
    pub(super) fn feel_pressure(self) -> bool {
        self.either & (OPEN | WALL) == OPEN
    }

    /// True if one side has this bit.
    #[inline(always)]
    pub(super) fn contain(self, bit: u8) -> bool {
        self.either & bit != 0
    }

    /// True if both sides hold particles of this fluid.
    #[inline(always)]
    pub(super) fn are_fluid(self) -> bool {
        self.both & FLUID != 0
    }
}

/// True if the pressure in a cell is unknown.
#[inline(always)]
pub(super) fn is_open(cell: Cell) -> bool {
    cell as u8 & OPEN != 0
}

/// True if the pressure in a cell is zero.
pub(super) fn is_free(cell: Cell) -> bool {
    matches!(cell, Cell::Air | Cell::Spray)
}
