//! Values as plain memory, kept where they are if their alignment allows.

use bytemuck::Pod;

/// Values of a type that the back ends do not know. The width follows from the type's alignment: a vector
/// then changes its type without a copy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    Bytes(Vec<u8>),
    Halves(Vec<u32>),
    Words(Vec<u64>),
}

impl Message {
    pub(crate) fn pack<T: Pod>(values: Vec<T>) -> Self {
        assert!(size_of::<T>() > 0, "values without a size");
        match align_of::<T>() {
            align if align == align_of::<u64>() => Self::Words(cast(values)),
            align if align == align_of::<u32>() => Self::Halves(cast(values)),
            _ => Self::Bytes(cast(values)),
        }
    }

    pub(crate) fn unpack<T: Pod>(self) -> Vec<T> {
        assert_eq!(self.bytes().len() % size_of::<T>(), 0, "ranks do not agree on the type of a message");
        match self {
            Self::Bytes(values) => cast(values),
            Self::Halves(values) => cast(values),
            Self::Words(values) => cast(values),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(values) => values,
            Self::Halves(values) => bytemuck::cast_slice(values),
            Self::Words(values) => bytemuck::cast_slice(values),
        }
    }
}

fn cast<A: Pod, B: Pod>(values: Vec<A>) -> Vec<B> {
    bytemuck::try_cast_vec(values).unwrap_or_else(|(_, values)| bytemuck::pod_collect_to_vec(&values))
}

#[cfg(feature = "mpi")]
impl Message {
    /// A message as wide as this one, of `bytes` zeros.
    pub(crate) fn zeroed(&self, bytes: usize) -> Self {
        let whole = |width: usize| {
            assert_eq!(bytes % width, 0, "ranks do not agree on the type of a message");
            bytes / width
        };
        match self {
            Self::Bytes(_) => Self::Bytes(vec![0; bytes]),
            Self::Halves(_) => Self::Halves(vec![0; whole(4)]),
            Self::Words(_) => Self::Words(vec![0; whole(8)]),
        }
    }

    /// Both messages' values, one after the other.
    pub(crate) fn join(mut self, next: Self) -> Self {
        match (&mut self, next) {
            (Self::Bytes(values), Self::Bytes(next)) => values.extend(next),
            (Self::Halves(values), Self::Halves(next)) => values.extend(next),
            (Self::Words(values), Self::Words(next)) => values.extend(next),
            _ => unreachable!("pieces of a message are equally wide"),
        }
        self
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(values) => values,
            Self::Halves(values) => bytemuck::cast_slice_mut(values),
            Self::Words(values) => bytemuck::cast_slice_mut(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_any_width_come_back() {
        fn there_and_back<T: Pod + PartialEq + std::fmt::Debug>(values: &[T]) {
            assert_eq!(Message::pack(values.to_vec()).unpack::<T>(), values);
        }
        there_and_back(&[1u8, 2, 3]);
        there_and_back(&[1u16, 2, 3]);
        there_and_back(&[1.5f32, 2.5, 3.5]);
        there_and_back(&[[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        there_and_back(&[1u128 << 100, 3]);
        there_and_back::<f64>(&[]);
    }

    #[test]
    fn doubles_stay_where_they_are() {
        let values = vec![[1.0f64, 2.0, 3.0]; 100];
        let place = values.as_ptr().cast::<u8>();
        let message = Message::pack(values);
        assert_eq!(message.bytes().as_ptr(), place);
        let values = message.unpack::<[f64; 3]>();
        assert_eq!(values.as_ptr().cast::<u8>(), place);
    }
}
