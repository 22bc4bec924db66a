//! How busy becomes how bright: the colour schemes, as steps that the style sheet paints.

/// A way to colour utilisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// One hue from grey to bright: busy is good, and no alarm.
    #[default]
    Ramp,
    /// nvnodetop's: green below 60, yellow below 85, red from there.
    NvNodeTop,
    /// nvitop's: green below 10, yellow below 75, red from there.
    NvItop,
}

impl Scheme {
    /// Every scheme, in the order in which the key `c` walks through them.
    pub const ALL: [Self; 3] = [Self::Ramp, Self::NvNodeTop, Self::NvItop];

    /// Name in storage and in the style sheet.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ramp => "ramp",
            Self::NvNodeTop => "nvnodetop",
            Self::NvItop => "nvitop",
        }
    }

    /// What the user reads.
    pub fn title(self) -> &'static str {
        match self {
            Self::Ramp => "one hue",
            Self::NvNodeTop => "nvnodetop 60/85",
            Self::NvItop => "nvitop 10/75",
        }
    }

    /// The scheme of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::Ramp => Self::NvNodeTop,
            Self::NvNodeTop => Self::NvItop,
            Self::NvItop => Self::Ramp,
        }
    }

    /// The step of a utilisation in %, 0 to 3; step 0 is grey in every scheme.
    pub fn step(self, util_pct: u64) -> usize {
        let bounds: [u64; 3] = match self {
            Self::Ramp => [10, 60, 85],
            Self::NvNodeTop => [1, 60, 85],
            Self::NvItop => [1, 10, 75],
        };
        bounds.iter().filter(|bound| util_pct >= **bound).count()
    }

    /// The class of a utilisation's colour; without a reading, the class of a gap.
    pub fn class(self, util_pct: Option<u64>) -> &'static str {
        match util_pct.map(|util| self.step(util)) {
            None => "heat-none",
            Some(0) => "heat-0",
            Some(1) => "heat-1",
            Some(2) => "heat-2",
            Some(_) => "heat-3",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_change_colour_where_their_tools_do() {
        assert_eq!([0, 59, 60, 84, 85, 100].map(|util| Scheme::NvNodeTop.step(util)), [0, 1, 2, 2, 3, 3]);
        assert_eq!([0, 9, 10, 74, 75].map(|util| Scheme::NvItop.step(util)), [0, 1, 2, 2, 3]);
        assert_eq!([0, 9, 10, 97].map(|util| Scheme::Ramp.step(util)), [0, 0, 1, 3]);
    }

    #[test]
    fn no_reading_does_not_look_like_idle() {
        assert_ne!(Scheme::Ramp.class(None), Scheme::Ramp.class(Some(0)));
    }

    #[test]
    fn walking_visits_every_scheme_and_names_lead_back() {
        let mut scheme = Scheme::default();
        for expected in [Scheme::NvNodeTop, Scheme::NvItop, Scheme::Ramp] {
            scheme = scheme.next();
            assert_eq!(scheme, expected);
            assert_eq!(Scheme::of_name(scheme.name()), Some(scheme));
        }
    }
}
