//! A field of `scontrol show job` that must occur once in its block.

/// A field that must occur once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Once<T> {
    #[default]
    Never,
    Is(T),
    Twice,
}

impl<T: Copy> Once<T> {
    pub(super) fn set(&mut self, value: T) {
        *self = if matches!(self, Self::Never) { Self::Is(value) } else { Self::Twice };
    }

    /// The value, if any; the outer `None` if ambiguous.
    pub(super) fn get(self) -> Option<Option<T>> {
        match self {
            Self::Never => Some(None),
            Self::Is(value) => Some(Some(value)),
            Self::Twice => None,
        }
    }
}
