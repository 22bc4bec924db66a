//! Colour schemes for utilisation, as steps that the style sheet colours.

/// A way to colour utilisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourScheme {
    /// One hue from grey to bright: busy is good, and no warning.
    #[default]
    Ramp,
    /// nvnodetop's: green below 60, yellow below 85, red from there.
    NvNodeTop,
    /// nvitop's for utilisation: green below 10, yellow below 75, red from there.
    NvItop,
    /// nvitop's for memory: green below 10, yellow below 80, red from there.
    NvItopMemory,
    /// The user's own bounds: green below the first, yellow below the second, red from there.
    Custom(u8, u8),
}

impl ColourScheme {
    /// The named schemes, in the order of the key `c`.
    pub const NAMED: [Self; 4] = [Self::Ramp, Self::NvNodeTop, Self::NvItop, Self::NvItopMemory];

    /// Returns its name in storage; a custom scheme's contains its bounds.
    pub fn name(self) -> String {
        match self {
            Self::Ramp => "ramp".to_owned(),
            Self::NvNodeTop => "nvnodetop".to_owned(),
            Self::NvItop => "nvitop".to_owned(),
            Self::NvItopMemory => "nvitop-memory".to_owned(),
            Self::Custom(light, heavy) => format!("own {light} {heavy}"),
        }
    }

    /// Returns its name in the style sheet: one hue, or traffic lights.
    pub fn colours(self) -> &'static str {
        if self == Self::Ramp { "ramp" } else { "lights" }
    }

    /// Returns the title that the page shows.
    pub fn title(self) -> String {
        match self {
            Self::Ramp => "Single colour".to_owned(),
            Self::NvNodeTop => "nvnodetop 60/85".to_owned(),
            Self::NvItop => "nvitop 10/75".to_owned(),
            Self::NvItopMemory => "nvitop memory 10/80".to_owned(),
            Self::Custom(light, heavy) => format!("custom {light}/{heavy}"),
        }
    }

    /// Returns a custom scheme with its bounds in order and within 1 to 100.
    pub fn custom(light: u8, heavy: u8) -> Self {
        let (light, heavy) = (light.clamp(1, 100), heavy.clamp(1, 100));
        Self::Custom(light.min(heavy), light.max(heavy))
    }

    /// Parses a name.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(named) = Self::NAMED.into_iter().find(|scheme| scheme.name() == name) {
            return Some(named);
        }
        let mut words = name.strip_prefix("own ")?.split(' ').map_while(|word| word.parse().ok());
        Some(Self::custom(words.next()?, words.next()?))
    }

    /// Returns the next scheme.
    pub fn next(self) -> Self {
        match self {
            Self::Ramp => Self::NvNodeTop,
            Self::NvNodeTop => Self::NvItop,
            Self::NvItop => Self::NvItopMemory,
            Self::NvItopMemory | Self::Custom(..) => Self::Ramp,
        }
    }

    /// Returns the step of a utilisation in %, 0 to 3; step 0 is grey in every scheme.
    pub fn step(self, util_pct: u64) -> usize {
        let bounds = match self {
            Self::Ramp => [10, 60, 85],
            Self::NvNodeTop => [1, 60, 85],
            Self::NvItop => [1, 10, 75],
            Self::NvItopMemory => [1, 10, 80],
            Self::Custom(light, heavy) => [1, u64::from(light), u64::from(heavy)],
        };
        bounds.iter().filter(|bound| util_pct >= **bound).count()
    }

    /// Returns the CSS class of a utilisation; without a reading, the class of a gap.
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
    fn schemes_change_colour_at_the_bounds_of_their_tools() {
        assert_eq!(
            [0, 59, 60, 84, 85, 100].map(|util| ColourScheme::NvNodeTop.step(util)),
            [0, 1, 2, 2, 3, 3]
        );
        assert_eq!([0, 9, 10, 74, 75].map(|util| ColourScheme::NvItop.step(util)), [0, 1, 2, 2, 3]);
        assert_eq!([0, 9, 10, 97].map(|util| ColourScheme::Ramp.step(util)), [0, 0, 1, 3]);
    }

    #[test]
    fn a_missing_reading_does_not_look_idle() {
        assert_ne!(ColourScheme::Ramp.class(None), ColourScheme::Ramp.class(Some(0)));
    }

    #[test]
    fn every_scheme_is_reachable_and_names_round_trip() {
        let mut scheme = ColourScheme::default();
        for expected in
            [ColourScheme::NvNodeTop, ColourScheme::NvItop, ColourScheme::NvItopMemory, ColourScheme::Ramp]
        {
            scheme = scheme.next();
            assert_eq!(scheme, expected);
            assert_eq!(ColourScheme::from_name(&scheme.name()), Some(scheme));
        }
    }

    #[test]
    fn custom_bounds_are_stored_and_put_in_order() {
        assert_eq!(
            ColourScheme::from_name(&ColourScheme::custom(80, 30).name()),
            Some(ColourScheme::Custom(30, 80))
        );
        assert_eq!(ColourScheme::custom(0, 200), ColourScheme::Custom(1, 100));
        assert_eq!([0, 29, 30, 80].map(|util| ColourScheme::Custom(30, 80).step(util)), [0, 1, 2, 3]);
        assert_eq!(ColourScheme::from_name("own 3"), None);
    }
}
